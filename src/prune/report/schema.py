"""What ``report.json`` holds. Losses are nats per generated token; a number that was not measured is None."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict


class Source(TypedDict):
    """The model that was made smaller."""

    name: str
    identity: str
    layout: str
    dtype: str
    origin: NotRequired[Mapping[str, Any] | None]


class Data(TypedDict):
    """The teacher data: counts by split, of the prompts' file, and by reason what was left out."""

    name: str
    records: Mapping[str, int]
    tokens: Mapping[str, int]
    counts: Mapping[str, int]
    rejected: Mapping[str, int]
    warnings: list[str]
    teacher: Mapping[str, Any]


class Target(TypedDict):
    """What was asked (``ffn=0.75``; empty with no target) and what the plan made of it."""

    asked: str
    shared_by: str  #: the part that gave each layer its width
    loader: Literal["transformers", "prune"]  #: what loads the output
    neurons_before: int
    neurons_after: int
    params_before: int
    params_after: int
    share_pruned: float
    share_quantized: float
    experts_before: NotRequired[int]
    experts_after: NotRequired[int]
    picks_kept: NotRequired[float]  #: least share of a layer's router picks that the kept experts had


EXPERTS = ("experts_before", "experts_after", "picks_kept")  #: of a mixture alone


class Mean(TypedDict):
    """A mean per generated token with its 95 % interval; no bounds where ``why`` says so."""

    mean: float
    low: float | None
    high: float | None
    why: NotRequired[str]


class Generation(TypedDict):
    """Greedy generation on the first test prompts."""

    prompts: int
    loops: int
    median_length_ratio: float | None
    stop_rate: float | None


class Candidate(TypedDict):
    """One model, scored on the test records."""

    name: str
    role: Literal["source", "step", "final", "compare"]
    bytes: int
    params: int
    nll: float
    delta: Mean | None  #: NLL minus the source's, paired
    kl: Mean | None  #: KL divergence from the source's next-token distributions
    perplexity: float
    records: int
    tokens: int
    general_perplexity: float | None
    generation: Generation | None


class Gate(TypedDict):
    """One judgement; ``passed`` is None where the gate is off, and ``why`` says so."""

    gate: str
    value: float | None
    limit: float | None
    passed: bool | None
    why: str


class Report(TypedDict):
    """The whole of it."""

    prune: str
    source: Source
    data: Data
    target: Target
    plan: NotRequired[Mapping[str, Any]]
    curves: NotRequired[Mapping[str, Any]]
    search: NotRequired[Mapping[str, Any]]
    learning: NotRequired[list[Mapping[str, Any]]]
    fold: NotRequired[Mapping[str, Any]]
    codec: Mapping[str, Any]
    candidates: list[Candidate]
    samples: list[Mapping[str, Any]]
    gates: list[Gate]
    passed: bool
    next: list[str]


def with_role(report: Mapping[str, Any], role: str) -> Mapping[str, Any] | None:
    """The candidate with this role, None where there is none."""
    return next((c for c in report["candidates"] if c["role"] == role), None)


def dumps(report: Mapping[str, Any]) -> str:
    """``report.json``: strict JSON, sorted keys; a non-finite number becomes "nan", "inf" or "-inf"."""
    return json.dumps(_plain(report), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
