"""``prune plugins``: every installed plugin, what it offers, and why one is not in use."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import PluginError, UsageError
from .plugins import GROUPS, Found, manager, offers, plugged


def show(argv: list[str]) -> None:
    """Print the table.

    :raises UsageError: on arguments: it takes none.
    """
    from rich.console import Console
    from rich.table import Table

    if argv:
        raise UsageError(f"prune plugins takes no argument, got {argv[0]!r}")
    table = Table("plugin", "distribution", "offers")
    for p in plugged().found:
        if offers := _offers(p):
            table.add_row(p.name, f"{p.dist} {p.version}", offers)
    Console(soft_wrap=not Console().is_terminal).print(table)


def _offers(p: Found) -> str:
    """Its parts and the other hooks it has; empty for a set, whose members have lines of their own."""
    if p.fault:
        return f"disabled by {p.fault}" if p.disabled else f"broken: {p.fault}"
    try:
        return ", ".join(_parts(p.name))
    except PluginError as e:
        return f"broken: {e}"


def _parts(name: str) -> Iterator[str]:
    kinds = {hook: f"{group}=" for group, hook in GROUPS.items()} | {"prune_stages": "stage "}
    for caller in sorted(manager().get_hookcallers(manager().get_plugin(name)) or [], key=lambda c: c.name):
        for impl in caller.get_hookimpls():
            if impl.plugin_name == name:
                kind = kinds.get(caller.name)
                yield from [kind + n for n in offers(impl, caller.name)] if kind else [caller.name]
