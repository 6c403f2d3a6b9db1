"""Widths that fit the codec's groups are settled in the plan, before anything is asked or written."""

import json
import re

import pytest
from product import plain, tensors, tree

from prune.tiny import WIDTH

NUMBER = r"([\d,]+)"


def numbers(pattern, text):
    """The first match's groups as integers."""
    return [int(n.replace(",", "")) for n in re.search(pattern, text).groups()]


@pytest.fixture
def planned(prune, tmp_path):
    """What ``plan_only`` prints: kept neurons, step, widths, parameters, bytes, notes. It leaves nothing."""

    def run(*argv):
        before = tree(tmp_path)
        ended = prune("plan_only=true", *argv)
        assert ended.code == 0 and tree(tmp_path) == before, ended.err
        kept, whole = numbers(rf"keeps {NUMBER} of {NUMBER} FFN neurons", ended.out)
        (step,) = numbers(rf"multiples of {NUMBER}", ended.out)
        (width,) = numbers(rf"widths: 2 x {NUMBER}", ended.out)
        parameters, size = numbers(rf"output: {NUMBER} parameters, {NUMBER} bytes", ended.out)
        share = float(re.search(r"FFN neurons \(([\d.]+)%\)", ended.out)[1]) / 100
        notes = re.findall(r"^codec: (.*)$", ended.out, re.M)
        assert whole == 2 * WIDTH and kept == 2 * width and share == pytest.approx(kept / whole, abs=5e-4)
        return {"step": step, "width": width, "params": parameters, "bytes": size, "notes": notes}

    return run


@pytest.mark.parametrize(
    ("group", "align", "ffn", "width"),
    [
        (32, 16, 0.75, 128),
        (32, 16, 0.92, 160),
        (64, 16, 0.75, 128),
        (128, 16, 0.75, 128),
        (32, 128, 0.92, 128),
        (32, 16, 1.0, WIDTH),
        (128, 128, 1.0, WIDTH),
    ],
)
def test_d03_the_plan_says_what_is_written(group, align, ffn, width, planned, squeeze, model):
    options = [f"ffn={ffn}", "codec=q8", f"codec.group={group}", f"plan.align={align}"]
    plan = planned(f"source={model}", *options)
    out = squeeze(model, *options)

    assert plan["width"] == width and (width % plan["step"] == 0 or width == WIDTH)
    report = json.loads((out / "report.json").read_text())
    assert [row["kept"] for row in report["plan"]["layers"]] == [width, width]
    assert report["target"]["neurons_after"] == 2 * width
    assert json.loads((out / "config.json").read_text())["intermediate_size"] == width
    final = next(c for c in report["candidates"] if c["role"] == "final")
    assert final["params"] == report["target"]["params_after"] == plan["params"]
    assert sum(t.nbytes for t in tensors(out).values()) == plan["bytes"]
    assert report["codec"]["notes"] == plan["notes"]
    assert any(str(WIDTH) in note for note in plan["notes"]) is (width == WIDTH)
    assert plain(out).config.intermediate_size == width


def test_d03_a_format_that_cannot_hold_a_matrix_is_refused_in_the_plan(refused, taught, tmp_path):
    from prune.tiny import tiny

    tiny(tmp_path / "model", "gpt2")
    line = refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75", "codec=q8")
    assert "transformer.h.0." in line


@pytest.mark.parametrize("options", ["codec.group=7", "plan.align=0", "codec.group=0"])
def test_d03_an_impossible_group_or_alignment_is_refused(options, refused, model, taught):
    data = f"data={taught / 't.jsonl'}"
    line = refused("source=model", data, "output=out", "ffn=0.75", "codec=q8", options)
    assert options.split("=")[0] in line
