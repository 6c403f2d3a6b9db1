"""A stage, and the job it is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


def _silent(done: float, total: float, **metrics: Any) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Job:
    """All a stage may see: what its cache key covers and nothing else."""

    options: Mapping[str, Any]  #: the config nodes it ``uses``, as plain dicts, lists and scalars
    inputs: Mapping[str, Path]  #: artifact -> file or folder (of its latest writer)
    versions: Mapping[str, Mapping[str, Path]]  #: artifact -> {step that wrote it: path}, in run order
    out: Path  #: scratch folder; committed to the cache when ``run`` returns
    keep: Path  #: folder for what must outlive an interruption
    keys: Mapping[str, str] = field(default_factory=dict)  #: artifact -> key of its content, as in ``inputs``
    progress: Callable[..., None] = field(default=_silent)  #: ``progress(done, total, **metrics)``
    notice: Callable[[str], None] = field(default=print)  #: a line for the person and the journal


class Stage:
    """One step of a run. Its result may depend on what it declares here and on nothing else."""

    uses: ClassVar[tuple[str, ...]] = ()  #: config nodes it is handed (``"plan"``, ``"eval.prompts"``)
    tunes: ClassVar[tuple[str, ...]] = ()  #: of these, those that do not decide its result: not in the key
    files: ClassVar[tuple[str, ...]] = ()  #: of these, paths or lists of paths: their *content* is in the key
    reads: ClassVar[tuple[str, ...]] = ()  #: artifacts of earlier steps
    sees: ClassVar[tuple[str, ...]] = ()  #: artifacts whose every version it reads, if there are any
    writes: ClassVar[tuple[str, ...]] = ()  #: artifacts it leaves in ``out``, each under its own name
    keeps: ClassVar[str | None] = (
        None  #: a cache folder for ``Job.keep`` that outlives steps; None: until done
    )
    version: ClassVar[int] = 1  #: raise when the same inputs give another result

    def idle(self, options: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
        """True where this choice asks nothing of the stage: the step is then left out of the run."""
        return False

    def settle(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """What of the options enters the key: different ones that settle alike share a step."""
        return options

    def run(self, job: Job) -> dict[str, Any]:
        """Do the work; the returned JSON facts go into the step's manifest."""
        raise NotImplementedError
