"""A run while it runs: its folder, its steps, and who watches it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import locate, plugins
from .isolate import Crash
from .wire import Wiring


class Run:
    """What observers are handed.

    ``folder`` is ``<cache>/runs/<timestamp>-<n>``; ``idle`` are the stages with nothing to do;
    ``facts`` grows by a step's facts as it finishes.
    """

    def __init__(self, cfg: Mapping[str, Any], wiring: Wiring) -> None:
        self.cfg = cfg
        self.steps = wiring.steps
        self.idle = wiring.idle
        self.facts: dict[str, Mapping[str, Any]] = {}
        self.faults: dict[str, str] = {}  #: observer -> why it is no longer called
        self.folder = _folder(locate.absolute(cfg["cache"]) / "runs")

    def tell(self, hook: str, **what: Any) -> None:
        """Call every observer; one that raises is left out from then on."""
        for impl in getattr(plugins.manager().hook, hook).get_hookimpls():
            if impl.plugin_name not in self.faults:
                self._tell(impl, hook, {"run": self, **what})

    def _tell(self, impl: Any, hook: str, what: Mapping[str, Any]) -> None:
        try:
            impl.function(*(what[name] for name in impl.argnames))
        except (Exception, SystemExit) as e:
            self.faults[impl.plugin_name] = f"{hook}: {Crash.of(e)}"


def _folder(runs: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    runs.mkdir(parents=True, exist_ok=True)
    n = 1
    while True:
        try:
            (runs / f"{stamp}-{n}").mkdir()
            return runs / f"{stamp}-{n}"
        except FileExistsError:
            n += 1
