"""Which slices stay, matrix by matrix, against plain indexing of the whole FFN."""

import pytest
import torch

from prune.nn.layout import ReadIn, Site
from prune.nn.narrow import narrowed, padded

F, D = 10, 4
KEEP = torch.tensor([1, 2, 5, 9])


def draw(*shape, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64
    )


def block(layout, biased):
    """A site, its stored tensors, and the block as a function of (tensors, x, width)."""
    modules = {"gated": ("gate", "up"), "fused": ("gate_up",), "plain": ("fc",), "conv1d": ("fc",)}[layout]
    blocks = 2 if layout == "fused" else 1
    transposed = layout == "conv1d"
    site = Site(0, tuple(ReadIn(m, blocks) for m in modules), "down", transposed, F, D, biased)
    stored = {f"{m}.weight": draw(F * blocks, D, seed=i) for i, m in enumerate(modules)} | {
        "down.weight": draw(D, F)
    }
    if transposed:
        stored = {n: t.T.contiguous() for n, t in stored.items()}
    if biased:
        stored |= {f"{m}.bias": draw(F * blocks, seed=i) for i, m in enumerate(modules)} | {
            "down.bias": draw(D)
        }

    def run(tensors, x):
        def matrix(name, v):
            weight = tensors[f"{name}.weight"]
            return v @ (weight if transposed else weight.T) + tensors.get(f"{name}.bias", 0)

        hidden = torch.cat([matrix(m, x) for m in modules], -1)
        if layout in ("gated", "fused"):
            gate, up = hidden.chunk(2, -1)
            hidden = torch.nn.functional.silu(gate) * up
        else:
            hidden = torch.tanh(hidden)
        return hidden, matrix("down", hidden)

    return site, stored, run


EVERY = pytest.mark.parametrize("layout", ["gated", "fused", "plain", "conv1d"])
BIASED = pytest.mark.parametrize("biased", [False, True])


@EVERY
@BIASED
@pytest.mark.parametrize("corrected", [False, True])
def test_the_kept_neurons_do_what_they_did(layout, biased, corrected):
    site, stored, run = block(layout, biased)
    correction = draw(D, len(KEEP), seed=3) if corrected else None
    shift = draw(D, seed=5) if corrected and biased else None
    x = draw(6, D, seed=9)
    hidden, whole = run(stored, x)
    kept, got = run(narrowed(site, stored, KEEP, correction, shift), x)
    assert torch.allclose(kept, hidden[:, KEEP], atol=1e-12)
    read_out = stored["down.weight"].T if site.transposed else stored["down.weight"]
    drop = [j for j in range(F) if j not in KEEP.tolist()]
    want = whole - hidden[:, drop] @ read_out[:, drop].T
    if corrected:
        want = want + hidden[:, KEEP] @ correction.T + (shift if biased else 0)
    assert torch.allclose(got, want, atol=1e-12)


@EVERY
@BIASED
def test_padding_changes_shapes_and_no_output(layout, biased):
    site, stored, run = block(layout, biased)
    small = narrowed(site, stored, KEEP, None, None)
    wide = padded(site, small, 7)
    x = draw(6, D, seed=9)
    assert torch.allclose(run(wide, x)[1], run(small, x)[1], atol=1e-12) and run(wide, x)[0].shape == (6, 7)
    assert wide.keys() == small.keys()
    assert padded(site, small, len(KEEP))["down.weight"].shape == small["down.weight"].shape


def test_dtypes_stay_and_the_correction_is_added_before_rounding():
    site, stored, _ = block("gated", True)
    stored = {n: t.bfloat16() for n, t in stored.items()}
    correction = draw(D, len(KEEP)) * 1e-3
    result = narrowed(site, stored, KEEP, correction, torch.full((D,), 1e-4, dtype=torch.float64))
    assert {t.dtype for t in result.values()} == {torch.bfloat16}
    want = (stored["down.weight"][:, KEEP].double() + correction).bfloat16()
    assert torch.equal(result["down.weight"], want)
    assert torch.equal(result["down.bias"], (stored["down.bias"].double() + 1e-4).bfloat16())


def test_the_source_is_not_written_to():
    site, stored, _ = block("gated", True)
    before = {n: t.clone() for n, t in stored.items()}
    narrowed(site, stored, KEEP, draw(D, len(KEEP)), draw(D))
    assert all(torch.equal(stored[n], before[n]) for n in stored)
