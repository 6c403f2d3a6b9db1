"""Which token ids end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .render import Renderer


def stop_ids(folder: Path, renderer: Renderer) -> frozenset[int]:
    """The model's own (generation config, config), the tokenizer's and the chat template's."""
    from prune.nn.checkpoint import read_json

    found = {renderer.end, renderer.tokenizer.eos_token_id}
    for path in (folder / "generation_config.json", folder / "config.json"):
        value = read_json(path).get("eos_token_id") if path.is_file() else None
        found |= set(value if isinstance(value, list) else [value])
    return frozenset(i for i in found if isinstance(i, int))
