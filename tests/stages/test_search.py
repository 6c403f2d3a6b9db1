"""target.max_nll_rise: the narrowest fold within a bound, found by folding and scoring."""

import json

import pytest
import torch
from safetensors.torch import load_file
from stage_jobs import answers, fold, illuminate, plan

from prune.data.records import read
from prune.nn import search
from prune.nn.model import load
from prune.nn.search import narrowest
from prune.tiny import WIDTH, plant, save_tiny, tiny_model

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def lit(tmp_path_factory):
    """A model whose logits are far from flat, with 48 of its neurons dead."""
    folder = tmp_path_factory.mktemp("s")
    model = tiny_model()
    alive = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(1))[:128].sort().values
    plant(model, alive.tolist())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "mlp" in name or "lm_head" in name:
                parameter *= 8
    source, data = save_tiny(model, folder / "m"), answers(folder / "a", train=(90,) * 8, val=(60,) * 8)
    return source, data, illuminate(source, data, folder / "i")[0]


def val_nll(folder, data):
    total = count = 0
    model = load(folder)
    for record in read(data, "val"):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([record.ids])).logits[0, record.n_prompt - 1 : -1]
        wanted = torch.tensor(record.ids[record.n_prompt :])
        total += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
        count += len(wanted)
    return total / count


@pytest.mark.parametrize("rise", ["0.02", "1%"])
def test_what_it_finds_is_within_and_a_step_narrower_is_not(tmp_path, lit, rise):
    source, data, grams = lit
    planned, found = plan(source, grams, tmp_path, data=data, rise=rise)
    record = found["search"]
    assert record["source_nll"] == pytest.approx(val_nll(source, data), rel=1e-4)
    bound = 0.02 if rise == "0.02" else 0.01 * record["source_nll"]
    assert record["bound"] == pytest.approx(bound)
    width = found["layers"][0]["kept"]
    assert 48 < width < WIDTH and found["totals"]["asked"] == f"target.max_nll_rise={rise}"
    here, narrower = (
        val_nll(fold(source, grams, cut(planned, tmp_path, w, lit), tmp_path / f"f{w}", data=data)[0], data)
        for w in (width, width - 16)
    )
    assert here - record["source_nll"] <= bound < narrower - record["source_nll"]
    trials = {t["neurons"]: t for t in record["trials"]}
    assert trials[2 * width]["nll"] == pytest.approx(here, rel=1e-4) and trials[2 * width]["within"]
    assert not trials[2 * (width - 16)]["within"] and not (tmp_path / "trial").exists()


def cut(planned, scratch, width, lit):
    """A plan folder of one width."""
    source, _, grams = lit
    if width == len(load_file(planned / "keep.safetensors")["0"]):
        return planned
    return plan(source, grams, scratch / f"p{width}", ffn=width / WIDTH)[0]


def test_a_trial_is_not_run_again(tmp_path, lit, monkeypatch):
    source, data, grams = lit
    whole = plan(source, grams, tmp_path / "whole", data=data, rise="0.02")[1]
    left = json.loads((tmp_path / "whole" / "trials.json").read_text())
    half = dict(list(left.items())[:2])
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "trials.json").write_text(json.dumps(half))
    calls, real = [], search.fold
    monkeypatch.setattr(search, "fold", lambda *given: calls.append(1) or real(*given))
    assert plan(source, grams, tmp_path / "again", data=data, rise="0.02")[1] == whole
    assert len(calls) == len(left) - len(half)


def test_bisection_finds_the_border():
    totals = list(range(10, 30))
    for border in range(9, 30):
        asked = []
        best = narrowest(totals, lambda t, border=border, asked=asked: asked.append(t) or t > border)
        assert best == min(max(border + 1, 10), 29) and len(asked) <= 5
