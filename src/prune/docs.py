"""Writes the generated pages of ``docs/`` from the code they describe: ``python -m prune.docs``."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from . import plugins
from .config import RunConfig, conf_path
from .doctext import Option, options
from .errors import ExitCode

if TYPE_CHECKING:
    from .nn.layout import Layout, Mixture

NOTE = "<!-- Written by `python -m prune.docs`: edit the code it describes, not this page. -->"
_HEAD = ("| option | type | default | meaning |", "| --- | --- | --- | --- |")


def exit_codes() -> str:
    """``docs/exit-codes.md``."""
    rows = (f"| {code.value} | {code.name} | {code.meaning} | {code.on_disk} |" for code in ExitCode)
    return _page(
        "# Exit codes",
        NOTE,
        "An error is one line on stderr that names the file, key or tensor and the fix. "
        "`PRUNE_DEBUG=1` shows the traceback too.",
        "\n".join(["| exit | name | meaning | on disk |", "| --- | --- | --- | --- |", *rows]),
    )


def option_page() -> str:
    """``docs/options.md``: the run's own options, then those of every part that `prune` itself ships."""
    return _page(
        "# Options",
        NOTE,
        "Type an option as `key=value`; `null` unsets one. `prune --help` lists what is installed, "
        "third parties' parts included.",
        _table(_chosen(option) for option in options(RunConfig)),
        f"## recipe\n\nWhich stages run, and with what; the default is `{_defaults()['recipe']}`.",
        "\n".join(_recipes()),
        *_parts(),
    )


def family_page() -> str:
    """``docs/families.md``: what is known of each family's layers, from the table that the code goes by."""
    from .nn.layout import LAYOUTS

    columns = (
        "`model_type`",
        "neurons come from",
        "read-out",
        "width in config.json",
        "joins the residual stream",
    )
    head = (f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|")
    return _page(
        "# Model families",
        NOTE,
        "What is compressed: the feed-forward block of every decoder layer. Attention, norms, embeddings, "
        "head and a vision tower stay. A family that is not here is refused at once, by its class.",
        "\n".join([*head, *(row for name in sorted(LAYOUTS) for row in _family_rows(name, LAYOUTS[name]))]),
        _SAVED,
    )


def _family_rows(name: str, layout: Layout) -> Iterator[str]:
    """One for each kind of feed-forward block."""
    if layout.mixture:
        yield from _mixture_rows(name, layout.mixture)
        return
    read_ins = " and ".join(f"`{r.module}`{' (gate over up)' * (r.blocks > 1)}" for r in layout.read_ins)
    behind = "the output"
    if layout.read_out_norm:
        behind = "a norm of the output"
    elif layout.scale_key:
        behind = f"the output times `{layout.scale_key}`"
    yield f"| {name} | {read_ins} | `{layout.read_out}` | `{layout.width_key}` | {behind} |"


def _mixture_rows(name: str, mixture: Mixture) -> Iterator[str]:
    from .nn.layout import GLU

    gate, up, down = (f"`{mixture.experts}.*.{matrix}`" for matrix in mixture.matrices)
    yield f"| {name} | {gate} and {up} | {down} | `{mixture.width_key}` | the output, routed |"
    if mixture.shared:
        gate, up, down = (f"`{mixture.shared}.{matrix}`" for matrix in GLU)
        yield f"| {name} | {gate} and {up} | {down} | `{mixture.shared_key}` | the output, gated |"


_SAVED = """\
How an output is saved, and what loads it:

| `save.widths` | the file | loads with |
| --- | --- | --- |
| `uniform` | every layer at one width, the config key above set to it | what loads the source, as it is |
| `padded` | different widths, zeros up to the widest | the same, as wide in memory as the widest |
| `exact` | different widths as they are, in the config key `ffn_widths` | `prune.nn.model.load(folder)` |

Of a mixture of experts, those that the task does not route to leave the file (`plan.experts=auto`), with
their rows of the router: as many in every layer, or with `exact` as many as each layer needs. `ffn_widths`
then has a number for each expert, 0 for those that a layer lacks.

Each row is held by the same test: cutting exactly the dead neurons of a tiny model changes no logit, in
a folder that plain transformers loads and generates from; unequal widths reload exactly. `load` gives a
plain transformers model, and no code lies in the folder."""


def _chosen(option: Option) -> Option:
    """A group takes the name of an installed part; its default is a choice, so it is in the YAML."""
    if option.key not in plugins.GROUPS:
        return option
    return replace(option, type="name of a part", default=f"[`{_defaults()[option.key]}`](#{option.key})")


def _defaults() -> dict[str, str]:
    """{group: choice} of the defaults list."""
    text = (Path(conf_path()) / "config.yaml").read_text("utf-8").partition("defaults:")[2]
    return dict(re.findall(r"^  - (\w+): (\S+)$", text, flags=re.MULTILINE))


def _recipes() -> Iterator[str]:
    """Each with the comment that heads its file."""
    for path in sorted((Path(conf_path()) / "recipe").glob("*.yaml")):
        lines = path.read_text("utf-8").splitlines()
        head = [line for line in lines if line.startswith("#") and "@package" not in line]
        yield f"* `recipe={path.stem}`: {' '.join(line.lstrip('# ') for line in head)}"


def _parts() -> Iterator[str]:
    for group, hook in plugins.GROUPS.items():
        offers = [(name, cls) for name, cls, plugin in plugins.offered(hook) if not plugins.origin(plugin)]
        yield f"## {group}"
        if not offers:
            yield "No part of this kind is shipped."
        for name, cls in sorted(offers):
            yield f"### {group}={name}"
            yield _first_paragraph(cls._target_)
            found = list(options(cls, f"{group}."))
            yield _table(found) if found else "No options."


def _first_paragraph(target: str) -> str:
    """Of the docstring of the class that the options build."""
    module, _, name = target.rpartition(".")
    text = inspect.getdoc(getattr(import_module(module), name)) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _table(found: Iterator[Option] | list[Option]) -> str:
    return "\n".join([*_HEAD, *(option.row() for option in found)])


def _page(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


PAGES = {"exit-codes.md": exit_codes, "families.md": family_page, "options.md": option_page}


def main(folder: str = "docs") -> None:
    """Write every generated page into ``folder``."""
    for name, page in PAGES.items():
        (Path(folder) / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
