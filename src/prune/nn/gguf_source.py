"""A .gguf file as a source: how lossy it is, and the model folder that transformers makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from prune.errors import UsageError, first_line

from .folder import FROM_WHERE

LOSSY = 5.1  #: stored bits a weight, block scales included, up to which a file's codes are of 4 bits or less


def bits_per_weight(path: Path) -> float:
    """Mean stored bits of the matrices.

    :raises UsageError: where the file is no GGUF.
    """
    from gguf import GGUFReader

    try:
        matrices = [t for t in GGUFReader(path).tensors if len(t.shape) > 1]
    except Exception as e:  # the reader raises whatever numpy raises on a torn file
        raise UsageError(f"{path}: no readable GGUF file ({first_line(e)})") from None
    weights = sum(int(t.n_elements) for t in matrices)
    if not weights:
        raise UsageError(f"{path}: the GGUF file holds no matrix")
    return 8 * sum(int(t.n_bytes) for t in matrices) / weights


def check_lossy(path: Path, allowed: bool) -> None:
    """:raises UsageError: for a source of about 4 bits or less that was not allowed."""
    bits = bits_per_weight(path)
    if bits <= LOSSY and not allowed:
        raise UsageError(
            f"{path.name} stores {bits:.1f} bits a weight: what it lost is lost for the output too; give the "
            "model before quantization, or allow_lossy_source=true"
        )


def convert(path: Path, out: Path) -> None:
    """Write ``path`` as a folder: bfloat16 safetensors, config, tokenizer, generation config.

    :raises UsageError: where transformers cannot read the file's architecture.
    """
    where = {"gguf_file": path.name, "trust_remote_code": False, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, **where)
        model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.bfloat16, **where)
    except Exception as e:  # an unknown architecture is a ValueError, a KeyError or worse
        raise UsageError(f"{path}: transformers cannot read it ({first_line(e)})") from None
    model.hf_quantizer = None  # else save_pretrained refuses a dequantized model
    model.config = _plain_config(model.config)
    model.generation_config = _generation(tokenizer)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _plain_config(config: Any) -> Any:
    """The config without what says that the file was quantized, and where it lay."""
    kept = config.to_dict()
    for key in ("quantization_config", *FROM_WHERE):
        kept.pop(key, None)
    return type(config).from_dict(kept)


def _generation(tokenizer: Any) -> Any:
    return GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
