"""Finalized sets and the answer log: what is written is what is read, and damage is named."""

import json
import multiprocessing
import time

import pytest

from prune.data import records
from prune.data.answers import AnswerLog
from prune.data.finalize import refuse_waste
from prune.data.records import Record, Rejected
from prune.errors import TeacherError, UsageError
from prune.parts import Answer


def record(i, split="train", **more):
    fields = {
        "rid": f"r{i}",
        "prompt_id": f"p{i}",
        "sample": 0,
        "split": split,
        "category": None,
        "messages": [{"role": "user", "content": "ü\u2028"}],
        "ids": [1, 2, 3, 4, 5, 6],
        "n_prompt": 2,
        "n_think": 1,
        "n_answer": 3,
        "finish": "stop",
        "meta": {"answer": "x"},
    }
    return Record(**(fields | more))


def rejected(i, reason="truncated"):
    return Rejected(f"x{i}", f"q{i}", 0, "train", reason, "…")


THREE = [record(0), record(1, "val"), record(2, "test")]


def make(folder, rows=THREE):
    return records.write(folder, rows, [rejected(0)], {"tokenizer": "a" * 64, "warnings": []})


def test_what_is_written_is_read_and_valid(tmp_path):
    manifest = make(tmp_path)
    assert records.is_finalized(tmp_path) and not records.is_finalized(tmp_path / "records")
    assert records.read(tmp_path, "val") == [THREE[1]]
    assert (
        records.validate(tmp_path, "a" * 64)
        == json.loads((tmp_path / "manifest.json").read_text())
        == manifest
    )
    assert manifest["splits"]["test"] == {
        "records": 1,
        "prompts": 1,
        "prompt_tokens": 2,
        "think_tokens": 1,
        "answer_tokens": 3,
    }
    again = tmp_path / "again"
    make(again)
    for name in manifest["sha256"]:
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_span_that_a_loss_counts():
    assert record(0).span("answer") == (3, 6)
    assert record(0).span("generated") == (2, 6)
    assert record(0).span("all") == (1, 6)


@pytest.mark.parametrize(
    "name", ["records/train.jsonl", "records/val.jsonl", "records/test.jsonl", "rejected.jsonl"]
)
@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_damage_is_named(tmp_path, name, damage):
    make(tmp_path)
    if damage == "gone":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes().replace(b'"', b"'", 1))
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        records.validate(tmp_path)


def test_another_tokenizer_is_refused_with_both_hashes(tmp_path):
    make(tmp_path)
    with pytest.raises(UsageError, match=r"a{16}.*b{16}"):
        records.validate(tmp_path, "b" * 64)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "prune teacher data", "version": 2}', "{"])
def test_a_foreign_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UsageError, match=r"manifest\.json"):
        records.validate(tmp_path)


def test_a_prompt_in_two_splits_is_refused(tmp_path):
    make(tmp_path, [*THREE, record(3, "test", prompt_id="p0")])
    with pytest.raises(UsageError, match="too"):
        records.validate(tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        [record(0), record(1, "val")],
        [*THREE, record(3, n_answer=9)],
        [*THREE, record(4, n_prompt=0, n_think=3)],
    ],
    ids=["no test", "counts", "no prompt"],
)
def test_an_inconsistent_set_is_refused(tmp_path, rows):
    make(tmp_path, rows)
    with pytest.raises(UsageError):
        records.validate(tmp_path)


def test_too_many_rejects_are_an_error_with_counts_and_hint():
    refuse_waste(THREE, [rejected(i) for i in range(3)])
    with pytest.raises(TeacherError, match=r"4 of 7 .*empty 1.*teacher\.max_tokens") as error:
        refuse_waste(THREE, [*[rejected(i) for i in range(3)], rejected(3, "empty")])
    assert "truncated 3" in str(error.value)
    with pytest.raises(TeacherError, match="split test"):
        refuse_waste(THREE[:2], [])


def answer(i, text="x ü"):
    return Answer(f"r{i}", [i, 2], text, "stop", {"k": 1})


def test_the_log_gives_back_what_was_appended(tmp_path):
    path = tmp_path / "deep" / "log.jsonl"
    with AnswerLog(path) as log:
        log.append(answer(0), answer(1))
        log.append(answer(2))
    with AnswerLog(path) as log:
        assert log.answers == {f"r{i}": answer(i) for i in range(3)} and log.damaged == 0


def test_d16_every_torn_tail_is_dropped_and_asked_again(tmp_path):
    path = tmp_path / "log.jsonl"
    with AnswerLog(path) as log:
        log.append(answer(0), answer(1))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        with AnswerLog(path) as log:
            assert list(log.answers) == ["r0"] and log.damaged == 0
            assert path.read_bytes() == whole[:first]
            log.append(answer(1))
        assert path.read_bytes() == whole


def test_a_damaged_line_is_counted_and_costs_only_itself(tmp_path):
    path = tmp_path / "log.jsonl"
    with AnswerLog(path) as log:
        log.append(*(answer(i) for i in range(3)))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"x", b"y") + b"\xff\n" + lines[2])
    with AnswerLog(path) as log:
        assert list(log.answers) == ["r0", "r2"] and log.damaged == 2


def test_the_first_answer_stays(tmp_path):
    path = tmp_path / "log.jsonl"
    with AnswerLog(path) as log:
        log.append(answer(0, "first"))
        log.append(answer(0, "second"))
    with AnswerLog(path) as log:
        assert log.answers["r0"].text == "first"


def hold(path, ready):
    with AnswerLog(path) as log:
        ready.set()
        time.sleep(0.3)
        log.append(answer(7))


def test_a_second_run_waits_and_finds_the_answers_of_the_first(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=hold, args=(tmp_path / "log.jsonl", ready))
    other.start()
    assert ready.wait(10)
    with AnswerLog(tmp_path / "log.jsonl") as log:
        assert "r7" in log.answers
    other.join()
