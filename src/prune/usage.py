"""``prune --help``: examples, every option with its meaning from the schema, the installed choices."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from .config import RunConfig, conf_path
from .doctext import Option, options
from .plugins import GROUPS

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
    "Target, exactly one": ("ffn", "size", "ratio"),
    "Parts, one of the choices below": tuple(GROUPS),
}


def text() -> str:
    """The help, as a template of Hydra's, in which a dollar sign is doubled."""
    return f"{HEAD}\n{''.join(_sections())}".replace("$", "$$") + _choices() + TAIL.replace("$", "$$")


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


def _choices() -> str:
    recipes = _section("Recipes", dict(_recipes())).replace("$", "$$")
    return f"{recipes}Installed choices\n$APP_CONFIG_GROUPS\n"


def _recipes() -> Iterator[tuple[str, str]]:
    """Ours, with the first line of their comment."""
    here = conf_path()
    folder = files("prune") / "conf" if here.startswith("pkg://") else Path(here)
    for path in sorted((folder / "recipe").iterdir(), key=lambda p: p.name):
        comment = next(
            (x for x in path.read_text().splitlines() if x.startswith("# ") and "@package" not in x), "# "
        )
        yield path.name.removesuffix(".yaml"), comment.removeprefix("# ")
