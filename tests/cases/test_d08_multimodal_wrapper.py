"""Of a multimodal model the text part alone is compressed; a wrapper that is not known is refused at once."""

import json
import re
import time
from pathlib import Path

import pytest
import torch
from product import tensors

from prune.tiny import byte_tokenizer

SECONDS = 5.0


def gemma3(folder):
    """A real tiny Gemma 3 with two text and two vision layers."""
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


@pytest.mark.parametrize("codec", ["none", "q8"])
def test_d08_gemma_3_keeps_its_vision_tower(codec, squeeze, answers, tmp_path):
    from transformers import Gemma3ForConditionalGeneration

    gemma3(tmp_path / "model")
    out = squeeze(
        tmp_path / "model", "ffn=0.73", f"codec={codec}", "codec.group=16" if codec == "q8" else "seed=0"
    )
    before, after = tensors(tmp_path / "model"), tensors(out)
    outside = {n for n in before if "language_model" not in n}
    assert any("vision_tower" in n for n in outside) and any("projector" in n for n in outside)
    assert all(torch.equal(before[n], after[n]) for n in outside)
    ends = ("_packed", "_scale", "_shape")
    assert {n.removesuffix(next((e for e in ends if n.endswith(e)), "")) for n in after} == set(before)

    was, now = (json.loads((f / "config.json").read_text()) for f in (tmp_path / "model", out))
    quantized = now.pop("quantization_config", {"config_groups": {}})
    assert (
        now["text_config"].pop("intermediate_size") == 128
        and was["text_config"].pop("intermediate_size") == 176
    )
    assert now == was and (out / "preprocessor_config.json").read_bytes() == b"{}"
    modules = {n.rpartition(".")[0] for n in after}
    for group in quantized["config_groups"].values():
        for target in group["targets"]:
            hit = {m for m in modules if re.match(target.removeprefix("re:"), m)}
            assert hit and not any("vision" in m for m in hit)

    loaded, info = Gemma3ForConditionalGeneration.from_pretrained(
        out, trust_remote_code=False, local_files_only=True, output_loading_info=True
    )
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    report = json.loads((out / "report.json").read_text())
    final = next(c for c in report["candidates"] if c["role"] == "final")
    assert final["nll"] == pytest.approx(plain_nll(loaded.eval(), answers), rel=5e-3)


def plain_nll(model, answers):
    """Per generated token of the test answers."""
    from prune.data.records import read

    total = count = 0
    for record in read(Path(answers), "test"):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([record.ids])).logits[0, record.n_prompt - 1 : -1].float()
        wanted = torch.tensor(record.ids[record.n_prompt :])
        total += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
        count += len(wanted)
    return total / count


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
