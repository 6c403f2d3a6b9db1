"""Activations that float16 cannot hold: right in the source's own precision, an error or right in float16."""

import json
import math

import pytest
import torch
from product import logits, plain, step, tensors
from safetensors.torch import load_file

from prune.tiny import save_tiny, tiny_model

HOT = 2.0**21  #: a power of two: what up_proj gains, down_proj loses without rounding


@pytest.fixture
def hot(tmp_path):
    """A bfloat16 llama with a down_proj input near 1e5 in layer 1."""
    model = tiny_model()
    with torch.no_grad():
        mlp = model.model.layers[1].mlp
        mlp.up_proj.weight *= HOT
        mlp.down_proj.weight /= HOT
    folder = save_tiny(model, tmp_path / "model", "bfloat16")
    top = []
    check = plain(folder).float()
    check.model.layers[1].mlp.down_proj.register_forward_pre_hook(lambda _, a: top.append(a[0].abs().max()))
    logits(check)
    assert 65504 < max(top) < 1e6
    return folder


def final_nll(out):
    report = json.loads((out / "report.json").read_text())
    return {c["role"]: c["nll"] for c in report["candidates"]}["final"]


def test_d05_the_default_is_finite_and_right(squeeze, hot, tmp_path):
    out = squeeze(hot, "ffn=0.75", "codec=none")
    grams = [load_file(p) for p in sorted(step(tmp_path / ".prune", "illuminate").rglob("*.safetensors"))]
    for named in [tensors(out), *grams]:
        assert all(t.isfinite().all() for t in named.values())
    assert grams[1]["train"].max() > 1e6  # the large activations were seen, not clipped
    nll = final_nll(out)
    squeeze(hot, "ffn=0.75", "codec=none", "dtype=float32", "cache=exact", "overwrite=true")
    assert nll == pytest.approx(final_nll(out), rel=0.01)
    squeeze(hot, "ffn=0.75", "codec=none", "dtype=bfloat16", "cache=coarse", "overwrite=true")
    assert nll == pytest.approx(final_nll(out), rel=0.01)


def test_d05_float16_is_an_error_with_layer_and_stage(prune, hot, answers, tmp_path):
    ended = prune(f"source={hot}", f"data={answers}", "ffn=0.75", "output=out", "dtype=float16")
    assert ended.code == 3
    line = ended.err.splitlines()[-1]
    assert "illuminate" in line and "layer 1" in line and "float16" in line
    assert not (tmp_path / "out").exists()
    assert "dtype=float32" in line or "dtype=auto" in line


def test_d05_the_advice_works(squeeze, hot):
    assert math.isfinite(final_nll(squeeze(hot, "ffn=0.75", "dtype=float32")))


def test_d05_a_weight_beyond_float16_is_never_written_as_infinity(prune, model, answers, tmp_path):
    from safetensors.torch import save_file

    stored = tensors(model)
    stored["model.layers.0.mlp.up_proj.weight"][3, 5] = 1e5
    save_file(stored, model / "model.safetensors", {"format": "pt"})
    ended = prune("source=model", f"data={answers}", "ffn=1.0", "output=out", "codec=f16", "eval.prompts=0")
    line = ended.err.splitlines()[-1]
    assert ended.code == 3 and "up_proj" in line and "codec=" in line
    assert not (tmp_path / "out").exists()


def test_d05_a_source_that_is_not_finite_is_no_basis(prune, model, answers, tmp_path):
    from safetensors.torch import save_file

    stored = tensors(model)
    stored["model.layers.1.mlp.up_proj.weight"][0, 0] = math.nan
    save_file(stored, model / "model.safetensors", {"format": "pt"})
    ended = prune("source=model", f"data={answers}", "ffn=0.75", "output=out", "eval.prompts=0")
    assert ended.code == 3 and "layer 1" in ended.err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_d05_a_metric_that_is_no_number_fails_its_gate():
    from prune.gates import GateOptions, judge, passed

    one = {"records": 3, "tokens": 9, "generation": None}
    report = {
        "candidates": [{"role": "source", "nll": 1.0, **one}, {"role": "final", "nll": math.nan, **one}],
        "target": {"asked": ""},
    }
    results = {r.gate: r.passed for r in judge(report, vars(GateOptions()))}
    assert results["nll_ratio"] is False and results["nll_rise"] is False and results["finite"] is False
    assert not passed(judge(report, vars(GateOptions())))
