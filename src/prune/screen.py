"""Reasons not to start, from the model and data inspection and from plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from . import isolate, locate, plugins
from .errors import PluginError, UsageError
from .findings import Finding
from .isolate import Crash


def inspect(cfg: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    """What a look at source and data finds, in a child process: (text for a person, findings)."""
    source = locate.source(cfg["source"])
    data = locate.data(cfg["data"]) if cfg["data"] else None
    seen = isolate.call(
        "preflight", _inspect, cfg, source, data, isolated=cfg["isolate"], threads=cfg["threads"]
    )
    return seen["text"], [*seen["findings"], *_of_plugins(cfg)]


def _inspect(cfg: Mapping[str, Any], source: Path, data: Path | None) -> dict[str, Any]:
    from .preflight import inspect

    return inspect(dict(cfg), source, data)


def _of_plugins(cfg: Mapping[str, Any]) -> list[Finding]:
    found: list[Finding] = []
    for impl in plugins.manager().hook.prune_preflight.get_hookimpls():
        try:
            found += cast("list[Finding]", impl.function(*[cfg][: len(impl.argnames)]) or [])
        except Exception as e:
            raise PluginError(f"plugin {impl.plugin_name!r}: prune_preflight: {Crash.of(e)}") from e
    return found


def refuse(findings: Sequence[Finding], more: str = "check=true lists them") -> None:
    """:raises UsageError: with the first fatal finding."""
    fatal = [f for f in findings if f.fatal]
    if fatal:
        others = f" (and {len(fatal) - 1} more: {more})" if fatal[1:] else ""
        raise UsageError(f"{fatal[0]}{others}")


def show(cfg: Mapping[str, Any]) -> None:
    """Print all that the inspection found.

    :raises UsageError: where one of the findings is fatal.
    """
    text, findings = inspect(cfg)
    if text:
        print(text.rstrip("\n"))
    for f in findings:
        print(f"{'error' if f.fatal else 'warning'}: {f}")
    refuse(findings, "they are listed above")
