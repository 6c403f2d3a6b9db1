"""Few tokens and dead neurons make the Gram matrix singular: damped and said so, dead neurons go first."""

import json

import pytest
import torch
from product import tensors
from safetensors.torch import load_file

from prune.tiny import WIDTH, plant, save_tiny, tiny_model

KEPT = 128
LIVE = sorted(torch.randperm(WIDTH, generator=torch.Generator().manual_seed(4))[:KEPT].tolist())


@pytest.fixture
def planted(tmp_path):
    model = tiny_model()
    plant(model, LIVE)
    return save_tiny(model, tmp_path / "model")


def report(out):
    return json.loads((out / "report.json").read_text())


@pytest.mark.parametrize("selector", ["importance", "greedy", "obs"])
@pytest.mark.parametrize("mode", ["oneshot", "sequential"])
def test_d04_no_dead_neuron_outlives_a_live_one(selector, mode, squeeze, planted, tmp_path):
    few = (
        f"ffn={KEPT / WIDTH}",
        "illuminate.tokens=60",
        "fold.refit=on",
        "fold.ridge=[0]",
        "codec=q8",
        "codec.group=16",
    )
    out = squeeze(planted, *few, f"selector={selector}", f"fold.mode={mode}")
    for tensor in tensors(out).values():
        assert torch.isfinite(tensor.float()).all()
    (step,) = (tmp_path / ".prune").glob("plan-*[0-9a-f]/plan")
    for kept in load_file(step / "keep.safetensors").values():
        assert kept.tolist() == LIVE
    page = (out / "report.md").read_text()
    assert "damping" in page and all(f["damping"] >= 0 for f in report(out)["fold"]["layers"])


def test_d04_damping_grows_until_it_factors_and_is_told(squeeze, planted):
    """One record for 112 kept neurons, no ridge: singular, whatever is kept."""
    few = ("ffn=0.64", "illuminate.tokens=1", "fold.refit=on", "fold.ridge=[0]", "fold.mode=oneshot")
    rows = report(squeeze(planted, *few, "codec=q8", "codec.group=16"))["fold"]["layers"]
    assert all(row["damping"] > 0 for row in rows)


@pytest.mark.parametrize("mode", ["oneshot", "sequential"])
def test_d04_a_refit_errs_no_more_than_none(mode, squeeze, planted):
    few = ("ffn=0.5", "illuminate.tokens=60", f"fold.mode={mode}", "codec=q8", "codec.group=16")
    rows = report(squeeze(planted, *few))["fold"]["layers"]
    assert all(row["error"] <= row["error_plain"] for row in rows)
    assert any(row["error"] < row["error_plain"] for row in rows)
