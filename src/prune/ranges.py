"""What the values of a run's options may be, known before anything is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .arithmetic import parse_bytes, parse_rise
from .errors import UsageError

CHOICES: Mapping[str, tuple[str, ...]] = {
    "fold.refit": ("auto", "on", "off"),
    "fold.mode": ("oneshot", "sequential"),
    "plan.experts": ("auto", "keep"),
    "save.widths": ("uniform", "padded", "exact"),
    "stream.resident": ("auto", "always", "never"),
    "loss_on": ("answer", "generated", "all"),
    "dtype": ("auto", "float32", "fp32", "bfloat16", "bf16", "float16", "fp16"),
}
#: option -> least and largest value
NUMBERS: Mapping[str, tuple[float, float]] = {
    "threads": (0, math.inf),
    "illuminate.window": (2, math.inf),
    "illuminate.tokens": (0, math.inf),
    "bake.steps": (1, math.inf),
    "bake.tokens": (1, math.inf),
    "bake.rate": (0, math.inf),
    "bake.l1": (0, math.inf),
    "bake.every": (1, math.inf),
    "bake.val_tokens": (1, math.inf),
    "plan.protect_first": (0, math.inf),
    "plan.protect_last": (0, math.inf),
    "plan.align": (1, math.inf),
    "plan.min_width": (0, 1),
    "eval.prompts": (0, math.inf),
    "eval.max_tokens": (1, math.inf),
    "eval.general_tokens": (2, math.inf),
}
PARSED: Mapping[str, Callable[[str], object]] = {
    "save.shard": parse_bytes,
    "stream.states": parse_bytes,
    "target.max_nll_rise": parse_rise,
}


def faults(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Every value out of its range, with what to give instead."""
    for key in ("ffn", "ratio"):
        if cfg[key] is not None and not 0 < cfg[key] < math.inf:
            yield f"{key}={cfg[key]}: give a number above 0"
    yield from _wrong(cfg, CHOICES, lambda value, known: value in known, lambda known: " or ".join(known))
    yield from _wrong(cfg, NUMBERS, lambda value, ends: ends[0] <= value <= ends[1], _interval)
    for key, parse in PARSED.items():
        try:
            if (value := _leaf(cfg, key)) is not None:
                parse(value)
        except UsageError as e:
            yield f"{key}: {e}"
    ridges = cfg["fold"]["ridge"]
    if not ridges or not all(0 <= ridge < math.inf for ridge in ridges):
        yield f"fold.ridge={list(ridges)}: give one number or more, each 0 or above"


def _wrong(
    cfg: Mapping[str, Any],
    limits: Mapping[str, Any],
    fits: Callable[[Any, Any], bool],
    advice: Callable[[Any], str],
) -> Iterator[str]:
    for key, limit in limits.items():
        value = _leaf(cfg, key)
        if value is not None and not fits(value, limit):
            yield f"{key}={value}: give {advice(limit)}"


def _leaf(cfg: Mapping[str, Any], key: str) -> Any:
    node: Any = cfg
    for part in key.split("."):
        node = node[part]
    return node


def _interval(ends: tuple[float, float]) -> str:
    least, most = ends
    return f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
