"""The contract with plugins, in call order.

The ``prune_*s`` hooks return ``{name: options}``: ``name`` becomes a Hydra option (``codec=NAME``);
``options`` is a dataclass whose fields are the overrides (``codec.group=64``) and whose ``_target_``
is the dotted path of the class that is built from them. :mod:`prune.parts` says what that class offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from .findings import Finding
    from .run import Run
    from .wire import Step

hookspec = pluggy.HookspecMarker("prune")


@hookspec
def prune_conf() -> str:
    """A folder of more YAML options (recipes), as ``pkg://package.conf``."""
    raise NotImplementedError


@hookspec
def prune_stages() -> Mapping[str, type]:
    """Stages that a run's ``stages`` list may name."""
    raise NotImplementedError


@hookspec
def prune_teachers() -> Mapping[str, type]:
    """Teachers: who answers the task prompts."""
    raise NotImplementedError


@hookspec
def prune_selectors() -> Mapping[str, type]:
    """Selectors: in which order the FFN neurons of a layer are worth keeping."""
    raise NotImplementedError


@hookspec
def prune_allocators() -> Mapping[str, type]:
    """Allocators: how wide each layer stays."""
    raise NotImplementedError


@hookspec
def prune_heals() -> Mapping[str, type]:
    """Heal losses: what the narrowed model is trained toward."""
    raise NotImplementedError


@hookspec
def prune_codecs() -> Mapping[str, type]:
    """Codecs: how a weight matrix is stored."""
    raise NotImplementedError


@hookspec
def prune_preflight(cfg: Mapping[str, Any]) -> Iterable[Finding]:
    """Reasons not to start.

    :param cfg: the whole configuration as plain dicts.
    """
    raise NotImplementedError


@hookspec
def prune_run_start(run: Run) -> None:
    """A run is about to start its first step."""


@hookspec
def prune_stage_start(run: Run, step: Step) -> None:
    """A step is about to run (not called for a cached one)."""


@hookspec
def prune_progress(run: Run, step: Step, done: float, total: float, metrics: Mapping[str, Any]) -> None:
    """How far a step is: what a live display, a tracker, a loss plot listens to."""


@hookspec
def prune_notice(run: Run, step: Step, text: str) -> None:
    """A line that a person should see: a warning, a fallback, a choice that was made."""


@hookspec
def prune_stage_done(run: Run, step: Step, seconds: float, cached: bool) -> None:
    """A step has finished, or was found in the cache."""


@hookspec
def prune_gates(report: Mapping[str, Any]) -> Iterable[Finding]:
    """Reasons to refuse the output, beside the built-in gates.

    :param report: what ``report.json`` holds.
    """
    raise NotImplementedError


@hookspec
def prune_run_done(run: Run, outcome: Mapping[str, Any]) -> None:
    """The run is over.

    :param outcome: ``exit_code``, and ``error`` or the facts of the last step.
    """
