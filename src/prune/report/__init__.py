"""The report of a run, as JSON, Markdown, one HTML page, a terminal table and a model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .card import model_card
from .commands import next_commands
from .markdown import markdown
from .schema import Report, dumps, with_role

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "Report",
    "dumps",
    "html",
    "markdown",
    "model_card",
    "next_commands",
    "summary_table",
    "with_role",
    "write",
]


def html(report: Mapping[str, Any], speed: Mapping[str, Any] | None = None) -> str:
    """One self-contained page.

    :param report: what ``report.json`` holds.
    :param speed: ``{candidate: tokens per second, "stages": {stage: seconds}}``; never part of a folder
        that must be reproducible to the byte.
    """
    from ._html import page

    return page(report, speed)


def summary_table(report: Mapping[str, Any], speed: Mapping[str, Any] | None = None) -> RenderableType:
    """What a terminal shows at the end of a run: candidates, gates, verdict, next commands."""
    from ._terminal import summary_table

    return summary_table(report, speed)


def write(report: Mapping[str, Any], folder: Path, speed: Mapping[str, Any] | None = None) -> list[Path]:
    """``report.json``, ``report.md`` and ``report.html`` in ``folder``; the paths written."""
    texts = {"json": dumps(report), "md": markdown(report, speed), "html": html(report, speed)}
    paths = [folder / f"report.{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths
