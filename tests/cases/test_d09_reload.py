"""The result loads in plain transformers and speaks as it did in memory."""

import json

import pytest
import torch
from product import plain, tensors, tree

from prune.data.render import load_tokenizer
from prune.nn.model import load
from prune.tiny import tiny

ADVICE = b'{"do_sample": false, "temperature": 0.6, "top_p": 0.9}'


@pytest.fixture
def odd(taught, tmp_path):
    """The taught model with advice that transformers refuses to save again."""
    import shutil

    folder = shutil.copytree(taught / "task", tmp_path / "model")
    (folder / "generation_config.json").write_bytes(ADVICE)
    return folder


def greedy(model, tokenizer):
    """What a model says to three prompts of the task."""
    said = []
    for number in (17, 42, 99):
        turns = [{"role": "user", "content": f"Spell {number}."}]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt")
        with torch.inference_mode():
            said.append(model.generate(**ids, max_new_tokens=20, do_sample=False)[0].tolist())
    return said


@pytest.mark.parametrize("codec", ["none", "f16", "q8"])
def test_d09_it_loads_and_generates_the_same(codec, squeeze, odd):
    out = squeeze(odd, "ffn=0.75", f"codec={codec}")
    assert (out / "generation_config.json").read_bytes() == ADVICE
    tokenizer = load_tokenizer(out)
    theirs, ours = greedy(plain(out), tokenizer), greedy(load(out), tokenizer)
    assert theirs == ours
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in theirs]
    assert "four two" in texts[1]


def test_d09_everything_but_weights_and_config_is_carried_over(squeeze, odd):
    (odd / "special_tokens_map.json").write_text('{"eos_token": "<eos>"}')
    (odd / "notes.json").write_text("[1]")
    out = squeeze(odd, "ffn=0.75", "codec=none")
    before, after = tree(odd), tree(out)
    carried = before.keys() - {"config.json", "model.safetensors"}
    assert {name: after.get(name) for name in carried} == {name: before[name] for name in carried}


def test_d09_the_config_tells_the_new_width_and_nothing_else(squeeze, odd):
    out = squeeze(odd, "ffn=0.75", "codec=none")
    before, after = (json.loads((f / "config.json").read_text()) for f in (odd, out))
    assert after == before | {"intermediate_size": 128}


@pytest.mark.parametrize("widths", ["padded", "exact"])
def test_d09_layers_of_different_width_load_as_documented(widths, squeeze, tmp_path):
    """padded: in plain transformers; exact: with our loader."""
    source = tiny(tmp_path / "model")
    cut = ("plan.protect_last=1", f"save.widths={widths}", "codec=none", "fold.refit=off")
    out = squeeze(source, "ffn=0.8", *cut)
    ids = torch.randint(1, 257, (2, 12), generator=torch.Generator().manual_seed(0))
    model = plain(out) if widths == "padded" else load(out)
    rows = [t.shape[0] for n, t in tensors(out).items() if n.endswith("up_proj.weight")]
    assert rows == ([176, 176] if widths == "padded" else [96, 176])
    with torch.inference_mode():
        assert model(input_ids=ids).logits.isfinite().all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}"),
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        lambda folder: (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": "big"}'),
        lambda folder: (folder / "model.safetensors").unlink(),
    ],
)
def test_d09_a_source_that_cannot_be_saved_again_is_refused_in_seconds(
    damage, refused, scripted, taught, odd
):
    damage(odd)
    refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75", "teacher=scripted")
    assert scripted.asked == []
