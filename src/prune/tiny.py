"""Tiny models of every family, made on the spot with a byte-level tokenizer; nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HIDDEN, WIDTH, VOCAB = 64, 176, 257

_COMMON = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": WIDTH, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
           "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}  # fmt: skip

_TEXT = {
    **_COMMON,
    "head_dim": 16,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
}
_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
           "image_size": 28, "patch_size": 14}  # fmt: skip

#: model_type -> what its config takes beside the common sizes
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "gemma3_text": _TEXT,
    "mistral": {},
    "smollm3": {},
    "stablelm": {},
    "granite": {"residual_multiplier": 0.3},
    "gemma2": {"head_dim": 16, "sliding_window": 16},
    "olmo2": {},
    "gemma3": {"text_config": _TEXT, "vision_config": _VISION, "mm_tokens_per_image": 4,
               "image_token_index": 250, **dict.fromkeys(_COMMON)},
    "phi3": {},
    "nemotron": {},
    "phi": {},
    "opt": {"ffn_dim": WIDTH, "intermediate_size": None, "word_embed_proj_dim": HIDDEN},
    "gpt_neox": {},
    "falcon": {"ffn_hidden_size": WIDTH, "intermediate_size": None, "num_kv_heads": 2},
    "mixtral": {"num_local_experts": 4},
    "qwen2_moe": {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH,
        "shared_expert_intermediate_size": WIDTH,
    },
    "qwen3_moe": {
        "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH,
        "norm_topk_prob": True,
    },
    "gpt2": {
        "n_embd": HIDDEN, "n_inner": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 512,
        "hidden_size": None, "intermediate_size": None, "num_hidden_layers": None,
        "num_attention_heads": None,
        "num_key_value_heads": None, "max_position_embeddings": None,
    },
}  # fmt: skip


def tiny(folder: Path, family: str = "llama", dtype: str = "float32", seed: int = 0, **config: Any) -> Path:
    """A random 2-layer model with a byte-level tokenizer, saved in ``folder``; nothing is downloaded."""
    model = tiny_model(family, seed, **config)
    return save_tiny(model, folder, dtype)


def tiny_model(family: str = "llama", seed: int = 0, **config: Any) -> Any:
    """The model of :func:`tiny`, in memory, biases random too, in eval mode."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {k: v for k, v in {**_COMMON, **FAMILIES[family], **config}.items() if v is not None}
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **settings), trust_remote_code=False
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.2)
    return model


def save_tiny(model: Any, folder: Path, dtype: str = "float32") -> Path:
    """Save a model and the byte tokenizer."""
    import torch

    model.to(getattr(torch, dtype)).save_pretrained(folder)
    byte_tokenizer(folder)
    return folder


def byte_tokenizer(folder: Path, template: str | None = None) -> None:
    """A tokenizer of 256 bytes and one end-of-text token, with a plain chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<eos>": 0, **{c: i + 1 for i, c in enumerate(letters)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<eos>",
        "pad_token": "<eos>",
        "chat_template": template or CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def plant(model: Any, keep: Sequence[int]) -> None:
    """Make every FFN neuron outside ``keep`` exactly dead, in all layers: zero read-in rows and biases."""
    import torch

    from .nn.experts import separate
    from .nn.layout import layout_of, sites_of

    dead, layout = sorted(set(range(WIDTH)) - set(keep)), layout_of(model.config)
    fused = separate(model, layout)
    with torch.no_grad():
        for site in sites_of(model, layout):
            last = site.read_ins[-1]  # up: zero there silences a gated neuron, whatever its gate says
            matrix = model.get_submodule(last.module)
            rows = [site.width * (last.blocks - 1) + j for j in dead]
            (matrix.weight.T if site.transposed else matrix.weight)[rows] = 0
            if matrix.bias is not None:
                matrix.bias[rows] = 0
    for name, experts in fused.items():
        model.set_submodule(name, experts)
