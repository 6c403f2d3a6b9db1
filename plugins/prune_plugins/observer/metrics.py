"""metrics.jsonl, config.yaml and outcome.json in the run's folder: what a tracker or a script reads."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from prune.run import Run
    from prune.wire import Step


@hookimpl
def prune_run_start(run: Run) -> None:
    import yaml  # type: ignore[import-untyped]

    (run.folder / "config.yaml").write_text(
        yaml.safe_dump(dict(run.cfg), sort_keys=False, allow_unicode=True)
    )


@hookimpl
def prune_progress(run: Run, step: Step, done: float, total: float, metrics: Mapping[str, Any]) -> None:
    _append(run, {"stage": step.name, "done": done, "total": total, **metrics})


@hookimpl
def prune_stage_done(run: Run, step: Step, seconds: float, cached: bool) -> None:
    _append(run, {"stage": step.name, "seconds": round(seconds, 3), "cached": cached})


@hookimpl
def prune_run_done(run: Run, outcome: Mapping[str, Any]) -> None:
    (run.folder / "outcome.json").write_text(json.dumps(outcome, indent=1, default=str))


def _append(run: Run, record: Mapping[str, Any]) -> None:
    with (run.folder / "metrics.jsonl").open("a") as f:
        f.write(json.dumps({"time": round(time.time(), 3), **record}, default=str) + "\n")
