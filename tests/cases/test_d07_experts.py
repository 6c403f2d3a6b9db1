"""Mixtures of experts: what was asked is done to the experts too, and the router stays what it was."""

import json

import pytest
import torch
from product import logits, plain, step, tensors

from prune.data.records import read
from prune.nn.model import LazyModel, load
from prune.tiny import tiny

ROUTERS = ("mlp.gate.weight", "block_sparse_moe.gate.weight", "shared_expert_gate.weight")


def ffn_parameters(folder):
    """Of all feed-forward matrices, as wide as they are decoded."""
    model = LazyModel(folder)
    modules = [m for s in model.sites for m in (*(r.module for r in s.read_ins), s.read_out)]
    return sum(model.model.get_parameter(f"{m}.weight").numel() for m in modules)


def whole(names):
    """Parameter names of a folder, a packed parameter's parts as one."""
    return {n.replace("_packed", "") for n in names if not n.endswith(("_scale", "_shape"))}


def picks_by_hand(source, data):
    """Layer -> how often the plain model's router picks each expert, over all tokens of train."""
    model, picked = plain(source), []
    for layer in model.model.layers:
        found = []
        layer.mlp.gate.register_forward_hook(lambda _, __, out, found=found: found.append(out[2]))
        picked.append(found)
    with torch.inference_mode():
        for record in read(data, "train"):
            model(input_ids=torch.tensor([record.ids]))
    return [torch.cat(found).flatten().bincount(minlength=24) for found in picked]


@pytest.mark.parametrize("family", ["qwen2_moe", "qwen3_moe", "mixtral"])
def test_d07_experts_are_cut_and_quantized_as_asked(family, squeeze, tmp_path):
    source = tiny(tmp_path / "model", family)
    out = squeeze(source, "ffn=0.75", "codec=q8", "eval.gates.nll_rise=null")
    assert ffn_parameters(out) == pytest.approx(0.75 * ffn_parameters(source), rel=0.02)
    before, after = tensors(source), tensors(out)
    kept = json.loads((out / "config.json").read_text())
    count = kept.get("num_experts") or kept["num_local_experts"]
    gone = [f".experts.{i}." for i in range(count, 4)]
    assert whole(after) == {n for n in before if not any(part in n for part in gone)} and count == 3
    assert all(f"{n}_packed" in after for n in before if ".experts.0." in n)
    for name in (n for n in before if n.endswith(ROUTERS)):
        rows = [i for i, row in enumerate(before[name]) if (row == after[name]).all(1).any()]
        assert torch.equal(after[name], before[name][rows])
    target = json.loads((out / "report.json").read_text())["target"]
    assert target["share_pruned"] == pytest.approx(1 - target["params_after"] / target["params_before"])
    assert target["share_quantized"] > 0.5 and target["experts_after"] == 6
    assert "3 of 4 experts" in (out / "report.md").read_text()


@pytest.mark.parametrize("family", ["qwen2_moe", "qwen3_moe", "mixtral"])
def test_d07_plain_transformers_reads_quantized_experts(family, squeeze, tmp_path):
    """Its reader takes one group for all matrices of the experts."""
    source = tiny(tmp_path / "model", family)
    out = squeeze(source, "ffn=0.75", "codec=q8", "codec.group=16")
    assert (logits(plain(out)) - logits(load(out))).abs().max() < 1e-4
    assert (logits(plain(source)) - logits(load(source))).abs().max() < 1e-4


def test_d07_what_stays_is_what_the_router_picks(squeeze, answers, tmp_path):
    source = tiny(tmp_path / "model", "qwen3_moe", num_experts=24, moe_intermediate_size=32)
    out = squeeze(source, "ffn=0.75", "codec=none")
    assert ffn_parameters(out) == pytest.approx(0.75 * ffn_parameters(source), rel=0.02)
    before, after = tensors(source), tensors(out)
    grams = json.loads(next(step(tmp_path / ".prune", "illuminate").rglob("grams.json")).read_text())
    for layer, picks in enumerate(picks_by_hand(source, answers)):
        assert grams["routed_train"][24 * layer : 24 * layer + 24] == picks.tolist()
        stay = sorted(sorted(range(24), key=lambda i: (-picks[i], i))[:18])
        router = f"model.layers.{layer}.mlp.gate.weight"
        assert torch.equal(after[router], before[router][stay])
        for new, old in enumerate(stay):
            name = "model.layers.{}.mlp.experts.{}.up_proj.weight"
            assert torch.equal(after[name.format(layer, new)], before[name.format(layer, old)])
    assert logits(plain(out)).isfinite().all()


def test_d07_the_plan_says_so_before_any_work(prune, taught, tmp_path):
    tiny(tmp_path / "model", "qwen2_moe")
    ended = prune("source=model", "ffn=0.75", "plan.align=16", "plan_only=true")
    assert ended.code == 0 and "experts: 6 of 8 stay" in ended.out + ended.err


def test_d07_a_part_that_cannot_is_refused_by_name(refused, taught, tmp_path):
    tiny(tmp_path / "model", "qwen2_moe")
    line = refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75", "selector=dtgma")
    assert "selector=dtgma" in line and "mixture of experts" in line
