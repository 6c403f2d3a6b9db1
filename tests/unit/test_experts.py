"""Mixtures of experts: ours against the fused ones, their Grams, which of them leave, what is saved."""

import json
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file
from stage_jobs import answers, fold, illuminate, plan, plan_options
from transformers import AutoModelForCausalLM

from prune.errors import UsageError
from prune.nn.budget import budget_of
from prune.nn.cover import cover_of
from prune.nn.experts import separate
from prune.nn.folder import matrix_names
from prune.nn.folding import cut
from prune.nn.gram import gram_facts, layer_grams
from prune.nn.layout import LAYOUTS, Site
from prune.nn.model import LazyModel, load
from prune.nn.planning import Planner
from prune.nn.skeleton import skeleton
from prune.nn.walk import Stream
from prune.nn.windows import batches
from prune.nn.windows import cut as windows_of
from prune.tiny import WIDTH, plant, save_tiny, tiny, tiny_model

torch.set_num_threads(1)
MIXTURES = [f for f, layout in LAYOUTS.items() if layout.mixture]
EVERY_MIXTURE = pytest.mark.parametrize("family", MIXTURES)
PROMPT = torch.arange(1, 41).unsqueeze(0)
IDLE = 1  #: the expert that :func:`shunned` models never pick


def logits(model):
    with torch.no_grad():
        return model(input_ids=PROMPT).logits


def shunned(family, layers=(0, 1), **config):
    """A model whose routers never pick one expert in some layers: all tokens share a strong feature."""
    model = tiny_model(family, **config)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 3.0
        for layer in layers:
            router = model.model.layers[layer].mlp.gate.weight
            router[IDLE] = 0
            router[IDLE, 0] = -50
    return model


def without_idle(source, out, layers=(0, 1), mode="uniform"):
    """The source less the shunned experts of some layers, nothing else changed."""
    model = LazyModel(source)
    gone = {s.name for s in model.sites if s.expert == IDLE and s.layer in layers}
    keep = {s.name: torch.arange(0 if s.name in gone else s.width) for s in model.sites}
    cut(model, keep, lambda *_: (None, None), out, {"widths": mode, "shard": "5GB"})
    return out


@EVERY_MIXTURE
def test_our_experts_compute_what_the_fused_ones_do(family):
    model = tiny_model(family)
    hidden = torch.randn(50, 64, generator=torch.Generator().manual_seed(3))
    block = model.model.layers[0].mlp
    with torch.no_grad():
        _, weights, picks = block.gate(hidden)
        picks = torch.where(picks == IDLE, 0, picks)  # one expert is never called
        want = block.experts(hidden, picks, weights)
        whole = logits(model)
        fused = separate(model, LAYOUTS[family])
        assert len(fused) == 2 and want.abs().max() > 1e-4
        assert torch.allclose(block.experts(hidden, picks, weights), want, rtol=1e-4, atol=1e-8)
        assert torch.allclose(logits(model), whole, atol=1e-6)


@EVERY_MIXTURE
def test_an_experts_gram_is_of_the_tokens_it_was_routed(tmp_path, family):
    folder = tiny(tmp_path / "m", family)
    generator = torch.Generator().manual_seed(1)
    records = [torch.randint(1, 257, (n,), generator=generator).tolist() for n in (7, 30, 75)]
    windows = [w for i, ids in enumerate(records) for w in windows_of(i, ids, 32)]
    grouped = batches(windows, 70)
    stream = Stream(LazyModel(folder), grouped, 1 << 30, tmp_path)
    want = by_hand(folder, windows)
    for layer, _ in stream.layers():
        seen = 0
        for site, gram in layer_grams(stream, layer, range(len(grouped))):
            if site.expert is None:
                assert gram.tokens == sum(map(len, records))
                continue
            a, energy = want[layer][site.expert]
            assert gram.tokens == len(a) > 0
            assert gram.energy == pytest.approx(energy / len(a), rel=1e-4)
            assert torch.allclose(gram.finish()[0].double(), a.T @ a / len(a), rtol=1e-3, atol=1e-9)
            seen += gram.tokens
        assert seen == 2 * sum(map(len, records))


def by_hand(folder, windows):
    """Layer -> expert -> its weighted read-out inputs over counted tokens, and their summed output energy."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    calls = []
    for layer in model.model.layers:
        found = []
        layer.mlp.experts.register_forward_pre_hook(lambda _, args, found=found: found.append(args))
        calls.append((layer.mlp.experts, found))
    with torch.no_grad():
        for window in windows:
            model(input_ids=torch.tensor([window.ids]))
    starts = [w.start for w in windows]
    return [[expert_by_hand(experts, found, starts, i) for i in range(4)] for experts, found in calls]


def expert_by_hand(experts, calls, starts, i):
    rows = []
    for (hidden, picks, weights), start in zip(calls, starts, strict=True):
        for token in range(start, len(hidden)):
            for pick, weight in zip(picks[token].tolist(), weights[token], strict=True):
                if pick == i:
                    gate, up = (experts.gate_up_proj[i] @ hidden[token]).chunk(2)
                    rows.append(weight * experts.act_fn(gate) * up)
    a = torch.stack(rows).detach()
    return a.double(), float((a @ experts.down_proj[i].detach().T).square().sum())


@EVERY_MIXTURE
def test_an_expert_that_no_token_is_routed_leaves_without_a_trace(tmp_path, family):
    model = shunned(family)
    source = save_tiny(model, tmp_path / "m")
    out = without_idle(source, tmp_path / "out")
    plain, info = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
    )
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert (logits(plain.eval()) - logits(model)).abs().max() <= 1e-5
    talk = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(plain.generate(PROMPT[:, :8], **talk), model.generate(PROMPT[:, :8], **talk))
    busy = [i for i in range(4) if i != IDLE]
    before, after = (load_file(f / "model.safetensors") for f in (source, out))
    router = next(n for n in before if n.endswith((".mlp.gate.weight", "moe.gate.weight")))
    assert torch.equal(after[router], before[router][busy])
    assert set(after) == {n for n in before if ".experts.3." not in n}
    moved = {n: n.replace(".experts.1.", ".experts.2.") for n in after if ".experts.1." in n}
    assert moved and all(torch.equal(after[n], before[old]) for n, old in moved.items())


@EVERY_MIXTURE
def test_layers_with_different_numbers_of_experts_reload_exactly(tmp_path, family):
    model = shunned(family, layers=[1])
    out = without_idle(save_tiny(model, tmp_path / "m"), tmp_path / "out", [1], "exact")
    again = load(out)
    assert [len(layer.mlp.experts) for layer in again.model.layers] == [4, 3]
    assert (logits(again) - logits(model)).abs().max() <= 1e-5
    widths = json.loads((out / "config.json").read_text())["ffn_widths"]
    assert widths.count(0) == 1 and set(widths) == {0, WIDTH}


@EVERY_MIXTURE
def test_the_budget_counts_what_leaves_with_an_expert(tmp_path, family):
    model = LazyModel(tiny(tmp_path / "m", family))
    widths = [0 if s.expert == 3 and s.layer == 1 else 48 for s in model.sites]
    narrow = skeleton(model.config, widths)
    assert budget_of(model).parameters(widths) == sum(p.numel() for p in narrow.parameters())


def test_a_dense_layer_beside_sparse_ones_has_its_own_width(tmp_path):
    model = tiny_model("qwen2_moe", mlp_only_layers=[0], intermediate_size=WIDTH)
    live = torch.arange(0, WIDTH, 2)
    plant(model, live.tolist())
    source = LazyModel(save_tiny(model, tmp_path / "m"))
    assert [s.name for s in source.sites[:2]] == ["0", "1-expert-0"] and len(source.sites) == 6
    keep = {s.name: live for s in source.sites}
    cut(source, keep, lambda *_: (None, None), tmp_path / "o", {"widths": "uniform", "shard": "5GB"})
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "o", trust_remote_code=False).eval()
    assert (logits(plain) - logits(model)).abs().max() <= 1e-5
    keys = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
    assert {getattr(plain.config, k) for k in keys} == {len(live)}


def sites(*counts):
    """Layers of so many experts of 10 neurons."""
    found = [(layer, expert) for layer, n in enumerate(counts) for expert in range(n)]
    return [Site(layer, (), "", False, 10, 4, False, expert=e, index=i) for i, (layer, e) in enumerate(found)]


def test_the_least_picked_leave_first():
    picks = [5, 0, 85, 10, 25, 25, 30, 20]  # covers in front of each, sorted: layer 0 .85 .95 1, layer 1 .3 …
    assert cover_of(sites(4, 4), picks, 1, alike=False).steps == [[1], [0], [3], [7], [5], [4]]
    assert cover_of(sites(4, 4), picks, 2, alike=True).steps == [[1, 7], [0, 5]]


@pytest.mark.parametrize(
    ("experts", "top_k", "stay"), [(4, 2, 2), (7, 1, 1), (8, 2, 8), (12, 2, 8), (12, 10, 10)]
)
def test_the_top_k_and_eight_stay(experts, top_k, stay):
    for alike in (True, False):
        found = cover_of(sites(experts, experts), [1] * 2 * experts, top_k, alike)
        assert found.sizes[-1] == 2 * stay * 10 and found.sizes[0] == 2 * experts * 10
        assert all(a > b for a, b in pairwise(found.sizes))


@EVERY_MIXTURE
@pytest.mark.parametrize("widths", ["uniform", "exact"])
@pytest.mark.parametrize("share", [1.0, 0.9, 0.75, 0.6, 0.4, 0.3])
def test_targets_are_met_within_two_percent_from_below(tmp_path, family, widths, share):
    model = LazyModel(tiny(tmp_path / "m", family))
    planner = Planner(model, plan_options(ffn=share, widths=widths, align=4, min_width=0.1))
    planner.rank([10 + s.index for s in model.sites])
    found = planner.widths()
    assert 0.98 * planner.total <= sum(found) <= planner.total
    table = planner.totals(found)
    assert table["neurons_after"] == sum(found) and table["experts_before"] == 8
    counts = [sum(w > 0 for s, w in zip(model.sites, found, strict=True) if s.layer == i) for i in (0, 1)]
    assert widths == "exact" or counts[0] == counts[1]
    shared = [w for s, w in zip(model.sites, found, strict=True) if s.shared]
    assert share < 0.5 or set(shared) <= {WIDTH}


def test_many_experts_leave_unnarrowed_and_the_shared_ones_stay_whole(tmp_path):
    model = LazyModel(tiny(tmp_path / "m", "qwen2_moe", num_experts=32, moe_intermediate_size=32))
    planner = Planner(model, plan_options(ffn=0.68))
    assert set(planner.widths()) == {0, 32, WIDTH}
    assert planner.totals_in_reach[-1] == planner.budget.neurons
    keeping = Planner(model, plan_options(ffn=0.7, experts="keep"))
    assert set(keeping.widths()) == {16, WIDTH}


def test_parts_that_measure_one_ffn_a_layer_are_refused(tmp_path):
    model = LazyModel(tiny(tmp_path / "m", "mixtral"))
    fisher = {"_target_": "prune_plugins.allocator.fisher.Fisher", "tokens": 9}
    with pytest.raises(UsageError, match=r"allocator=fisher .*mixture of experts.*allocator=uniform"):
        Planner(model, plan_options(ffn=0.7, allocator=fisher))


@pytest.fixture(scope="module")
def lit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("x")
    source = tiny(folder / "m", "qwen2_moe", moe_intermediate_size=32)
    data = answers(folder / "a", train=(300,) * 8, val=(200, 90))
    return source, data, illuminate(source, data, folder / "i")[0]


def test_illuminate_counts_the_routers_picks(lit):
    grams = lit[2]
    facts = gram_facts(grams)
    stored = json.loads((grams / "grams.json").read_text())
    assert facts["routed_train"] == stored["routed_train"] and len(facts["routed_train"]) == 10
    for layer in range(2):
        *experts, shared = facts["routed_train"][5 * layer : 5 * layer + 5]
        assert shared == facts["tokens_train"] and sum(experts) == 2 * shared and min(experts) > 0
    assert len(list(grams.glob("layer-00?-expert-?.safetensors"))) == 8


def test_experts_that_saw_few_tokens_are_cut_without_a_refit(tmp_path, lit):
    source, data, grams = lit
    planned, found = plan(source, grams, tmp_path / "p", ffn=0.8, experts="keep")
    rows = fold(source, grams, planned, tmp_path / "f", data=data, refit="on")[1]
    assert [(r["layer"], r.get("part")) for r in rows] == [(r["layer"], r["part"]) for r in found["layers"]]
    seen = gram_facts(grams)["routed_train"]
    starved = [n < 10 * row["kept"] for n, row in zip(seen, found["layers"], strict=True)]
    whole = [row["kept"] == row["full"] for row in found["layers"]]
    assert [row["choice"] == "plain" for row in rows] == [a or b for a, b in zip(starved, whole, strict=True)]
    assert 0 < sum(starved) < 8 and sum(whole) == 2
    assert found["warnings"][0].startswith(f"{sum(starved)} experts saw under 10 calibration tokens")


def test_the_fold_of_experts_is_one_shot_in_either_mode(tmp_path, lit):
    source, data, grams = lit
    planned, _ = plan(source, grams, tmp_path / "p", ffn=0.6)
    one = fold(source, grams, planned, tmp_path / "f")[0] / "model.safetensors"
    other = fold(source, grams, planned, tmp_path / "g", data=data)[0] / "model.safetensors"
    assert one.read_bytes() == other.read_bytes()


def test_a_codec_stores_experts_and_no_router(tmp_path):
    names = matrix_names(LazyModel(tiny(tmp_path / "m", "qwen2_moe")))
    assert "model.layers.1.mlp.experts.3.down_proj.weight" in names
    assert not [n for n in names if "gate.weight" in n]


def test_fused_files_are_refused_with_advice(tmp_path):
    source = tiny(tmp_path / "m", "qwen3_moe")
    tensors = load_file(source / "model.safetensors")
    kept = {n: t for n, t in tensors.items() if ".experts." not in n}
    fused = {f"model.layers.{i}.mlp.experts.gate_up_proj": torch.zeros(4, 2 * WIDTH, 64) for i in (0, 1)}
    save_file(kept | fused, source / "model.safetensors")
    with pytest.raises(UsageError, match=r"lack .*experts\.0\.gate_proj.*save the model anew"):
        LazyModel(source)
