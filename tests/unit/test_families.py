"""Every supported family: planted exactness, narrowing, saving, reloading, the walk."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from prune.errors import UsageError
from prune.nn import folding
from prune.nn.folder import copied, kept_entries, write_folder
from prune.nn.layout import LAYOUTS
from prune.nn.model import LazyModel, load
from prune.nn.nll import score
from prune.nn.windows import Text
from prune.tiny import FAMILIES, WIDTH, plant, save_tiny, tiny, tiny_model

EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
PROMPT = torch.arange(1, 41).unsqueeze(0)


def logits(model):
    with torch.no_grad():
        return model(input_ids=PROMPT).logits


def greedy(model):
    """What a model goes on with."""
    return model.generate(PROMPT[:, :8], max_new_tokens=12, do_sample=False, pad_token_id=0)


def scattered(count, seed=0):
    return torch.randperm(WIDTH, generator=torch.Generator().manual_seed(seed))[:count].sort().values


def cut(source, out, keep, mode="uniform"):
    """A plain cut of every site to what ``keep`` says of it."""
    model = LazyModel(source)
    keeps = {s.name: keep(s) for s in model.sites}
    folding.cut(model, keeps, lambda *_: (None, None), out, {"widths": mode, "shard": "5GB"})
    return out


def test_the_table_of_families_is_what_is_tested():
    assert set(FAMILIES) == set(LAYOUTS)


@EVERY_FAMILY
@pytest.mark.parametrize("biased", [False, True])
def test_cutting_dead_neurons_changes_no_logit(tmp_path, family, biased):
    if biased and family != "llama":
        pytest.skip("an option of llama")
    model = tiny_model(family, **({"mlp_bias": True} if biased else {}))
    keep = scattered(128)
    plant(model, keep.tolist())
    before = logits(model)
    out = cut(save_tiny(model, tmp_path / "source"), tmp_path / "out", lambda _: keep)
    after = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, trust_remote_code=False).eval()
    assert (logits(after) - before).abs().max() <= 1e-5
    assert torch.equal(greedy(after), greedy(model))
    wrong = cut(tmp_path / "source", tmp_path / "wrong", lambda _: torch.arange(128))
    assert (logits(load(wrong)) - before).abs().max() > 1e-3, "the first rows would have done as well"
    config = json.loads((out / "config.json").read_text())
    for site in LazyModel(out).sites:
        nested = config
        for key in site.width_key.split("."):
            nested = nested[key]
        assert nested == 128
    assert not config.get("ffn_widths")
    if biased:
        assert config["mlp_bias"] is True


@EVERY_FAMILY
def test_widths_that_differ_reload_exactly(tmp_path, family):
    model = tiny_model(family)
    keeps = [scattered(128), scattered(64, seed=1)]
    dead = tiny_model(family)
    dead.load_state_dict(model.state_dict())
    for layer, keep in enumerate(keeps):  # what the cut must equal: the same neurons silenced
        one = tiny_model(family)
        one.load_state_dict(dead.state_dict())
        plant(one, keep.tolist())
        prefix = f"{LAYOUTS[family].layers}.{layer}."
        dead.load_state_dict(
            {k: v for k, v in one.state_dict().items() if k.startswith(prefix)}, strict=False
        )
    source = save_tiny(model, tmp_path / "source")
    exact = cut(source, tmp_path / "exact", lambda s: keeps[s.layer], "exact")
    widths = [len(keeps[s.layer]) for s in LazyModel(source).sites]
    assert json.loads((exact / "config.json").read_text())["ffn_widths"] == widths
    assert (logits(load(exact)) - logits(dead)).abs().max() <= 1e-5
    plain = AutoModelForCausalLM.from_pretrained(
        cut(source, tmp_path / "padded", lambda s: keeps[s.layer], "padded"),
        dtype=torch.float32,
        trust_remote_code=False,
    ).eval()
    assert (logits(plain) - logits(dead)).abs().max() <= 1e-5


@EVERY_FAMILY
def test_the_walk_scores_as_a_plain_forward_pass(tmp_path, family):
    source = tiny(tmp_path / "m", family)
    texts = [
        Text(torch.randint(1, 257, (n,), generator=torch.Generator().manual_seed(n)).tolist(), n // 3, n - 1)
        for n in (9, 40, 17, 33, 40)
    ]
    got = score(LazyModel(source), texts, window=64, budget=1 << 30, scratch=tmp_path, batch_tokens=80)
    mapped = score(LazyModel(source), texts, window=64, budget=0, scratch=tmp_path, batch_tokens=80)
    assert got == mapped and not list(tmp_path.glob("states-*"))
    model = load(source)
    for text, found in zip(texts, got, strict=True):
        with torch.no_grad():
            out = model(input_ids=torch.tensor([text.ids])).logits[0, text.start - 1 : text.stop - 1]
        want = torch.nn.functional.cross_entropy(
            out, torch.tensor(text.ids[text.start : text.stop]), reduction="sum"
        )
        assert found.nll == pytest.approx(float(want), rel=1e-5) and found.tokens == text.stop - text.start


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_embedding_is_stored_once(tmp_path, tied):
    model = tiny_model("llama", tie_word_embeddings=tied)
    keep = scattered(128)
    out = cut(save_tiny(model, tmp_path / "source"), tmp_path / "out", lambda _: keep)
    names = set(LazyModel(out).checkpoint.entries)
    assert ("lm_head.weight" in names) is (not tied) and "model.embed_tokens.weight" in names
    again = AutoModelForCausalLM.from_pretrained(out, trust_remote_code=False)
    assert (again.lm_head.weight is again.model.embed_tokens.weight) is tied
    size = sum(e.nbytes for e in LazyModel(out).checkpoint.entries.values())
    assert 0 < (out / "model.safetensors").stat().st_size - size < 8000


def test_a_head_stored_beside_its_embedding_is_dropped(tmp_path):
    from safetensors.torch import load_file, save_file

    source = tiny(tmp_path / "m", "llama", tie_word_embeddings=True)
    tensors = load_file(source / "model.safetensors")
    save_file(
        tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()},
        source / "model.safetensors",
    )
    assert "lm_head.weight" not in kept_entries(LazyModel(source))


def test_names_without_the_base_prefix_are_found(tmp_path):
    """The first GPT-2 checkpoints say h.0.… where the causal model says transformer.h.0.…"""
    from safetensors.torch import load_file, save_file

    source = tiny(tmp_path / "m", "gpt2")
    before = logits(load(source))
    tensors = load_file(source / "model.safetensors")
    save_file({k.removeprefix("transformer."): v for k, v in tensors.items()}, source / "model.safetensors")
    out = cut(source, tmp_path / "out", lambda _: torch.arange(WIDTH))
    assert torch.equal(logits(load(source)), before)
    assert set(LazyModel(out).checkpoint.entries) == set(LazyModel(source).checkpoint.entries)


def test_shards_have_an_index_that_is_right(tmp_path):
    source = tiny(tmp_path / "m")
    model = LazyModel(source)
    specs = kept_entries(model)
    write_folder(model, tmp_path / "out", specs, [([n], copied) for n in specs], {}, 100_000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = {p.name for p in (tmp_path / "out").glob("*.safetensors")}
    assert files == set(index["weight_map"].values()) and len(files) > 3
    again = LazyModel(tmp_path / "out")
    assert index["metadata"]["total_size"] == sum(e.nbytes for e in again.checkpoint.entries.values())
    assert torch.equal(logits(again.pin()), logits(load(source)))


def test_an_unknown_family_is_refused_by_name(tmp_path):
    from transformers import BloomConfig, BloomForCausalLM

    BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=32, n_layer=1, n_head=2)).save_pretrained(
        tmp_path
    )
    with pytest.raises(UsageError, match=r"bloom.*BloomForCausalLM"):
        LazyModel(tmp_path)
