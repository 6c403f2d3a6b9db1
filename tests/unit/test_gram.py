"""Gram matrices of the walk against float64 sums over plain, unpadded forward passes."""

import pytest
import torch

from prune.errors import StageError
from prune.nn.gram import BLOCK, Gram, layer_grams
from prune.nn.layout import LAYOUTS
from prune.nn.model import LazyModel, load
from prune.nn.walk import Stream
from prune.nn.windows import batches, cut
from prune.tiny import FAMILIES, tiny

torch.set_num_threads(1)
LENGTHS = (1, 7, 30, 30, 75)  # the last is longer than a window
WINDOW = 32
DENSE = [f for f in FAMILIES if not LAYOUTS[f].mixture]  # test_experts.py has the others


def records(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, 257, (n,), generator=generator).tolist() for n in LENGTHS]


def reference(folder, windows):
    """Per layer, Σ and mean of a in float64: one unpadded window at a time, its counted tokens alone."""
    model = load(folder, torch.float32)
    sites = LazyModel(folder).sites
    seen = {s.layer: [] for s in sites}
    for site in sites:
        keep = lambda _, args, found=seen[site.layer]: found.append(args[0].flatten(0, -2))  # noqa: E731
        model.get_submodule(site.read_out).register_forward_pre_hook(keep)
    with torch.no_grad():
        for window in windows:
            model(input_ids=torch.tensor([window.ids]))
    starts = [w.start for w in windows]
    found = []
    for layer in sorted(seen):
        a = torch.cat([x[s:] for x, s in zip(seen[layer], starts, strict=True)]).double()
        found.append((a.T @ a / len(a), a.mean(0), len(a)))
    return found


@pytest.mark.parametrize("family", DENSE)
def test_the_walk_counts_every_token_once_and_padding_never(tmp_path, family):
    folder = tiny(tmp_path / "m", family)
    windows = [w for i, ids in enumerate(records()) for w in cut(i, ids, WINDOW)]
    grouped = batches(windows, 70)
    assert any(not b.counted.all() for b in grouped) and len(grouped) > 2
    stream = Stream(LazyModel(folder), grouped, 1 << 30, tmp_path)
    want = reference(folder, windows)
    for layer, _ in stream.layers():
        ((site, gram),) = layer_grams(stream, layer, range(len(grouped)))
        sigma, mean = gram.finish()
        assert gram.tokens == want[layer][2] == sum(LENGTHS)
        weight = stream.model.tensor(f"{site.read_out}.weight").double()
        weight = weight.T if site.transposed else weight
        assert gram.energy == pytest.approx(float((weight @ want[layer][0] * weight).sum()), rel=1e-4)
        scale = want[layer][0].abs().max()
        assert (sigma.double() - want[layer][0]).abs().max() < 1e-5 * scale
        assert (mean.double() - want[layer][1]).abs().max() < 1e-5 * want[layer][1].abs().max()


@pytest.mark.parametrize("width", [1, 5, BLOCK, BLOCK + 1, 2 * BLOCK + 37])
def test_blocks_add_up_to_a_symmetric_whole(width):
    generator = torch.Generator().manual_seed(width)
    parts = [torch.randn(n, width, generator=generator).bfloat16() for n in (3, 1, 20)]
    gram = Gram(width, torch.device("cpu"))
    for part in parts:
        gram.add(part, part[:, :1])
    sigma, mean = gram.finish()
    a = torch.cat(parts).double()
    assert sigma.dtype == mean.dtype == torch.float32 and torch.equal(sigma, sigma.T)
    assert torch.allclose(sigma.double(), a.T @ a / 24, rtol=1e-5, atol=1e-5)
    assert torch.allclose(mean.double(), a.mean(0), rtol=1e-5, atol=1e-6)


def test_large_activations_stay_exact_over_many_sums():
    """Float32 sums would lose a one beside 1e8."""
    gram = Gram(2, torch.device("cpu"))
    gram.add(torch.tensor([[1e4, 0.0]]), torch.zeros(1, 1))
    for _ in range(64):
        gram.add(torch.tensor([[1.0, 1.0]]), torch.zeros(1, 1))
    sigma, _ = gram.finish()
    assert sigma[0, 0] == pytest.approx((1e8 + 64) / 65, rel=1e-7) and sigma[1, 1] == pytest.approx(64 / 65)


def test_no_token_is_a_zero_gram():
    sigma, mean = Gram(3, torch.device("cpu")).finish()
    assert not sigma.any() and not mean.any()


def test_an_activation_beyond_float16_names_the_layer(tmp_path):
    from prune.tiny import save_tiny, tiny_model

    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight *= 3e6
    folder = save_tiny(model, tmp_path / "m")
    stream = Stream(
        LazyModel(folder, torch.float16), batches(cut(0, records()[2], WINDOW), 64), 1 << 30, tmp_path
    )
    with pytest.raises(StageError, match=r"layer 1 .*float16.*dtype=float32"):
        for layer, _ in stream.layers():
            layer_grams(stream, layer, [0])
