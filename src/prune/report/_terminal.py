"""The end of a run in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from .tables import Table
from .view import View, view

_STYLES = {"passed": "green", "failed": "bold red", "off": "dim"}


def summary_table(report: Mapping[str, Any], speed: Mapping[str, Any] | None = None) -> RenderableType:
    """Candidates, gates, the verdict and what to type next."""
    shown = view(report, speed)
    parts: list[RenderableType] = [
        _candidates(shown.candidates, shown.final_row),
        Text(),
        _gates(shown),
        Text(),
    ]
    parts += [Text(f"warning: {text}", "yellow") for text in shown.warnings]
    parts += [Text(text, "dim") for text in shown.evidence]
    parts.append(Text(shown.verdict, "bold green" if shown.passed else "bold red"))
    if shown.commands:
        parts += [Text("\nnext:"), *(Text(f"  {line}", "cyan") for line in shown.commands)]
    return Group(*parts)


def _candidates(data: Table, strong: int | None) -> RichTable:
    """A column a candidate: that fits a narrow terminal."""
    grid = RichTable(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="dim")
    for i, _ in enumerate(data.rows):
        grid.add_column(justify="right", style="bold" if i == strong else "")
    for head, *cells in zip(data.head, *data.rows, strict=True):
        grid.add_row(Text(head), *(Text(cell.replace(" (", "\n(")) for cell in cells))
    return grid


def _gates(shown: View) -> RichTable:
    """Text objects throughout: a bracket in a name is no markup. Only what did not pass is explained."""
    grid = RichTable(box=None, pad_edge=False, header_style="dim")
    for head in (*shown.gates.head[:4], ""):
        grid.add_column(head)
    for (*cells, why), state in zip(shown.gates.rows, shown.states, strict=True):
        said = "" if state == "passed" else why
        grid.add_row(*(Text(c, _STYLES[state] if c == state else "") for c in (*cells, said)))
    return grid
