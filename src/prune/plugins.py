"""Finds plugins by entry point and turns what they offer into Hydra groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

import pluggy
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from . import __version__, hookspecs
from .errors import PluginError, hint

#: Hydra config group -> the hook that fills it.
GROUPS = {
    "selector": "prune_selectors",
    "allocator": "prune_allocators",
    "heal": "prune_heals",
    "codec": "prune_codecs",
    "teacher": "prune_teachers",
}
OURS = "prune"  #: the distribution whose parts the engine's own versions stand for


@dataclass(frozen=True)
class Found:
    """An installed plugin; ``fault`` says why it is not in use."""

    name: str
    dist: str
    version: str
    module: str
    fault: str = ""
    disabled: bool = False


class Plugged:
    """The plugin manager with what was found on the way."""

    def __init__(self) -> None:
        from . import stages

        self.pm = pluggy.PluginManager("prune")
        self.pm.add_hookspecs(hookspecs)
        self.pm.register(stages, "stages")
        self.found = [Found("stages", OURS, __version__, "prune.stages")]
        self.disabled = {n.strip() for n in os.environ.get("PRUNE_DISABLE_PLUGINS", "").split(",")}
        for entry in sorted(entry_points(group="prune")):
            self._add(entry, entry.name, entry.value.partition(":")[0])

    def _add(self, entry: EntryPoint, name: str, path: str) -> None:
        """Load one module; a set of plugins lists more of them in ``PLUGINS``."""
        dist, version = (entry.dist.name, entry.dist.version) if entry.dist else ("?", "")
        if name in self.disabled:
            self.found.append(Found(name, dist, version, path, "PRUNE_DISABLE_PLUGINS", disabled=True))
            return
        try:
            plugin = entry.load() if name == entry.name else import_module(path)
            self._register(plugin, name)
        except (Exception, SystemExit) as e:  # whatever a plugin raises on import
            fault = " ".join(str(e).split()) or type(e).__name__
            self.found.append(Found(name, dist, version, path, fault))
            return
        self.found.append(Found(name, dist, version, path))
        for inner in getattr(plugin, "PLUGINS", ()):
            self._add(entry, inner.removeprefix(f"{path}."), inner)

    def _register(self, plugin: Any, name: str) -> None:
        self.pm.register(plugin, name)
        try:
            self.pm.check_pending()  # a misspelt hook
        except Exception:
            self.pm.unregister(plugin)
            raise


@cache
def plugged() -> Plugged:
    """Every installed plugin, and the built-in stages."""
    return Plugged()


def manager() -> pluggy.PluginManager:
    """The hooks of all plugins in use."""
    return plugged().pm


def require_sound() -> None:
    """Refuse to go on with a plugin that cannot be loaded.

    :raises PluginError: naming it, its distribution and the way round it.
    """
    for p in plugged().found:
        if p.fault and not p.disabled:
            raise _refusal(p.name, p.fault)


def _refusal(name: str, reason: str) -> PluginError:
    where = next((f" of {p.dist} {p.version}" for p in plugged().found if p.name == name), "")
    return PluginError(f"plugin {name!r}{where}: {reason} (PRUNE_DISABLE_PLUGINS={name} goes on without it)")


def register_options() -> None:
    """Put every plugin's options in Hydra's store, before Hydra composes."""
    store = ConfigStore.instance()
    for group, hook in GROUPS.items():
        for name, options, plugin in offered(hook):
            try:
                store.store(name, options, group=group, provider=plugin)
            except Exception as e:  # a field type that OmegaConf does not know
                raise _refusal(plugin, f"options of {name!r}: {' '.join(str(e).split())}") from e
    Plugins.instance().register(PluginConf)


class PluginConf(SearchPathPlugin):
    """Puts the YAML folders of plugins behind ours on Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in manager().hook.prune_conf():
            search_path.append("prune-plugin", folder)


def offered(hook: str) -> Iterator[tuple[str, Any, str]]:
    """(name, options, plugin) of every option of ``hook``.

    :raises PluginError: where a name comes twice or options are not a dataclass with ``_target_``.
    """
    owner: dict[str, str] = {}
    for impl in getattr(manager().hook, hook).get_hookimpls():
        for name, options in offers(impl, hook).items():
            if name in owner:
                raise _refusal(impl.plugin_name, f"{hook}: {name!r} comes from {owner[name]!r} too")
            owner[name] = impl.plugin_name
            yield name, options, impl.plugin_name


def offers(impl: pluggy.HookImpl, hook: str) -> dict[str, Any]:
    """{name: options} of one plugin.

    :raises PluginError: as :func:`offered`.
    """
    try:
        found: dict[str, Any] = dict(cast("Mapping[str, Any]", impl.function() or {}))
    except Exception as e:
        raise _refusal(impl.plugin_name, f"{hook}: {type(e).__name__}: {' '.join(str(e).split())}") from e
    for name, options in found.items():
        if not is_dataclass(options) or "_target_" not in {f.name for f in fields(options)}:
            raise _refusal(impl.plugin_name, f"{hook}: {name!r} is not a dataclass with a _target_ field")
    return found


def choice(group: str, target: str) -> dict[str, str]:
    """What a part's cache key says about its origin: its name, and its distribution where it is not ours."""
    hook = GROUPS[group]
    hits = [(n, p) for n, o, p in offered(hook) if o._target_ == target]
    names = {"name": ",".join(n for n, _ in hits) or target}
    return {**names, **(origin(hits[0][1]) if hits else {})}


def origin(plugin: str) -> dict[str, str]:
    """Distribution and version of a plugin, empty for our own."""
    return next((_origin(p) for p in plugged().found if p.name == plugin), {})


def _origin(p: Found) -> dict[str, str]:
    return {} if p.dist == OURS else {"distribution": f"{p.dist} {p.version}"}


def known(group: str) -> list[str]:
    """The installed choices of a group."""
    return sorted(name for name, _, _ in offered(GROUPS[group]))


def stage_class(name: str) -> tuple[type, str]:
    """The class of a stage, and the plugin it comes from.

    :raises UsageError: where no plugin offers it.
    """
    from .errors import UsageError

    offers = {n: (o, p) for n, o, p in offered("prune_stages")}
    if name not in offers:
        raise UsageError(f"stages: unknown stage {name!r}{hint(name, offers)}")
    options, plugin = offers[name]
    module, _, cls = options._target_.rpartition(".")
    try:
        return getattr(import_module(module), cls), plugin
    except Exception as e:
        raise _refusal(plugin, f"stage {name!r}: {type(e).__name__}: {e}") from e


def third_party(modules: tuple[str, ...]) -> str:
    """The plugin that one of these modules belongs to, with its distribution; empty where none does."""
    for p in plugged().found:
        package = p.module.partition(".")[0]
        if p.dist != OURS and any(m.partition(".")[0] == package for m in modules):
            return f"{p.name!r} of {p.dist} {p.version}"
    return ""
