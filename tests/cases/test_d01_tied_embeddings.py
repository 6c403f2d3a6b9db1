"""Tied embeddings are stored once and stay tied."""

import json

import pytest
import torch
from product import logits, plain, step, tensors
from safetensors.torch import load_file

from prune.nn.model import load
from prune.tiny import tiny

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def cut_by_hand(folder, keep):
    """The source with the same neurons cut in memory."""
    model = plain(folder)
    for i, layer in enumerate(model.model.layers):
        rows, mlp = keep[str(i)], layer.mlp
        for read_in in (mlp.gate_proj, mlp.up_proj):
            read_in.weight = torch.nn.Parameter(read_in.weight[rows])
        mlp.down_proj.weight = torch.nn.Parameter(mlp.down_proj.weight[:, rows])
    return model


@pytest.mark.parametrize("tie", [True, False])
def test_d01_the_head_is_stored_as_the_config_says(tie, squeeze, tmp_path):
    source = tiny(tmp_path / "model", tie_word_embeddings=tie)
    out = squeeze(source, "ffn=0.75", "codec=none", "heal=none", "fold.refit=off")

    names = tensors(out).keys() & {EMBEDDING, HEAD}
    assert names == ({EMBEDDING} if tie else {EMBEDDING, HEAD})
    assert json.loads((out / "config.json").read_text())["tie_word_embeddings"] is tie
    model = plain(out)
    shared = model.get_input_embeddings().weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    assert shared is tie
    keep = load_file(step(tmp_path / ".prune", "plan") / "plan" / "keep.safetensors")
    assert torch.equal(logits(model), logits(cut_by_hand(source, keep)))
    assert torch.equal(logits(model), logits(load(out)))


@pytest.mark.parametrize("codec", ["none", "f16"])
def test_d01_the_file_holds_nothing_twice(codec, squeeze, tmp_path):
    out = squeeze(tiny(tmp_path / "model", tie_word_embeddings=True), "ffn=0.75", f"codec={codec}")
    file = out / "model.safetensors"
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    assert file.stat().st_size == header + sum(t.nbytes for t in tensors(out).values())


def test_d01_a_source_that_stores_a_tied_head_too_gives_one_matrix(squeeze, tmp_path):
    from safetensors.torch import save_file

    source = tiny(tmp_path / "model", tie_word_embeddings=True)
    stored = tensors(source)
    save_file(stored | {HEAD: stored[EMBEDDING].clone()}, source / "model.safetensors", {"format": "pt"})
    out = squeeze(source, "ffn=1.0", "codec=none")
    assert HEAD not in tensors(out)
    assert torch.equal(logits(plain(out)), logits(plain(source)))
