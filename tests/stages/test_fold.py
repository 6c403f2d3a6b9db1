"""fold on a tiny model: what is written, what is chosen, and that the output means it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from stage_jobs import UNIFORM, answers, fold, illuminate, plan
from transformers import AutoModelForCausalLM

from prune.errors import StageError
from prune.nn.gram import gram_facts, gram_file
from prune.nn.model import LazyModel, load
from prune.nn.refit import best_refit, bias_shift, own_output
from prune.tiny import WIDTH, plant, save_tiny, tiny, tiny_model

torch.set_num_threads(1)
RIDGES = [0.003, 0.01, 0.03, 0.1]


@pytest.fixture(scope="module", params=["llama", "phi3", "gpt2"])
def planned(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("f")
    source = tiny(folder / "m", request.param)
    grams, _ = illuminate(source, answers(folder / "a", train=(200,) * 5, val=(200, 90)), folder / "i")
    return source, grams, plan(source, grams, folder / "p", ffn=0.73)[0]


@pytest.mark.parametrize("mode", ["auto", "on", "off"])
def test_every_read_out_is_the_refit_of_its_gram(tmp_path, planned, mode):
    source, grams, _ = planned
    weights, rows = fold(*planned, tmp_path, refit=mode)
    assert rows == json.loads((tmp_path / "folding").read_text())["layers"]
    keep = load_file(planned[2] / "keep.safetensors")
    before, after = LazyModel(source), LazyModel(weights)
    for site, row in zip(before.sites, rows, strict=True):
        gram, s = load_file(gram_file(grams, site.layer)), keep[str(site.layer)]
        turn = (lambda t: t.T) if site.transposed else (lambda t: t)
        weight = turn(before.tensor(f"{site.read_out}.weight"))
        solve, judge = (own_output(gram[part], weight.double(), s) for part in ("train", "val"))
        best, plain = best_refit(solve, judge, gram_facts(grams)["energy_val"][site.layer], RIDGES, mode)
        want = weight[:, s].double() + (0 if best.correction is None else best.correction)
        assert torch.equal(turn(after.tensor(f"{site.read_out}.weight")), want.float())
        assert row["choice"] == ("plain" if best.ridge is None else f"ridge {best.ridge:g}")
        assert (row["error"], row["error_plain"], row["damping"]) == (best.error, plain, best.damping)
        assert mode != "auto" or row["error"] <= row["error_plain"]
        if site.biased:
            shift = bias_shift(weight, gram["mean"], s, best.correction) * (mode != "off")
            name = f"{site.read_out}.bias"
            assert torch.allclose(after.tensor(name).double(), before.tensor(name) + shift, atol=1e-6)


def test_everything_else_is_copied_to_the_bit(tmp_path, planned):
    source = planned[0]
    weights, _ = fold(*planned, tmp_path)
    before, after = load_file(source / "model.safetensors"), load_file(weights / "model.safetensors")
    assert before.keys() == after.keys()
    outside = [n for n in before if "mlp" not in n]
    assert outside and all(torch.equal(before[n], after[n]) for n in outside)
    for path in source.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            assert (weights / path.name).read_bytes() == path.read_bytes()


def test_the_output_is_a_plain_model_of_its_width(tmp_path, planned):
    weights, _ = fold(*planned, tmp_path)
    model, info = AutoModelForCausalLM.from_pretrained(
        weights, trust_remote_code=False, output_loading_info=True
    )
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.arange(1, 30).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(model.eval()(input_ids=ids).logits, load(weights)(input_ids=ids).logits)
    assert {s.width for s in LazyModel(weights).sites} == {128}


def test_the_refit_brings_the_logits_nearer(tmp_path, planned):
    ids = torch.tensor([list(range(1, 200))])
    with torch.no_grad():
        want = load(planned[0])(input_ids=ids).logits
        far = [
            float((load(fold(*planned, tmp_path / m, refit=m)[0])(input_ids=ids).logits - want).norm())
            for m in ("off", "on")
        ]
    assert far[1] < 0.95 * far[0]


@pytest.mark.parametrize("mode", ["exact", "padded"])
def test_widths_that_differ_mean_the_same_saved_either_way(tmp_path, planned, mode):
    source, grams, _ = planned
    options = {"ffn": 0.69, "widths": mode, "allocator": UNIFORM | {"spread": True}}
    chosen, _ = plan(source, grams, tmp_path / "p", **options)
    one = load(fold(source, grams, chosen, tmp_path / "f", mode)[0])
    other = load(fold(source, grams, chosen, tmp_path / "g", "exact")[0])
    ids = torch.arange(1, 60).unsqueeze(0)
    with torch.no_grad():
        assert (one(input_ids=ids).logits - other(input_ids=ids).logits).abs().max() < 1e-5
    widths = json.loads((tmp_path / "f" / "weights" / "config.json").read_text()).get("ffn_widths")
    assert (sorted(widths) if widths else None) == ([112, 128] if mode == "exact" else None)


@pytest.mark.parametrize("living", [100, 150])
def test_few_tokens_and_dead_neurons_fold_to_finite_weights(tmp_path, living):
    """A singular Gram: fewer tokens than neurons, and neurons that never fire; 128 stay."""
    model = tiny_model(mlp_bias=True)
    alive = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(2))[:living].sort().values
    plant(model, alive.tolist())
    source = save_tiny(model, tmp_path / "m")
    grams, _ = illuminate(source, answers(tmp_path / "a", train=(20,), val=(9,)), tmp_path / "i")
    chosen, _ = plan(source, grams, tmp_path / "p", ffn=0.73)
    weights, rows = fold(source, grams, chosen, tmp_path / "f", refit="on", ridge=[0.0])
    assert all(torch.isfinite(t).all() for t in load_file(weights / "model.safetensors").values())
    if living > 128:
        assert all(row["damping"] > 0 and row["choice"] == "ridge 0" for row in rows)
        return
    assert all(row["choice"] == "plain" for row in rows), "only dead neurons were dropped"
    ids = torch.arange(1, 60).unsqueeze(0)
    with torch.no_grad():
        assert (load(weights)(input_ids=ids).logits - load(source)(input_ids=ids).logits).abs().max() < 1e-4


def test_a_weight_that_its_dtype_cannot_hold_is_an_error_by_name(tmp_path):
    source = tiny(tmp_path / "m", dtype="float16")
    grams, _ = illuminate(source, answers(tmp_path / "a"), tmp_path / "i")
    chosen, _ = plan(source, grams, tmp_path / "p", ffn=0.73)
    file = gram_file(grams, 1)
    found = load_file(file)
    huge = torch.full((WIDTH, WIDTH), 1e9).fill_diagonal_(1)
    keep = load_file(chosen / "keep.safetensors")["1"]
    huge[keep.unsqueeze(1), keep] = torch.eye(len(keep))
    save_file(found | {"train": huge, "val": torch.eye(WIDTH)}, file)
    with pytest.raises(StageError, match=r"layer 1: .*float16"):
        fold(source, grams, chosen, tmp_path / "f", refit="on")
