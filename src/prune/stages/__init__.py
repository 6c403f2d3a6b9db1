"""The built-in stages, one a file; a stage's module is imported when a run names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prune import hookimpl

NAMES = ("convert", "prepare", "bake", "illuminate", "plan", "fold", "heal", "quant", "eval")


def _options(name: str) -> type:
    @dataclass
    class Options:
        _target_: str = f"prune.stages.{name}.{name.capitalize()}"

    return Options


@hookimpl
def prune_stages() -> Mapping[str, type]:
    return {name: _options(name) for name in NAMES}
