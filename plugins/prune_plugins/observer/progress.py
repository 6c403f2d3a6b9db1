"""Live progress on stderr: a line a stage with percent, speed and time left; plain lines off a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from prune.run import Run
    from prune.wire import Step

EVERY = 15.0  #: seconds between two plain lines of a stage

_live: dict[str, tuple[Progress, TaskID]] = {}  # the stage under way, by name
_told: dict[str, float] = {}  # when a stage last had its plain line


@hookimpl
def prune_run_start(run: Run) -> None:
    for name in run.idle:
        _line(f"{name:<11} nothing to do")


@hookimpl
def prune_stage_start(run: Run, step: Step) -> None:
    if not sys.stderr.isatty():
        _told[step.name] = time.monotonic()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<11}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    live = Progress(
        *columns, TextColumn("{task.fields[speed]}"), console=Console(stderr=True), transient=True
    )
    _live[step.name] = live, live.add_task(step.name, total=None, speed="")
    live.start()


@hookimpl
def prune_progress(run: Run, step: Step, done: float, total: float, metrics: Mapping[str, Any]) -> None:
    if step.name in _live:
        live, task = _live[step.name]
        live.update(task, completed=done, total=total, speed=_speed(metrics))
    elif time.monotonic() - _told.get(step.name, 0.0) >= EVERY:
        _told[step.name] = time.monotonic()
        _line(f"{step.name:<11} {100 * done / max(total, 1e-9):3.0f} %  {_speed(metrics)}")


@hookimpl
def prune_notice(run: Run, step: Step, text: str) -> None:
    _line(f"{step.name:<11} {text}")


@hookimpl
def prune_stage_done(run: Run, step: Step, seconds: float, cached: bool) -> None:
    _stop(step.name)
    _line(f"{step.name:<11} {'cached' if cached else f'{seconds:.1f} s'}")


@hookimpl
def prune_run_done(run: Run, outcome: Mapping[str, Any]) -> None:
    for name in list(_live):
        _stop(name)
    if outcome.get("output"):
        _line(f"{outcome['output']} {'is up to date' if outcome.get('up_to_date') else 'is complete'}")


def _speed(metrics: Mapping[str, Any]) -> str:
    """Tokens per second where the stage says so, else its first figures."""
    if "tokens_per_s" in metrics:
        return f"{metrics['tokens_per_s']:,.0f} tokens/s"
    figures = [f"{k} {v:.4g}" for k, v in metrics.items() if isinstance(v, int | float)]
    return "  ".join(figures[:3])


def _line(text: str) -> None:
    """Above the live line, where there is one."""
    live = next((live for live, _ in _live.values()), None)
    if live is None:
        print(text, file=sys.stderr, flush=True)
    else:
        live.console.print(text, markup=False, highlight=False)


def _stop(name: str) -> None:
    if name in _live:
        _live.pop(name)[0].stop()
