"""JOURNAL.md in the run's folder: what was asked, what happened, what came out, for a person."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from prune.run import Run
    from prune.wire import Step


@hookimpl
def prune_run_start(run: Run) -> None:
    told = {k: run.cfg[k] for k in ("source", "data", "output", "ffn", "size", "ratio")}
    told["target.max_nll_rise"] = run.cfg["target"]["max_nll_rise"]
    asked = {k: v for k, v in told.items() if v is not None}
    _write(run, f"# {time.strftime('%Y-%m-%d %H:%M:%S')}", "", *(f"- {k}: {v}" for k, v in asked.items()), "")
    _write(run, *(f"- {name}: nothing to do" for name in run.idle))


@hookimpl
def prune_notice(run: Run, step: Step, text: str) -> None:
    _write(run, f"- {step.name}: {text}")


@hookimpl
def prune_stage_done(run: Run, step: Step, seconds: float, cached: bool) -> None:
    _write(run, f"- **{step.name}** {'cached' if cached else f'{seconds:.1f} s'} (`{step.dir.name}`)")


@hookimpl
def prune_run_done(run: Run, outcome: Mapping[str, Any]) -> None:
    _write(run, "", outcome.get("error") or f"Output: {outcome.get('output', 'none asked')}")


def _write(run: Run, *lines: str) -> None:
    with (run.folder / "JOURNAL.md").open("a") as f:
        f.writelines(f"{line}\n" for line in lines)
