"""At full width no peer changes a logit; below it each has the parameters it was asked for.

pytest -o addopts= tests/bench/test_peers.py
"""

import pytest
import torch
from peers import PEERS
from peers.slicegpt import rotate_and_slice

from prune.nn.windows import Text, batched
from prune.tiny import HIDDEN, WIDTH, tiny_model

LAYERS = 2
FFN = [name for name in PEERS if not name.startswith("slicegpt")]


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(1, 257, (n,), generator=generator).tolist() for n in (40, 33, 25, 60)]
    return batched([Text(row, 1, len(row)) for row in rows], 64, 128)


@pytest.fixture(params=["llama", "qwen2"])
def model(request):
    model = tiny_model(request.param, tie_word_embeddings=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 2)
    return model


def logits(model, batches):
    with torch.no_grad():
        return torch.cat([model(input_ids=b.ids).logits[b.counted] for b in batches])


def skip_absent(name):
    if name == "torch-pruning":
        pytest.importorskip("torch_pruning")


@pytest.mark.parametrize("name", FFN)
def test_full_width_changes_nothing(name, model, batches):
    skip_absent(name)
    before = logits(model, batches)
    PEERS[name](model, batches, WIDTH)
    torch.testing.assert_close(logits(model, batches), before, atol=1e-3, rtol=0)


def test_a_rotation_without_slicing_changes_nothing(model, batches):
    before = logits(model, batches)
    rotate_and_slice(model, batches, HIDDEN)
    torch.testing.assert_close(logits(model, batches), before, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", FFN)
def test_ffns_are_cut_to_the_width(name, model, batches):
    skip_absent(name)
    before = model.num_parameters()
    PEERS[name](model, batches, 80)
    biases = 2 * LAYERS * (WIDTH - 80) if model.model.layers[0].mlp.up_proj.bias is not None else 0
    added = LAYERS * HIDDEN if name == "flap" else 0
    assert before - model.num_parameters() == 3 * LAYERS * HIDDEN * (WIDTH - 80) + biases - added
    assert logits(model, batches).isfinite().all()


def test_slicegpt_stays_within_the_parameters_of_the_cut_model(model, batches):
    allowed = model.num_parameters() - 3 * LAYERS * HIDDEN * (WIDTH - 80)
    PEERS["slicegpt"](model, batches, 80)
    hidden = model.model.embed_tokens.weight.shape[1]
    assert allowed * (1 - 2 / hidden) - 200 < model.num_parameters() <= allowed
    assert logits(model, batches).isfinite().all()


def test_torch_pruning_keeps_the_groups_of_largest_norm(model, batches):
    skip_absent("torch-pruning")
    kept = []
    for layer in model.model.layers:
        mlp = layer.mlp
        squares = sum(
            w.square().sum(1) for w in (mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight.T)
        )
        kept.append(mlp.down_proj.weight[:, squares.topk(80).indices.sort().values].clone())
    PEERS["torch-pruning"](model, batches, 80)
    for layer, expected in zip(model.model.layers, kept, strict=True):
        assert torch.equal(layer.mlp.down_proj.weight, expected)
