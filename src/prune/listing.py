"""``prune plugins``: every installed plugin, what it offers, and why one is not in use."""

from __future__ import annotations

from .errors import PluginError, UsageError
from .plugins import GROUPS, Found, manager, offered, plugged


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
    parts = [*(f"{g}={n}" for g, hook in GROUPS.items() for n in _names(hook, p.name))]
    parts += [f"stage {n}" for n in _names("prune_stages", p.name)]
    plugin = manager().get_plugin(p.name)
    hooks = sorted(h.name for h in manager().get_hookcallers(plugin) or [])
    return ", ".join([*parts, *(h for h in hooks if h not in (*GROUPS.values(), "prune_stages"))])


def _names(hook: str, plugin: str) -> list[str]:
    try:
        return [name for name, _, owner in offered(hook) if owner == plugin]
    except PluginError:  # of another plugin, or its own: the other columns still tell
        return []
