"""The tables of a report, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from . import words

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows of text under a head; ``missing`` names the columns that nothing was measured for."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    missing: Sequence[str] = ()


def _of(generation: str, show: Callable[[Any], str]) -> Callable[[Row], str]:
    """A column of the generation statistics."""
    return lambda c: show(c["generation"][generation]) if c["generation"] else words.NOT_MEASURED


def _loops(c: Row) -> str:
    found = c["generation"]
    return f"{found['loops']} of {found['prompts']}" if found else words.NOT_MEASURED


_ALWAYS: dict[str, Callable[[Row], str]] = {
    "model": lambda c: str(c["name"]),
    "on disk": lambda c: words.size(c["bytes"]),
    "parameters": lambda c: words.params(c["params"]),
    "NLL": lambda c: words.fixed(c["nll"]),
    "Δ NLL (95 %)": lambda c: "–" if c["role"] == "source" else words.delta(c["delta"]),
    "perplexity": lambda c: words.fixed(c["perplexity"]),
}
_WHERE_MEASURED: dict[str, Callable[[Row], str]] = {
    "KL to source (95 %)": lambda c: "–" if c["role"] == "source" else words.mean(c["kl"]),
    "general perplexity": lambda c: words.fixed(c["general_perplexity"], 2),
    "loops": _loops,
    "length": _of("median_length_ratio", lambda x: words.fixed(x, 2)),
    "stops": _of("stop_rate", lambda x: words.percent(x, 0)),
}


def candidate_table(report: Row, speed: Row | None) -> Table:
    """One row a candidate; a column that is empty for all is left out and named as missing."""
    found = report["candidates"]
    columns = {**_ALWAYS, **_WHERE_MEASURED}
    if speed is not None:
        columns["tokens/s"] = lambda c: words.fixed(speed.get(c["name"]), 1)
    cells = {head: [show(c) for c in found] for head, show in columns.items()}
    empty = [h for h in cells if h not in _ALWAYS and set(cells[h]) <= {words.NOT_MEASURED, "–"}]
    shown = [h for h in cells if h not in empty]
    return Table(shown, list(zip(*(cells[h] for h in shown), strict=True)), empty)


#: Gates whose value must not fall below the limit; that of every other must not exceed it.
_LOWER = ("stop_rate", "length_low")


def gate_table(report: Row) -> Table:
    rows = [(g["gate"], *_compared(g), _WORD[g["passed"]], g["why"]) for g in report["gates"]]
    return Table(("gate", "measured", "allowed", "verdict", "what it looks at"), rows)


_WORD = {True: "passed", False: "failed", None: "off"}


def _compared(gate: Row) -> tuple[str, str]:
    if gate["passed"] is None:
        return "–", "–"
    sign = "≥" if gate["gate"] in _LOWER else "≤"
    limit = "–" if gate["limit"] is None else f"{sign} {words.significant(gate['limit'])}"
    return words.significant(gate["value"]), limit


def layer_table(report: Row) -> Table | None:
    """Width, refit error and refit of each layer; None where nothing was pruned."""
    layers = report.get("plan", {}).get("layers")
    if not layers:
        return None
    folds = {site(f): f for f in report.get("fold", {}).get("layers", ())}
    rows = _blocks([{**row, "fold": folds.get(site(row))} for row in layers])
    head = (
        "layer",
        "kept",
        "of",
        "error train",
        "error val",
        "tokens/neuron",
        "refit",
        "plain → refit",
        "damping",
    )
    return Table(head, [(*_width(row), *_fold(row["fold"])) for row in rows])


def site(row: Row) -> tuple[int, str]:
    """What tells a row of the plan or the fold from the others: its layer, and its part of that."""
    return row["layer"], row.get("part", "")


def _blocks(rows: Sequence[Row]) -> list[Row]:
    """Rows as the table shows them: the experts of a layer are one."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        layer, part = site(row)
        groups.setdefault((layer, part.partition("-")[0]), []).append(row)
    return [_experts(found) if part == "expert" else found[0] for (_, part), found in groups.items()]


def _experts(rows: Sequence[Row]) -> Row:
    """The mean errors of the experts that stay, their least tokens, all their refits."""
    kept = [row for row in rows if row["kept"]]
    widths, folds = sorted({row["kept"] for row in kept}), [row["fold"] for row in kept if row["fold"]]
    choices = Counter(fold["choice"] for fold in folds).most_common()
    refits = {
        "choice": ", ".join(f"{n} {name}" for name, n in choices),
        "error_plain": _mean(folds, "error_plain"),
        "error": _mean(folds, "error"),
        "damping": max((float(fold["damping"]) for fold in folds), default=None),
    }
    return {
        **rows[0],
        "part": f"{len(kept)} of {len(rows)} experts",
        "kept": widths[0] if len(widths) == 1 else f"{widths[0]} to {widths[-1]}",
        "rel_train": _mean(kept, "rel_train"),
        "rel_val": refits["error"],
        "tokens_per_neuron": min(row["tokens_per_neuron"] for row in kept),
        "fold": refits if folds else None,
    }


def _mean(rows: Sequence[Row], key: str) -> float | None:
    return fmean(float(row[key]) for row in rows) if rows else None


def _width(row: Row) -> tuple[str, ...]:
    kept = f"{row['kept']} (protected)" if row["protected"] else str(row["kept"])
    errors = (words.significant(row[k]) for k in ("rel_train", "rel_val", "tokens_per_neuron"))
    return " ".join(map(str, site(row))).strip(), kept, str(row["full"]), *errors


def _fold(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return ("–", "–", "–")
    errors = f"{words.significant(row['error_plain'])} → {words.significant(row['error'])}"
    return str(row["choice"]), errors, words.significant(row["damping"])


def stage_table(speed: Row | None) -> Table | None:
    """How long each stage took; None where that was not measured."""
    stages = (speed or {}).get("stages")
    return Table(("stage", "time"), [(k, words.seconds(v)) for k, v in stages.items()]) if stages else None
