"""A multirun: what each job left in its folder, the table at the end, and no folder where no job worked."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from .errors import ExitCode

REFUSED = (ExitCode.USAGE, ExitCode.BUSY)  #: exit codes of jobs that did no work
COLUMNS = {
    "neurons": "FFN neurons",
    "params": "parameters",
    "bytes": "bytes",
    "nll_source": "NLL source",
    "nll": "NLL final",
}


class Summary(Callback):
    """Runs in the launching process, whatever the launcher."""

    exit_code = 0
    folder: Path | None = None  #: of the sweep under way
    made: tuple[Path, ...] = ()  #: it and its parents, as far as the sweep makes them

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir).absolute()
        Summary.folder, Summary.made = folder, tuple(p for p in (folder, *folder.parents) if not p.exists())

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        if Summary.folder is not None:
            jobs = outcomes(Summary.folder)
            show(jobs)
            Summary.exit_code = max([Summary.exit_code, *(o["exit_code"] for _, o in jobs)])


def announce() -> None:
    """Say which job of a sweep begins."""
    if _sweeping():
        told = " ".join(HydraConfig.get().overrides.task)
        print(f"\njob {HydraConfig.get().job.num}  {told}", file=sys.stderr)


def leave(outcome: Mapping[str, Any]) -> None:
    """Keep what became of this job, for the table and the exit code."""
    Summary.exit_code = max(Summary.exit_code, int(outcome["exit_code"]))
    if _sweeping():
        folder = Path(HydraConfig.get().runtime.output_dir)
        record = {"overrides": list(HydraConfig.get().overrides.task), **outcome}
        (folder / "outcome.json").write_text(json.dumps(record))


def _sweeping() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def outcomes(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """(job, outcome) of every job that has ended, in the order of their numbers."""
    found = sorted(folder.rglob("outcome.json"), key=lambda p: (len(p.parent.name), str(p)))
    return [(p.parent.relative_to(folder).as_posix(), json.loads(p.read_text())) for p in found]


def show(jobs: list[tuple[str, dict[str, Any]]]) -> None:
    """The table: one line a job, the columns that any job has."""
    from rich.console import Console
    from rich.table import Table

    columns = {k: title for k, title in COLUMNS.items() if any(k in o for _, o in jobs)}
    table = Table("job", "overrides", *columns.values(), "result")
    for (name, o), told in zip(jobs, varying([o["overrides"] for _, o in jobs]), strict=True):
        cells = [_cell(o.get(k)) for k in columns]
        table.add_row(name, " ".join(told), *cells, o.get("error") or o.get("output") or "done")
    Console().print(table)


def varying(jobs: list[list[str]]) -> list[list[str]]:
    """Each job's overrides without what all have; the output stands in the result."""
    shared = set.intersection(*map(set, jobs)) if len(jobs) > 1 else set()
    return [[o for o in job if o not in shared and not o.startswith("output=")] for job in jobs]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def clean_up() -> None:
    """Remove the sweep's folder again where no job did any work."""
    folder = Summary.folder
    if folder is None or folder not in Summary.made or not folder.exists():
        return
    if all(o["exit_code"] in REFUSED for _, o in outcomes(folder)):
        shutil.rmtree(folder)
        for parent in Summary.made[1:]:
            if parent.exists() and not any(parent.iterdir()):
                parent.rmdir()
