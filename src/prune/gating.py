"""Whether a finished run may publish."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import plugins, publish
from .errors import GateFailed, StageError
from .identity import Hashes
from .isolate import Crash
from .run import Run
from .wire import Wiring


def judge(run: Run, wiring: Wiring, output: Path, hashes: Hashes) -> None:
    """Let the report and the plugins' gates speak.

    :raises GateFailed: where one refuses; with ``write_on_fail`` the model lies in ``<output>.rejected``.
    """
    reporter = wiring.writer("report")
    if reporter is None:
        return
    facts = run.facts[reporter.name]
    report = reporter.dir / "report"
    reasons = [] if facts.get("passed", True) else list(facts.get("failed", ["a gate refused"]))
    reasons += _of_plugins(report / "report.json")
    if not reasons:
        return
    kept = f"write_on_fail=true keeps the model; report: {report}"
    if run.cfg["write_on_fail"]:
        place = publish.rejected(output)
        publish.write(place, wiring, facts, hashes)
        kept = f"the model is in {place}"
    more = f" (and {len(reasons) - 1} more)" if reasons[1:] else ""
    raise GateFailed(f"gate failed: {reasons[0]}{more}; {kept}")


def _of_plugins(path: Path) -> list[str]:
    impls = plugins.manager().hook.prune_gates.get_hookimpls()
    if not impls or not path.is_file():
        return []
    report = json.loads(path.read_text())
    return [why for impl in impls for why in _asked(impl, report)]


def _asked(impl: Any, report: Mapping[str, Any]) -> list[str]:
    try:
        found = impl.function(*[report][: len(impl.argnames)]) or []
        return [str(f) for f in found if f.fatal]
    except Exception as e:
        raise StageError(f"plugin {impl.plugin_name!r} failed in prune_gates: {Crash.of(e)}") from e
