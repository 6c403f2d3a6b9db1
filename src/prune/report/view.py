"""A report as words: the one wording that HTML, Markdown and the terminal all lay out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import words
from .evidence import evidence, facts
from .schema import with_role
from .tables import Table, candidate_table, gate_table, layer_table, stage_table

Report = Mapping[str, Any]
Speed = Mapping[str, Any]


class Tile(NamedTuple):
    """One headline figure."""

    value: str
    what: str
    detail: str


@dataclass(frozen=True)
class View:
    """Everything a report says, in the order it is said."""

    title: str
    passed: bool
    verdict: str
    tiles: Sequence[Tile]
    evidence: Sequence[str]
    candidates: Table
    final_row: int | None
    gates: Table
    states: Sequence[str]  #: of each gate: "passed", "failed" or "off"
    facts: Sequence[tuple[str, str]]
    layers: Table | None
    warnings: Sequence[str]
    samples: Sequence[Mapping[str, Any]]
    stages: Table | None
    commands: Sequence[str]


def view(report: Report, speed: Speed | None = None) -> View:
    """:param speed: ``{candidate: tokens per second, "stages": {stage: seconds}}``, where it was measured."""
    roles = [c["role"] for c in report["candidates"]]
    return View(
        title=f"{report['source']['name']}, made small",
        passed=report["passed"],
        verdict=verdict(report),
        tiles=tiles(report),
        evidence=evidence(report),
        candidates=candidate_table(report, speed),
        final_row=roles.index("final") if "final" in roles else None,
        gates=gate_table(report),
        states=[{True: "passed", False: "failed", None: "off"}[g["passed"]] for g in report["gates"]],
        facts=facts(report),
        layers=layer_table(report),
        warnings=[*report["data"].get("warnings", ()), *report.get("plan", {}).get("warnings", ())],
        samples=report.get("samples", ()),
        stages=stage_table(speed),
        commands=report.get("next", ()),
    )


def verdict(report: Report) -> str:
    """One sentence: kept or refused, how much smaller, at what loss."""
    source, final = with_role(report, "source"), with_role(report, "final")
    if not (source and final):
        return f"{_judged(report)}: source and final model were not both scored."
    cost = words.delta(final["delta"], bounds=False)
    cost = f"{cost} nats per answer token" if final["delta"] else f"loss {cost}"
    return f"{_judged(report)}: {words.smaller(source['bytes'], final['bytes'])} on disk, {cost}."


def _judged(report: Report) -> str:
    if report["passed"]:
        return "Passed"
    failed = [g["gate"] for g in report["gates"] if g["passed"] is False]
    return f"Refused by {', '.join(failed)}" if failed else "Refused"


def tiles(report: Report) -> list[Tile]:
    source, final = with_role(report, "source"), with_role(report, "final")
    if not (source and final):
        return []
    before, after = report["target"]["params_before"], report["target"]["params_after"]
    files = f"{words.size(source['bytes'])} → {words.size(final['bytes'])}"
    loss = f"{words.fixed(source['nll'])} → {words.fixed(final['nll'])}"
    return [
        Tile(words.smaller(source["bytes"], final["bytes"]), "on disk", files),
        Tile(
            words.smaller(before, after), "in parameters", f"{words.params(before)} → {words.params(after)}"
        ),
        Tile(words.delta(final["delta"], bounds=False), "nats per answer token", loss),
    ]
