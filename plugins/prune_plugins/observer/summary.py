"""Prints the report's table, gates and next commands at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from prune.run import Run


@hookimpl
def prune_run_done(run: Run, outcome: Mapping[str, Any]) -> None:
    """Also where a gate refused the output: the report says which and by how much."""
    path = report_of(run)
    if path is None:
        return
    from rich.console import Console

    from prune.report import summary_table

    Console().print(summary_table(json.loads(path.read_text("utf-8"))))


def report_of(run: Run) -> Path | None:
    """``report.json`` of the last step that wrote one."""
    found = (path for step in reversed(run.steps) for path in sorted(step.dir.rglob("report.json")))
    return next(found, None)
