"""eval on tiny random models: the report's numbers against plain forward passes."""

import json
from dataclasses import asdict

import pytest
import torch
from stage_jobs import AS_IS, Q8, STREAM, answers, fold, illuminate, plan, quant
from transformers import AutoModelForCausalLM

from prune.data import records
from prune.errors import UsageError
from prune.gates import GateOptions
from prune.options import EvalOptions
from prune.stage import Job
from prune.stages.eval import Eval, candidates
from prune.tiny import tiny

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Source, data, and the folder of each step."""
    home = tmp_path_factory.mktemp("e")
    source = tiny(home / "m")
    data = answers(home / "a", test=(20, 33, 14))
    grams, _ = illuminate(source, data, home / "i")
    planned, _ = plan(source, grams, home / "p", ffn=0.73)
    folded, _ = fold(source, grams, planned, home / "f")
    return {
        "source": source,
        "answers": data,
        "plan": planned,
        "folding": home / "f" / "folding",
        "fold": folded,
        "quant": quant(folded, home / "q", Q8)[0],
    }


def evaluate(made, out, last="quant", codec=Q8, gates=None, seen=None, **options):
    """The stage's facts and the report."""
    out.mkdir(parents=True)
    every = {"source": made["source"], "fold": made["fold"], "quant": made["quant"]}
    weights = dict(list(every.items())[: list(every).index(last) + 1])
    chosen = asdict(EvalOptions()) | {"prompts": 2, "max_tokens": 5} | options
    chosen["gates"] = asdict(GateOptions()) | (gates or {})
    nodes = {
        "source": str(made["source"]), "data": "prompts.jsonl", "output": "out", "eval": chosen, "threads": 1,
        "loss_on": "generated", "codec": codec, "dtype": "float32", "device": "cpu", "seed": 0,
        "stream": STREAM,
    }  # fmt: skip
    versions = {
        "weights": weights,
        "plan": {"plan": made["plan"]} if last != "source" else {},
        "folding": {"fold": made["folding"]} if last != "source" else {},
        "origin": {},
    }
    inputs = {"source": made["source"], "answers": made["answers"], "weights": weights[last]}
    seen = [] if seen is None else seen
    watch = lambda done, total, **more: seen.append((done, total))  # noqa: E731
    keys = dict.fromkeys(inputs, "k")
    job = Job(nodes, inputs, versions, out, out, keys, progress=watch, notice=lambda text: None)
    facts = Eval().run(job)
    return facts, json.loads((out / "report" / "report.json").read_text()), candidates(job)


def nll(folder, data):
    """Per generated token of the test answers: one plain forward pass a record."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    total, tokens = 0.0, 0
    for record in records.read(data, "test"):
        ids = torch.tensor([record.ids])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0].double().log_softmax(-1)
        targets = ids[0, record.n_prompt :]
        total -= float(logits[record.n_prompt - 1 : -1].gather(1, targets.unsqueeze(1)).sum())
        tokens += len(targets)
    return total / tokens, tokens


def kl(source, folder, data):
    """To the source, per generated token of the test answers, by plain forward passes."""
    models = [
        AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32, trust_remote_code=False).eval()
        for f in (source, folder)
    ]
    total, tokens = 0.0, 0
    for record in records.read(data, "test"):
        with torch.no_grad():
            p, q = (
                m(input_ids=torch.tensor([record.ids])).logits[0].double().log_softmax(-1) for m in models
            )
        span = slice(record.n_prompt - 1, -1)
        total += float((p.exp() * (p - q)).sum(-1)[span].sum())
        tokens += len(record.ids) - record.n_prompt
    return total / tokens


def test_every_candidate_scores_as_plain_transformers(tmp_path, made):
    seen = []
    facts, report, roles = evaluate(made, tmp_path / "o", seen=seen)
    assert [(n, r) for n, r, _ in roles] == [("source", "source"), ("fold", "step"), ("quant", "final")]
    rows = {row["name"]: row for row in report["candidates"]}
    for name, _, folder in roles:
        want, tokens = nll(folder, made["answers"])
        assert rows[name]["nll"] == pytest.approx(want, rel=1e-5) and rows[name]["tokens"] == tokens == 64
        assert rows[name]["bytes"] == sum(p.stat().st_size for p in folder.glob("*.safetensors"))
        plain = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
        if name != "quant":
            assert rows[name]["params"] == sum(p.numel() for p in plain.parameters())
    assert rows["quant"]["params"] == rows["fold"]["params"] == report["target"]["params_after"]
    assert facts["nll"] == rows["quant"]["nll"] and facts["nll_source"] == rows["source"]["nll"]
    assert facts["bytes"] == rows["quant"]["bytes"]
    assert rows["source"]["delta"] is None and rows["source"]["kl"] is None
    for name, _, folder in roles[1:]:
        assert rows[name]["kl"]["mean"] == pytest.approx(
            kl(made["source"], folder, made["answers"]), rel=1e-3
        )
        assert 0 < rows[name]["kl"]["low"] <= rows[name]["kl"]["mean"] <= rows[name]["kl"]["high"]
    delta = rows["quant"]["delta"]
    assert delta["low"] <= rows["quant"]["nll"] - rows["source"]["nll"] <= delta["high"]
    assert seen[-1] == (3, 3) and [d for d, _ in seen] == sorted(d for d, _ in seen)


def test_its_answers_are_greedy(tmp_path, made):
    _, report, _ = evaluate(made, tmp_path / "o", last="source", codec=AS_IS)
    model = AutoModelForCausalLM.from_pretrained(made["source"], trust_remote_code=False).eval()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(made["source"], trust_remote_code=False)
    for sample, record in zip(report["samples"], records.read(made["answers"], "test"), strict=False):
        prompt = torch.tensor([record.ids[: record.n_prompt]])
        ids = model.generate(prompt, max_new_tokens=5, do_sample=False)[0, record.n_prompt :]
        want = tokenizer.decode(ids, skip_special_tokens=True).strip()
        assert sample["answers"]["source"] == want
    assert len(report["samples"]) == 2


def test_gates_judge_what_was_measured(tmp_path, made):
    facts, report, _ = evaluate(made, tmp_path / "o", gates={"nll_rise": -1.0})
    assert not facts["passed"] and any("nll_rise" in f and "limit" in f for f in facts["failed"])
    (gate,) = [g for g in report["gates"] if g["gate"] == "nll_rise"]
    rows = {row["name"]: row for row in report["candidates"]}
    assert (
        gate["value"] == pytest.approx(rows["quant"]["nll"] - rows["source"]["nll"])
        and gate["passed"] is False
    )


def test_general_text_and_compared_models(tmp_path, made):
    (tmp_path / "t.txt").write_text("some general text " * 9)
    other = tiny(tmp_path / "other", seed=7)
    options = {"general": str(tmp_path / "t.txt"), "compare": [str(other)], "prompts": 0}
    _, report, roles = evaluate(made, tmp_path / "o", "fold", AS_IS, **options)
    assert roles[-1] == ("other", "compare", other)
    rows = {row["name"]: row for row in report["candidates"]}
    assert rows["other"]["nll"] == pytest.approx(nll(other, made["answers"])[0], rel=1e-5)
    assert all(1 < row["general_perplexity"] < 1000 for row in rows.values())
    assert all(row["generation"] is None for row in rows.values())
    assert rows["other"]["kl"]["mean"] > rows["fold"]["kl"]["mean"] > 0


def test_a_model_of_another_vocabulary_has_no_divergence(tmp_path, made):
    other = tiny(tmp_path / "other", vocab_size=300)
    _, report, _ = evaluate(made, tmp_path / "o", "fold", AS_IS, compare=[str(other)], prompts=0)
    rows = {row["name"]: row for row in report["candidates"]}
    assert rows["other"]["kl"] is None and rows["other"]["nll"] > 0 and rows["fold"]["kl"]


def test_without_a_test_record_nothing_is_proved(tmp_path, made):
    empty = answers(tmp_path / "a", test=())
    with pytest.raises(UsageError, match="no test record"):
        evaluate(made | {"answers": empty}, tmp_path / "o")
