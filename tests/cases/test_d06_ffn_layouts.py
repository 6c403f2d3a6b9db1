"""Fused halves and biases follow the keep-set: cutting exactly the dead neurons changes no logit."""

import json

import pytest
import torch
from product import logits, plain, tensors

from prune.tiny import FAMILIES, HIDDEN, WIDTH, plant, save_tiny, tiny, tiny_model

KEPT = 128


def planted(folder, family, **config):
    """A model of which ``WIDTH - KEPT`` scattered neurons are dead, other ones in another order each seed."""
    model = tiny_model(family, **config)
    live = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(11))[:KEPT].tolist()
    plant(model, sorted(live))
    return save_tiny(model, folder)


#: Live neurons behind a ReLU may never fire on so few tokens: then they are as dead as the planted ones.
RELU = {"nemotron", "opt"}
#: A shared expert is the last to be narrowed, so that one target leaves no one width.
SHARED = {"qwen2_moe"}


@pytest.mark.parametrize("family", [*(f for f in FAMILIES if f not in RELU | SHARED), "llama with biases"])
def test_d06_exactly_the_dead_neurons_go(family, squeeze, scripted, taught, tmp_path):
    name, _, biased = family.partition(" with ")
    source = planted(tmp_path / "model", name, **({"mlp_bias": True} if biased else {}))
    cut = (f"ffn={KEPT / WIDTH}", "plan.experts=keep", "fold.refit=off", "codec=none", "heal=none")
    out = squeeze(source, *cut, f"data={taught / 't.jsonl'}", "teacher=scripted")
    before, after = logits(plain(source)), logits(plain(out))
    assert (before - after).abs().max() <= 1e-5
    assert before.std() > 1e-3


def test_d06_fused_halves_are_cut_alike(squeeze, tmp_path):
    source = planted(tmp_path / "model", "phi3")
    out = squeeze(source, f"ffn={KEPT / WIDTH}", "fold.refit=off", "codec=none")
    fused = tensors(out)["model.layers.0.mlp.gate_up_proj.weight"]
    assert fused.shape == (2 * KEPT, HIDDEN)
    assert json.loads((out / "config.json").read_text())["intermediate_size"] == KEPT
    whole = tensors(source)["model.layers.0.mlp.gate_up_proj.weight"]
    assert not torch.equal(fused, whole[: 2 * KEPT])


def test_d06_biases_are_cut_and_kept(squeeze, tmp_path):
    source = planted(tmp_path / "model", "llama", mlp_bias=True)
    out = squeeze(source, f"ffn={KEPT / WIDTH}", "fold.refit=off", "codec=none")
    before, after = tensors(source), tensors(out)
    for layer in range(2):
        mlp = f"model.layers.{layer}.mlp."
        assert after[mlp + "gate_proj.bias"].shape == after[mlp + "up_proj.bias"].shape == (KEPT,)
        assert torch.equal(after[mlp + "down_proj.bias"], before[mlp + "down_proj.bias"])
    assert json.loads((out / "config.json").read_text())["mlp_bias"] is True


def test_d06_quantized_biases_stay(squeeze, tmp_path):
    source = planted(tmp_path / "model", "llama", mlp_bias=True)
    out = squeeze(source, f"ffn={KEPT / WIDTH}", "fold.refit=off", "codec=q8")
    assert (logits(plain(source)) - logits(plain(out))).abs().max() < 0.05
    assert "model.layers.0.mlp.up_proj.bias" in tensors(out)


@pytest.mark.parametrize("family", ["olmoe", "deepseek_v3"])
def test_d06_an_unknown_layout_is_refused_by_name(family, refused, taught, tmp_path):
    from transformers import AutoConfig

    folder = tiny(tmp_path / "model")
    AutoConfig.for_model(family).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"architectures": [f"{family}ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    line = refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75")
    assert family in line and "not supported" in line


def test_d06_a_block_of_another_build_is_refused_by_its_module(monkeypatch, refused, taught, model):
    from transformers.models.llama import modeling_llama

    class Odd(modeling_llama.LlamaMLP):
        def __init__(self, config):
            super().__init__(config)
            self.shrink = self.down_proj
            del self.down_proj

    monkeypatch.setattr(modeling_llama, "LlamaMLP", Odd)
    line = refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75")
    assert "model.layers.0.mlp" in line
