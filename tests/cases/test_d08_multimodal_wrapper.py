"""A wrapper around a text model (vision, audio) is refused by its class name, at once."""

import json
import time

import pytest

from prune.tiny import byte_tokenizer

SECONDS = 5.0


def gemma3(folder):
    """A real tiny Gemma 3 with two text and two vision layers."""
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    text = {"vocab_size": 257, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
              "image_size": 28, "patch_size": 14}  # fmt: skip
    torch.manual_seed(0)
    config = Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=250
    )
    Gemma3ForConditionalGeneration(config).save_pretrained(folder)
    byte_tokenizer(folder)
    (folder / "preprocessor_config.json").write_text("{}")
    assert (folder / "model.safetensors").is_file()


def wrapper(folder, kind, name):
    """Any other wrapper, as far as its config."""
    from transformers import AutoConfig

    AutoConfig.for_model(kind).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"architectures": [name]}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def refused_at_once(refused, scripted, taught):
    """The error line, after at most five seconds in which no teacher was asked."""

    def run(*argv):
        began = time.monotonic()
        line = refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "teacher=scripted", *argv)
        assert time.monotonic() - began < SECONDS and scripted.asked == []
        return line

    return run


@pytest.mark.parametrize("target", ["ffn=0.75", "recipe=quant-only"])
def test_d08_gemma_3_with_its_vision_tower(target, refused_at_once, tmp_path):
    gemma3(tmp_path / "model")
    line = refused_at_once(target, "codec=q8")
    assert "Gemma3ForConditionalGeneration" in line


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llava", "LlavaForConditionalGeneration"),
        ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
        ("mllama", "MllamaForConditionalGeneration"),
        ("qwen2_audio", "Qwen2AudioForConditionalGeneration"),
    ],
)
def test_d08_other_wrappers(kind, name, refused_at_once, tmp_path):
    wrapper(tmp_path / "model", kind, name)
    assert name in refused_at_once("ffn=0.75")
