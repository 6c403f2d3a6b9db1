"""From a configuration to steps: which artifact each stage reads, and the key of its result."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import identity, locate, plugins
from .errors import UsageError
from .identity import Hashes
from .stage import Stage


@dataclass(frozen=True)
class Version:
    """One writing of an artifact: by which step, where, and the key of its content."""

    writer: str
    path: Path
    key: str


@dataclass(frozen=True, eq=False)
class Step:
    """A stage with its options and inputs; ``own`` is what its key is the hash of."""

    name: str
    stage: Stage
    plugin: str
    options: Mapping[str, Any]
    inputs: Mapping[str, Path]
    versions: Mapping[str, Mapping[str, Path]]
    own: Mapping[str, Any]
    dir: Path  #: <cache>/<name>-<key>

    @property
    def key(self) -> str:
        return self.dir.name.rpartition("-")[2]


@dataclass
class Wiring:
    """The steps of a run in order, the stages left out, and every artifact with its versions."""

    steps: list[Step] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    artifacts: dict[str, list[Version]] = field(default_factory=dict)

    def writer(self, artifact: str) -> Step | None:
        """The step whose version of ``artifact`` is the latest."""
        versions = self.artifacts.get(artifact, [])
        return next((s for s in self.steps if versions and s.name == versions[-1].writer), None)


def wire(cfg: Mapping[str, Any], hashes: Hashes) -> Wiring:
    """The steps that ``cfg`` asks for; reads inputs, writes nothing.

    :raises UsageError: on an absent input, an unknown stage or a wrong order.
    """
    wiring = Wiring(artifacts=_seeds(cfg, hashes))
    for name in cfg["stages"]:
        _add(wiring, name, cfg, hashes)
        if name == cfg["until"]:
            break
    return wiring


def _seeds(cfg: Mapping[str, Any], hashes: Hashes) -> dict[str, list[Version]]:
    source = locate.source(cfg["source"])
    seed = Version("source", source, identity.of_source(source, hashes))
    seeds = {"source": [seed], "weights": [seed]}
    if cfg["data"]:
        data = locate.data(cfg["data"])
        seeds["data"] = [Version("data", data, identity.of_path("data", data, hashes))]
    return seeds


def _add(wiring: Wiring, name: str, cfg: Mapping[str, Any], hashes: Hashes) -> None:
    cls, plugin = plugins.stage_class(name)
    stage: Stage = cls()
    had = wiring.artifacts
    absent = [a for a in stage.reads if a not in had]
    if absent:
        raise UsageError(f"stages: {name!r} reads {absent[0]!r}, which no earlier stage writes")
    options, keyed = _options(stage, cfg, hashes)
    inputs = {a: had[a][-1].path for a in stage.reads}
    if _idle(stage, name, options, inputs):
        wiring.idle.append(name)
        return
    own = {
        "stage": name,
        "version": stage.version,
        **({"from": o} if (o := plugins.origin(plugin)) else {}),
        "options": keyed,
        "inputs": {a: had[a][-1].key for a in stage.reads},
        "versions": {a: {v.writer: v.key for v in had.get(a, ())} for a in stage.sees},
    }
    versions = {a: {v.writer: v.path for v in had.get(a, ())} for a in stage.sees}
    place = locate.absolute(cfg["cache"]) / f"{name}-{identity.digest(own)[:16]}"
    step = Step(name, stage, plugin, options, inputs, versions, own, place)
    wiring.steps.append(step)
    for artifact in stage.writes:
        had[artifact] = [*had.get(artifact, []), Version(name, step.dir / artifact, f"{step.key}/{artifact}")]
    if "source" in stage.writes:  # another format of the same model takes the given one's place
        had["source"] = had["weights"] = [replace(had["source"][-1], writer="source")]


def _idle(stage: Stage, name: str, options: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
    """:raises UsageError: where a part refuses its options."""
    try:
        return stage.idle(options, inputs)
    except (ValueError, TypeError) as e:
        raise UsageError(f"stage {name}: {e}") from e


def _options(stage: Stage, cfg: Mapping[str, Any], hashes: Hashes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the stage is handed, and what of it goes into the key: paths there, their content here."""
    options = {node: deepcopy(_select(cfg, node)) for node in stage.uses}
    keyed = deepcopy(options)
    for node in stage.files:
        used = next(u for u in stage.uses if node == u or node.startswith(f"{u}."))
        inner = node.removeprefix(used).split(".")[1:]
        holder, name = _holder(options, used, inner)
        if holder.get(name):
            holder[name], identities = _contents(node, holder[name], hashes)
            _holder(keyed, used, inner)[0][name] = identities
    settled = stage.settle({node: value for node, value in keyed.items() if node not in stage.tunes})
    return options, {node: _keyed(node, value) for node, value in settled.items()}


def _select(cfg: Mapping[str, Any], node: str) -> Any:
    """The value of a dotted node; None where the chosen part has no such option."""
    first, *inner = node.split(".")
    value: Any = cfg[first]
    for part in inner:
        value = value.get(part) if first in plugins.GROUPS else value[part]
    return value


def _holder(options: dict[str, Any], used: str, inner: list[str]) -> tuple[dict[str, Any], str]:
    """The dict that holds a node, and the node's name in it."""
    holder, name = options, used
    for part in inner:
        holder, name = holder[name], part
    return holder, name


def _contents(node: str, value: Any, hashes: Hashes) -> tuple[Any, Any]:
    """Absolute paths, and the identities of what lies there."""
    if isinstance(value, list):
        pairs = [_contents(node, v, hashes) for v in value]
        return [p for p, _ in pairs], [i for _, i in pairs]
    part = node.partition(".")[0] in plugins.GROUPS
    path = locate.find(node, value) if part else locate.plain(node, value)
    if path is None:  # a part's own notion: the name of an API's model
        return value, value
    return str(path), identity.of_source(path, hashes)


def _keyed(node: str, value: Any) -> Any:
    """A part by its name and distribution: the path of its class may move."""
    if node not in plugins.GROUPS:
        return value
    return {k: v for k, v in value.items() if k != "_target_"} | {
        "_from_": plugins.choice(node, value["_target_"])
    }
