"""The built-in quality gates: reasons to refuse an output, judged from its report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


@dataclass
class GateOptions:
    """Limits; null switches a gate off, and the report says so."""

    nll_ratio: float | None = 1.35  # final NLL at most this times the source's: a third up is another model
    nll_rise: float | None = 0.15  # and at most this many nats above it: a large NLL hides much in a ratio
    loops: int | None = 1  # looping answers beyond the source's own: one more in 16 is chance
    stop_rate: float | None = 0.15  # how far the share of answers that end by themselves may fall
    length_low: float | None = 0.5  # least median length of an answer over the teacher's: shorter leaves out
    length_high: float | None = 2.0  # largest: longer rambles
    size_tolerance: float | None = 0.01  # how far above the asked size, as a fraction: rounding, nothing more


@dataclass(frozen=True)
class GateResult:
    """One judgement; ``passed`` is None where the gate is off."""

    gate: str
    value: float | None
    limit: float | None
    passed: bool | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class _Case(NamedTuple):
    """What a gate compares; None is what was not measured."""

    why: str
    value: float | None = None
    high: float | None = None
    low: float | None = None
    off: bool = False


Report = Mapping[str, Any]


def judge(report: Report, limits: Mapping[str, Any]) -> list[GateResult]:
    """Every built-in gate, in the order of :class:`GateOptions`, then that every number is finite.

    :param report: what ``report.json`` holds; its ``gates`` are not read.
    :param limits: the fields of :class:`GateOptions`.
    """
    options = asdict(GateOptions(**limits))
    return [*(_judge(gate, limit, report) for gate, limit in options.items()), _finite(report)]


def passed(results: list[GateResult]) -> bool:
    """True where no gate refuses; one that is off does not."""
    return all(result.passed is not False for result in results)


def _judge(gate: str, limit: float | None, report: Report) -> GateResult:
    if limit is None:
        return GateResult(gate, None, None, None, f"off: eval.gates.{gate}=null")
    case = _case(gate, limit, report)
    if case.off:
        return GateResult(gate, None, None, None, f"off: {case.why}")
    bound = case.low if case.high is None else case.high
    if case.value is None or bound is None:
        return GateResult(gate, case.value, bound, False, f"{case.why}: computed on nothing, never a pass")
    good = case.value <= bound if case.high is not None else case.value >= bound
    return GateResult(gate, case.value, bound, good, case.why)


def _case(gate: str, limit: float, report: Report) -> _Case:
    if gate.startswith("nll"):
        return _nll(gate, limit, _scored(report, "final"), _scored(report, "source"))
    if gate == "size_tolerance":
        return _size(limit, report)
    final, source = (_scored(report, role).get("generation") for role in ("final", "source"))
    if final is None and source is None:
        return _Case("eval.prompts=0, so no answer was generated", off=True)
    final, source = (g if g and g.get("prompts") else {} for g in (final, source))
    return _generation(gate, limit, final, source)


def _scored(report: Report, role: str) -> Mapping[str, Any]:
    """The candidate of that role, empty where it was scored on no records."""
    found: Report = next((c for c in report["candidates"] if c["role"] == role), {})
    return found if found.get("records") and found.get("tokens") else {}


def _nll(gate: str, limit: float, final: Report, source: Report) -> _Case:
    nll, base = final.get("nll"), source.get("nll")
    if gate == "nll_ratio":
        value = nll / base if nll is not None and base else None
        return _Case("NLL of the final model over the source's", value, high=limit)
    value = nll - base if nll is not None and base is not None else None
    return _Case("NLL of the final model minus the source's, nats per token", value, high=limit)


def _generation(gate: str, limit: float, final: Report, source: Report) -> _Case:
    if gate == "loops":
        base = source.get("loops")
        high = None if base is None else base + limit
        return _Case("answers that loop; the source's own and a margin are allowed", final.get("loops"), high)
    if gate == "stop_rate":
        base = source.get("stop_rate")
        low = None if base is None else base - limit
        return _Case("share of answers that end by themselves", final.get("stop_rate"), low=low)
    ratio = final.get("median_length_ratio")
    why = "median length of an answer over the teacher's"
    return _Case(why, ratio, high=limit) if gate == "length_high" else _Case(why, ratio, low=limit)


def _size(limit: float, report: Report) -> _Case:
    target = report["target"]
    if not target.get("asked") or "max_nll_rise" in target["asked"]:
        return _Case("no size was asked", off=True)
    after, asked = _asked(target, len(report.get("plan", {}).get("layers", ())))
    value = after / asked if after and asked else None
    return _Case(f"size reached over size asked ({target['asked']})", value, high=1 + limit)


def _asked(target: Report, layers: int) -> tuple[float, float]:
    """(what the plan reached, what was asked), both in neurons or both in parameters."""
    key, _, text = str(target["asked"]).partition("=")
    scale = {"K": 1e3, "M": 1e6, "B": 1e9}.get(text[-1:].upper(), 1.0)
    number = float(text[:-1] if scale > 1 else text) * scale
    if key == "ffn":
        whole = target["neurons_before"] if number <= 1 else layers
        return target["neurons_after"], number * whole
    return target["params_after"], number * (target["params_before"] if key == "ratio" else 1)


def _finite(report: Report) -> GateResult:
    """Models given to compare are not judged: what they do says nothing of this output."""
    own = [c for c in report["candidates"] if c["role"] != "compare"]
    bad = list(_infinite({**report, "candidates": own, "gates": ()}, ""))
    why = f"numbers that are not finite{': ' + ', '.join(bad[:3]) if bad else ''}"
    return GateResult("finite", float(len(bad)), 0.0, not bad, why)


def _infinite(value: Any, path: str) -> Iterator[str]:
    """Dotted paths of the non-finite numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path.removeprefix(".")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _infinite(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _infinite(item, f"{path}[{i}]")
