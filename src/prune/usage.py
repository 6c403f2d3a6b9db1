"""``prune --help``: examples, every option with its meaning from the schema, the installed choices."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from .config import TARGETS, RunConfig, conf_path
from .doctext import Option, options
from .plugins import GROUPS, known, manager, plugged

HEAD = """\
prune: makes a language model small for one task, and proves what that cost.

  prune recipe=quickstart
  prune source=Qwen/Qwen3-0.6B data=prompts.jsonl output=out ffn=0.75 codec=q8
  prune -m ffn=0.5,0.75 codec=f16,q8 source=… data=… output='out/${hydra:job.num}'
  prune source=… data=… until=prepare        a set of teacher data, for data= of later runs
  prune source=… ffn=0.5 plan_only=true      widths and parameters, without any pass over data
  prune plugins                              what is installed, and where it comes from
"""
TAIL = """\
One part's options: prune codec=q8 --cfg job --package codec
Shell completion: eval "$(prune -sc install=bash)"
The same command again resumes; PRUNE_DEBUG=1 shows tracebacks; PRUNE_DISABLE_PLUGINS=a,b leaves plugins out.
"""
SECTIONS = {
    "Input and output": ("source", "data", "output"),
    "Target, exactly one": TARGETS,
    "Parts, one of the choices below": tuple(GROUPS),
}


def text() -> str:
    """All of it. Hydra's own help would compose a run, and list every group twice, in half a second."""
    return "\n".join(
        ["".join([HEAD, "\n", *_sections()]) + _section("Choices", dict(_choices())) + TAIL, *_broken()]
    )


def _sections() -> Iterator[str]:
    told = {o.key: o for o in options(RunConfig)}
    for title, names in SECTIONS.items():
        yield _section(title, {n: told.pop(n).text for n in names})
    for title, nested in {"Run": False, "Below a group": True}.items():
        yield _section(title, {_line(o): o.text for o in told.values() if ("." in o.key) is nested})


def _line(option: Option) -> str:
    return f"{option.key}={option.default.strip('`')}"


def _section(title: str, lines: dict[str, str]) -> str:
    return f"{title}\n" + "".join(f"  {name:<28}  {meaning}\n" for name, meaning in lines.items()) + "\n"


def _choices() -> Iterator[tuple[str, str]]:
    """What every group offers, third parties' too; recipes with the first line of their comment."""
    for group in GROUPS:
        yield group, ", ".join(sorted({*known(group), *(name for name, _ in _yaml(group))}))
    for name, path in _yaml("recipe"):
        comment = next(
            (x for x in path.read_text().splitlines() if x.startswith("# ") and "@package" not in x), ""
        )
        yield f"recipe={name}", comment.removeprefix("# ")


def _yaml(group: str) -> Iterator[tuple[str, Traversable]]:
    """(name, file) of a group's YAML in our folder and in those of plugins."""
    for root in [conf_path(), *manager().hook.prune_conf()]:
        folder = (files(root.removeprefix("pkg://")) if root.startswith("pkg://") else Path(root)) / group
        for path in sorted(folder.iterdir() if folder.is_dir() else (), key=lambda p: p.name):
            if path.name.endswith(".yaml"):
                yield path.name.removesuffix(".yaml"), path


def _broken() -> Iterator[str]:
    return (
        f"Not in use: plugin {p.name!r} of {p.dist} {p.version}: {p.fault}"
        for p in plugged().found
        if p.fault
    )
