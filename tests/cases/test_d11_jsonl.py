"""JSON Lines as people really write them."""

import json

import pytest
from product import step

PROMPTS = [f"Spell {n}, größer als {n - 1}." for n in range(12)]
PLAIN = "".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS).encode()
SPELLINGS = {
    "plain": PLAIN,
    "byte-order mark": b"\xef\xbb\xbf" + PLAIN,
    "CRLF": PLAIN.replace(b"\n", b"\r\n"),
    "blank lines": b"\n \n" + PLAIN.replace(b"\n", b"\n\n  \n") + b"\n",
    "no last newline": PLAIN.removesuffix(b"\n"),
    "not escaped": "".join(json.dumps({"prompt": p}, ensure_ascii=False) + "\n" for p in PROMPTS).encode(),
}


@pytest.fixture
def records(prune, scripted, model, tmp_path):
    """The records that a file of prompts becomes, {split: [record]}, and the set's manifest."""

    def run(name, content):
        (tmp_path / f"{name}.jsonl").write_bytes(content)
        asked = ("source=model", f"data={name}.jsonl", "ffn=0.75", "teacher=scripted", "until=prepare")
        ended = prune(*asked, f"cache={name}")
        assert ended.code == 0, ended.err
        folder = step(tmp_path / name, "prepare") / "answers"
        lines = {p.stem: p.read_text().splitlines() for p in (folder / "records").iterdir()}
        found = {split: [json.loads(line) for line in lines[split]] for split in lines}
        return found, json.loads((folder / "manifest.json").read_text())

    return run


def test_d11_every_spelling_is_the_same_prompts(records):
    first, manifest = records("plain", SPELLINGS["plain"])
    assert sum(map(len, first.values())) == manifest["counts"]["prompts"] == manifest["counts"]["lines"] == 12
    for name, content in SPELLINGS.items():
        found, manifest = records(name.replace(" ", "-"), content)
        assert found == first, name  # ids, order and splits
        assert manifest["counts"]["prompts"] == 12


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_d11_schemas_that_mean_the_same_render_the_same(records):
    spelled = {
        "prompt": lambda p: {"prompt": p},
        "messages": lambda p: {"messages": [{"role": "user", "content": p}]},
        "instruction": lambda p: {"instruction": p},
        "input": lambda p: {"instruction": p, "input": ""},
    }
    found = {name: records(name, lines(*map(row, PROMPTS)))[0] for name, row in spelled.items()}
    assert all(f == found["prompt"] for f in found.values())
    split, _ = records("more", lines(*({"instruction": p, "input": "Be brief."} for p in PROMPTS)))
    assert {r["messages"][0]["content"] for rows in split.values() for r in rows} == {
        f"{p}\n\nBe brief." for p in PROMPTS
    }


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ({"question": "what?"}, "2: no prompt field (found: question)"),
        ({"prompt": "  "}, "2: empty prompt"),
        ({"messages": []}, "2: messages have no user turn"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "2: messages have no user turn"),
        ({"prompt": 3}, "2: prompt must be text"),
        ({"prompt": "a", "messages": []}, "2: both prompt and messages"),
        (["prompt"], "2: expected a JSON object"),
    ],
)
def test_d11_a_line_that_holds_no_prompt_is_refused_with_its_number(
    row, where, refused, scripted, model, tmp_path
):
    good = [{"prompt": p} for p in PROMPTS]
    (tmp_path / "mine.jsonl").write_bytes(lines(good[0], row, *good[1:]))
    line = refused("source=model", "data=mine.jsonl", "output=out", "ffn=0.75", "teacher=scripted")
    assert f"mine.jsonl:{where}" in line and scripted.asked == []


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b'{"prompt": "torn', b"\xff\xfe", b"[]", b"prompt\nhello\n"]
)
def test_d11_a_file_that_is_no_jsonl_is_refused(content, refused, scripted, model, tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(content)
    refused("source=model", "data=mine.jsonl", "output=out", "ffn=0.75", "teacher=scripted")


def test_d11_what_is_left_out_is_counted_in_the_report(squeeze, scripted, model, tmp_path):
    """Answers at the end of ``messages`` are dropped, equal prompts are one, unknown fields are ignored."""
    turns = lambda p: [{"role": "user", "content": p}, {"role": "assistant", "content": "old answer"}]  # noqa: E731
    rows = [{"messages": turns(p), "label": 3} for p in PROMPTS]
    (tmp_path / "mine.jsonl").write_bytes(lines(*rows, rows[0]))
    out = squeeze(model, "data=mine.jsonl", "ffn=0.75", "teacher=scripted")
    counts = json.loads((out / "report.json").read_text())["data"]["counts"]
    assert counts["assistant_turns_dropped"] == 13
    assert counts["duplicates"] == 1 and counts["ignored_field.label"] == 13
    assert scripted.asked and "old answer" not in " ".join(scripted.asked)
    text = (out / "report.md").read_text()
    assert "13 assistant turns" in text and "1 duplicate" in text and "13 unknown fields 'label'" in text
