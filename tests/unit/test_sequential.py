"""The sequential fold against a slow twin that runs whole models, and what it promises."""

import pytest
import torch
from safetensors.torch import load_file
from stage_jobs import answers, fold, illuminate, plan

from prune.data.calibration import calibration
from prune.data.records import read
from prune.nn.layout import LAYOUTS
from prune.nn.model import LazyModel, load
from prune.nn.refit import complement
from prune.tiny import FAMILIES, plant, save_tiny, tiny, tiny_model

torch.set_num_threads(1)
RIDGE = 0.1
DENSE = [f for f in FAMILIES if not LAYOUTS[f].mixture]


def trace(model, site, records):
    """Residual stream behind a layer and the read-out's input there, over all tokens, by a plain pass."""
    layer = model.get_submodule(site.read_out.split(".mlp.")[0].removesuffix(".fc2"))
    outs, ins = [], []
    hooks = [
        layer.register_forward_hook(lambda m, a, o: outs.append(o[0] if isinstance(o, tuple) else o)),
        model.get_submodule(site.read_out).register_forward_pre_hook(lambda m, a: ins.append(a[0])),
    ]
    with torch.no_grad():
        for record in records:
            model(input_ids=torch.tensor([record.ids]))
    for hook in hooks:
        hook.remove()
    return tuple(torch.cat([t.flatten(0, -2) for t in seen]).double() for seen in (outs, ins))


def slow_fold(source, data, keeps, norm, scale):
    """Layer by layer on whole models: solve for the read-out, write it in, go on."""
    dense, folded, lazy = load(source), load(source), LazyModel(source)
    train, _ = read(data, "train"), read(data, "val")
    for site in lazy.sites:
        keep = keeps[str(site.layer)]
        readout = folded.get_submodule(site.read_out)
        weight = (readout.weight.T if site.transposed else readout.weight).detach().double()
        x_out, _ = trace(dense, site, train)
        out, a = trace(folded, site, train)
        rest = a[:, complement(keep, site.width)] @ weight[:, complement(keep, site.width)].T
        if not norm:
            rest = rest + (x_out - out) / scale
        kept = a[:, keep]
        gram, cross = kept.T @ kept / len(a), kept.T @ rest / len(a)
        ridge = RIDGE * gram.diagonal().mean()
        correction = torch.linalg.solve(gram + ridge * torch.eye(len(keep)), cross).T
        new = torch.zeros_like(weight)
        new[:, keep] = weight[:, keep] + correction
        readout.weight.data = (new.T if site.transposed else new).float().contiguous()
        if site.biased:
            readout.bias.data += (rest.mean(0) - correction @ kept.mean(0)).float()
    return folded


@pytest.mark.parametrize("family", DENSE)
def test_it_is_the_slow_twin(tmp_path, family):
    source = tiny(tmp_path / "m", family)
    data = answers(tmp_path / "a", train=(200, 150, 90), val=(120, 60))
    grams, _ = illuminate(source, data, tmp_path / "i")
    planned, _ = plan(source, grams, tmp_path / "p", ffn=0.6)
    weights, rows = fold(
        source, grams, planned, tmp_path / "f", data=data, mode="sequential", refit="on", ridge=[RIDGE]
    )
    assert [r["choice"] for r in rows] == [f"ridge {RIDGE:g}"] * 2
    keeps = load_file(planned / "keep.safetensors")
    norm = family in ("gemma2", "gemma3", "gemma3_text", "olmo2")
    scale = 0.3 if family == "granite" else 1.0
    twin, ours = slow_fold(source, data, keeps, norm, scale), load(weights)
    ids = torch.tensor([read(data, "test")[0].ids])
    with torch.no_grad():
        one, two = twin(input_ids=ids).logits, ours(input_ids=ids).logits
    assert torch.allclose(one, two, atol=1e-4)
    assert not list((tmp_path / "f").glob("states-*"))


def test_it_leaves_a_model_whose_dropped_neurons_are_dead_alone(tmp_path):
    model = tiny_model("llama")
    keep = torch.randperm(176, generator=torch.Generator().manual_seed(0))[:128].sort().values
    plant(model, keep.tolist())
    source = save_tiny(model, tmp_path / "m")
    data = answers(tmp_path / "a", train=(200, 150, 90), val=(120, 60))
    grams, _ = illuminate(source, data, tmp_path / "i")
    planned, _ = plan(source, grams, tmp_path / "p", ffn=128 / 176)
    weights, _ = fold(source, grams, planned, tmp_path / "f", data=data, mode="sequential")
    ids = torch.arange(1, 60).unsqueeze(0)
    with torch.no_grad():
        assert torch.allclose(
            load(source)(input_ids=ids).logits, load(weights)(input_ids=ids).logits, atol=1e-5
        )


def test_calibration_takes_what_it_is_asked_for(tmp_path):
    data = answers(tmp_path / "a", train=(100,) * 5, val=(50,) * 5)
    count = lambda groups: sum(len(w.ids) for b in groups for w in b.windows)  # noqa: E731
    for tokens, want in ((0, (500, 250)), (150, (200, 50)), (4, (100, 50))):
        train, val = calibration(data, {"window": 2048, "tokens": tokens}, 176)
        assert (count(train), count(val)) == want
