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
    parts: list[RenderableType] = [_table(shown.candidates, shown.final_row), _gates(shown)]
    parts += [Text(f"warning: {text}", "yellow") for text in shown.warnings]
    parts += [Text(text, "dim") for text in shown.evidence]
    parts.append(Text(shown.verdict, "bold green" if shown.passed else "bold red"))
    if shown.commands:
        parts += [Text("next:"), *(Text(f"  {line}", "cyan") for line in shown.commands)]
    return Group(*parts)


def _table(data: Table, strong: int | None) -> RichTable:
    grid = RichTable(box=None, pad_edge=False, header_style="dim")
    for i, head in enumerate(data.head):
        grid.add_column(Text(head), justify="right" if i else "left")
    for i, row in enumerate(data.rows):
        cells = (Text(cell.replace(" (", "\n(")) for cell in row)
        grid.add_row(*cells, style="bold" if i == strong else None)
    return grid


def _gates(shown: View) -> RichTable:
    """Text objects throughout: a bracket in a name is no markup."""
    grid = RichTable(box=None, pad_edge=False, header_style="dim")
    for head in shown.gates.head:
        grid.add_column(head)
    for row, state in zip(shown.gates.rows, shown.states, strict=True):
        grid.add_row(*(Text(cell, _STYLES[state] if cell == state else "") for cell in row))
    return grid
