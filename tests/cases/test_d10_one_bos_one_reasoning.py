"""Every sequence starts with one BOS and holds the teacher's reasoning once."""

import json
import re

import pytest
from product import step
from tokenizers import Tokenizer, processors

from prune.data.records import read
from prune.data.render import load_tokenizer
from prune.tiny import byte_tokenizer, save_tiny, tiny_model
from prune.tiny_task import write_prompts

BOS = "{{ bos_token }}"
TURNS = (
    "{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "<{{ m['role'][0] }}>{{ text }}<end>\n{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)
OPENED = TURNS.replace("%}<a>{%", "%}<a><think>\n{%")  #: a template that opens the reasoning itself
SPECIAL = ("<bos>", "<end>", "<think>", "</think>")
REASON = "First I read each digit."
SPLITS = ("train", "val", "test")


def make(folder, template, bos):
    """A tiny llama whose tokenizer knows the special tokens and, with ``bos``, adds one by itself."""
    model = tiny_model(vocab_size=257 + len(SPECIAL), bos_token_id=257)
    save_tiny(model, folder)
    byte_tokenizer(folder, template)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(list(SPECIAL))
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"bos_token": "<bos>", "add_bos_token": bos} if bos else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return load_tokenizer(folder)


@pytest.fixture
def walked(monkeypatch):
    """Every sequence that any stage takes through a model, in the order of the walks."""
    from prune.nn import walk

    seen, begin = [], walk.Stream.__init__

    def spy(stream, model, batches, *rest):
        seen.append(sorted(w.ids for b in batches for w in b.windows))
        begin(stream, model, batches, *rest)

    monkeypatch.setattr(walk.Stream, "__init__", spy)
    return seen


@pytest.fixture
def generated(monkeypatch):
    """Every prompt that a model is to continue."""
    from prune.nn import measure

    asked, generate = [], measure.generate

    def spy(model, prompts, **how):
        asked.extend(map(list, prompts))
        return generate(model, prompts, **how)

    monkeypatch.setattr(measure, "generate", spy)
    return asked


@pytest.fixture
def records(squeeze, scripted, tmp_path):
    """The records of a whole run."""

    def run(*argv):
        write_prompts(tmp_path / "t.jsonl", 20)
        gates = [f"eval.gates.{g}=null" for g in ("loops", "stop_rate", "length_low", "length_high")]
        answer = ("data=t.jsonl", "teacher=scripted", "eval.prompts=2", "eval.max_tokens=4", *gates)
        squeeze("model", "ffn=0.75", *answer, *argv)
        folder = step(tmp_path / ".prune", "prepare") / "answers"
        return {split: read(folder, split) for split in SPLITS}

    return run


def test_d10_one_bos_at_the_start_of_every_sequence(records, walked, generated, tmp_path):
    tokenizer = make(tmp_path / "model", BOS + TURNS, bos=True)
    bos = tokenizer.bos_token_id
    assert tokenizer("x").input_ids[0] == bos  # tokenizing a rendered text would add another
    found = records()
    for record in (r for split in found.values() for r in split):
        own = tokenizer.apply_chat_template(record.messages, add_generation_prompt=True, return_dict=False)
        assert list(record.ids[: record.n_prompt]) == own
        assert record.ids[0] == bos and list(record.ids).count(bos) == 1

    sequences = {split: sorted(tuple(r.ids) for r in found[split]) for split in SPLITS}
    illuminated, source, folded, *scored = walked
    assert illuminated == source == folded == sorted(sequences["train"] + sequences["val"])
    assert scored and all(s == sequences["test"] for s in scored)
    assert generated and all(ids in [list(r.ids[: r.n_prompt]) for r in found["test"]] for ids in generated)


def test_d10_a_tokenizer_that_adds_a_bos_without_a_template(records, tmp_path):
    tokenizer = make(tmp_path / "model", TURNS, bos=True)
    settings = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(settings))
    for record in (r for split in records().values() for r in split):
        assert record.ids[0] == tokenizer.bos_token_id
        assert list(record.ids).count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("template", [TURNS, OPENED], ids=["plain", "opened by the template"])
def test_d10_reasoning_appears_once_and_the_mask_is_what_loss_on_says(template, records, prune, tmp_path):
    tokenizer = make(tmp_path / "model", template, bos=False)
    found = records(f"teacher.reasoning='{REASON}'")
    for record in (r for split in found.values() for r in split):
        text = tokenizer.decode(record.ids)
        assert [text.count(t) for t in (REASON, "<think>", "</think>")] == [1, 1, 1]
        answer = f"I heard: {record.messages[-1]['content']}"
        reasoned = text[: text.index(answer)].partition("<a>")[2]
        assert re.sub(r"\s+", " ", reasoned).strip() == f"<think> {REASON} </think>"
        assert text.count("<end>") == 2  # the question's and the answer's own

    counted = masks(prune, step(tmp_path / ".prune", "prepare") / "answers")
    assert counted["answer"].strip().startswith("I heard:") and counted["answer"].endswith("<end>")
    assert REASON not in counted["answer"] and "think>" not in counted["answer"]
    assert counted["generated"].count(REASON) == 1 and counted["generated"].endswith("<end>")
    assert "<think>" not in counted["generated"] or template is TURNS
    assert "<u>" not in counted["generated"] and "Spell" in counted["all"]


def masks(prune, answers):
    """What ``check`` shows of one record between the marks, by ``loss_on``."""
    counted = {}
    for loss_on in ("answer", "generated", "all"):
        ended = prune(
            "source=model", f"data={answers}", "ffn=0.75", "plan.align=16", "check=true", f"loss_on={loss_on}"
        )
        assert ended.code == 0, ended.err
        counted[loss_on] = re.search("⟦([^⟧]*)⟧", ended.out.partition("one record")[2].partition(":")[2])[1]
    return counted
