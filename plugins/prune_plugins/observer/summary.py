"""The end of a run: its report with times in the run's folder, its table on screen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from prune.run import Run
    from prune.wire import Step

_rates: dict[str, float] = {}  # candidate -> tokens per second, as eval last told it
_stages: dict[str, float] = {}  # stage -> seconds, of those that were not cached


@hookimpl
def prune_run_start(run: Run) -> None:
    _rates.clear()
    _stages.clear()


@hookimpl
def prune_progress(run: Run, step: Step, done: float, total: float, metrics: Mapping[str, Any]) -> None:
    if {"candidate", "tokens_per_s"} <= metrics.keys():
        _rates[metrics["candidate"]] = metrics["tokens_per_s"]


@hookimpl
def prune_stage_done(run: Run, step: Step, seconds: float, cached: bool) -> None:
    if not cached:
        _stages[step.name] = seconds


@hookimpl
def prune_run_done(run: Run, outcome: Mapping[str, Any]) -> None:
    """Also where a gate refused the output: the report says which and by how much."""
    path = report_of(run)
    if path is None:
        return
    from rich.console import Console

    from prune.report import summary_table, write

    report, speed = json.loads(path.read_text("utf-8")), {**_rates, "stages": dict(_stages)}
    write(report, run.folder, speed)
    Console().print(summary_table(report, speed if _rates else None))


def report_of(run: Run) -> Path | None:
    """``report.json`` of the last step that wrote one."""
    found = (path for step in reversed(run.steps) for path in sorted(step.dir.rglob("report.json")))
    return next(found, None)
