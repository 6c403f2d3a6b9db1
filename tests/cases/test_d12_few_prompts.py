"""Too few prompts are refused before the teacher is asked; the least number works and says how weak it is."""

import json

import pytest

from prune.tiny_task import write_prompts

MINIMUM = 3


@pytest.mark.parametrize("count", range(MINIMUM))
def test_d12_too_few_are_refused_before_the_teacher_is_asked(count, refused, scripted, model, tmp_path):
    write_prompts(tmp_path / "t.jsonl", count)
    line = refused("source=model", "data=t.jsonl", "output=out", "ffn=0.75", "teacher=scripted")
    assert f"need at least {MINIMUM} prompts (train/val/test), got {count}" in line
    assert scripted.asked == []


@pytest.mark.parametrize("count", [MINIMUM, 5])
def test_d12_few_are_enough_and_called_weak(count, squeeze, scripted, model, tmp_path):
    write_prompts(tmp_path / "t.jsonl", count)
    out = squeeze(model, "data=t.jsonl", "ffn=0.75", "teacher=scripted")
    report = json.loads((out / "report.json").read_text())
    records = report["data"]["records"]
    assert sum(records.values()) == count and min(records.values()) >= 1
    assert any("weak evidence" in w for w in report["data"]["warnings"])
    assert "weak evidence" in (out / "report.md").read_text().lower()
    delta = next(c for c in report["candidates"] if c["role"] == "final")["delta"]
    assert records["test"] > 1 or delta["low"] is None  # one prompt has no interval


def test_d12_equal_prompts_count_once(refused, scripted, model, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"prompt": "the same"}\n' * 40)
    line = refused("source=model", "data=t.jsonl", "output=out", "ffn=0.75", "teacher=scripted")
    assert "got 1" in line


def test_d12_splits_given_in_the_file_must_leave_no_split_empty(refused, scripted, model, tmp_path):
    lines = [json.dumps({"prompt": f"number {i}", "split": "train"}) for i in range(9)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    line = refused("source=model", "data=t.jsonl", "output=out", "ffn=0.75", "teacher=scripted")
    assert "no prompt is left for" in line and scripted.asked == []


def verdicts(**scored):
    """What each gate says of two candidates that were measured so."""
    from prune.gates import GateOptions, judge, passed

    roles = [{"role": role, "nll": 0.1, **scored} for role in ("source", "final")]
    results = judge({"candidates": roles, "target": {"asked": ""}}, vars(GateOptions()))
    assert not passed(results)
    return {r.gate: r.passed for r in results}


def test_d12_a_gate_computed_on_no_record_fails():
    found = verdicts(records=0, tokens=0, generation=None)
    assert found["nll_ratio"] is False and found["nll_rise"] is False


def test_d12_a_gate_computed_on_no_answer_fails():
    found = verdicts(records=3, tokens=9, generation={"prompts": 0, "loops": 0, "stop_rate": 1.0})
    assert {found[g] for g in ("loops", "stop_rate", "length_low", "length_high")} == {False}
