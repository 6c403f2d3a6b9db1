"""The pictures of a report: SVG text that takes its colours from the page around it."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from .words import fixed, number

# Drawn in these and replaced by the page's CSS variables, so that one picture suits light and dark.
_INK, _LINE, _ACCENT, _REST, _MARK = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {_INK: "ink", _LINE: "line", _ACCENT: "accent", _REST: "rest", _MARK: "mark"}
_STYLE = {
    "svg.hashsalt": "prune",  # the same report gives the same bytes
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _LINE,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "legend.frameon": False,
}


_ALT = {
    "nll": "NLL of each candidate minus that of the source, with its interval",
    "widths": "FFN neurons kept and pruned in each layer",
    "curves": "Relative refit error of each layer against the width kept",
    "learning": "NLL on train and, with the hard mask, on val, at each look of the selector's training",
    "search": "Rise of the val NLL of every fold that was tried, against the neurons kept",
}

Report = Mapping[str, Any]


def figures(report: Report) -> dict[str, str]:
    """``{name: inline SVG}`` of whatever the report has numbers for, of :data:`_ALT`."""
    drawn = {"nll": _nll, "widths": _widths, "curves": _curves, "learning": _learning, "search": _search}
    found = {name: _draw(name, draw, report) for name, draw in drawn.items()}
    return {name: svg for name, svg in found.items() if svg}


def _draw(name: str, draw: Callable[[Axes, Report], bool], report: Report) -> str:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.4, 3.2), layout="constrained")
        FigureCanvasSVG(figure)
        if not draw(figure.add_subplot(), report):
            return ""
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name)


def _inline(svg: str, name: str) -> str:
    """Only the element itself, its ids made unique in the page, its colours those of the page."""
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg.replace("<svg ", f'<svg class="{name}" role="img" aria-label="{_ALT[name]}" ', 1)


def _nll(axes: Axes, report: Report) -> bool:
    """Difference to the source, a bar a candidate, with its interval."""
    rows = [c for c in report["candidates"] if c["role"] == "source" or _drawable(c["delta"])]
    if len(rows) < 2:
        return False
    for y, row in enumerate(rows):
        delta = row["delta"] or {"mean": 0.0, "low": None, "high": None}
        colour = _ACCENT if row["role"] == "final" else _REST
        axes.barh(y, delta["mean"], height=0.55, color=colour)
        if delta["low"] is not None:
            axes.plot([delta["low"], delta["high"]], [y, y], color=_INK, lw=1.2, marker="|", ms=6)
    axes.axvline(0, color=_INK, lw=0.8)
    _limit(axes, report)
    axes.set_yticks(range(len(rows)), [f"{_short(r['name'])}\n{fixed(r['nll'])}" for r in rows])
    axes.invert_yaxis()
    axes.set_xlabel("NLL minus the source's, nats per answer token")
    return True


def _drawable(delta: Mapping[str, Any] | None) -> bool:
    return delta is not None and all(math.isfinite(number(delta[k]) or 0.0) for k in ("mean", "low", "high"))


def _limit(axes: Axes, report: Report) -> None:
    """The most that the gate allows, where it is near enough to be of the same picture."""
    limit = next((g["limit"] for g in report["gates"] if g["gate"] == "nll_rise"), None)
    if limit is not None and limit <= 3 * axes.get_xlim()[1]:
        axes.axvline(limit, color=_MARK, lw=1, ls="--")
        axes.text(
            limit, 1.01, "gate", color=_MARK, ha="center", va="bottom", transform=axes.get_xaxis_transform()
        )


def _short(name: str, most: int = 18) -> str:
    """A name that fits beside a bar; dollar signs would start mathtext."""
    tail = name.replace("$", "").rsplit("/", 1)[-1]
    return tail if len(tail) <= most else tail[: most - 1] + "…"


def _widths(axes: Axes, report: Report) -> bool:
    """Kept of full, a bar a layer."""
    layers = report.get("plan", {}).get("layers")
    if not layers:
        return False
    x = sorted({row["layer"] for row in layers})
    sites = [[row for row in layers if row["layer"] == i] for i in x]
    kept, full = ([sum(row[k] for row in rows) for rows in sites] for k in ("kept", "full"))
    colours = [_MARK if all(row["protected"] for row in rows) else _ACCENT for rows in sites]
    axes.bar(x, full, color=_LINE, width=0.8)
    axes.bar(x, kept, color=colours, width=0.8)
    entries = [Patch(color=_ACCENT, label="kept"), Patch(color=_LINE, label="pruned")]
    if _MARK in colours:
        entries.insert(1, Patch(color=_MARK, label="protected"))
    axes.figure.legend(handles=entries, loc="outside upper right", ncols=3)
    axes.margins(x=0.01)
    axes.set_xlabel("layer")
    axes.set_ylabel("FFN neurons")
    return True


def _curves(axes: Axes, report: Report) -> bool:
    """Refit error against width, a line a layer; a dot where the plan put the layer."""
    layers, curves = report.get("plan", {}).get("layers"), report.get("curves")
    if not layers or not curves:
        return False
    lines: dict[int, list[tuple[float, list[Any]]]] = {}  # a sparse layer's is the mean of what stays of it
    for row, rel in zip(layers, curves["rel"], strict=True):
        if row["kept"]:
            lines.setdefault(row["layer"], []).append((row["kept"] / row["full"], rel))
    colours = matplotlib.colormaps["viridis"](np.linspace(0.25, 0.9, len(lines)))
    x = np.array(curves["widths"], float) / curves["widths"][-1]
    for i, (layer, sites) in enumerate(lines.items()):
        y = np.array([[number(v) for v in rel] for _, rel in sites], float).mean(0)
        seen = np.isfinite(y) & (y > 0)  # the error at full width is 0: no place on a log axis
        label = f"layer {layer}" if i in {0, len(lines) // 2, len(lines) - 1} else None
        axes.plot(x[seen], y[seen], color=colours[i], lw=1, alpha=0.85, label=label)
        kept = np.mean([share for share, _ in sites])
        if seen.any() and kept < 1:
            axes.plot(
                kept, np.exp(np.interp(kept, x[seen], np.log(y[seen]))), "o", ms=3.2, color=_MARK, zorder=3
            )
    axes.set_yscale("log")
    axes.figure.legend(loc="outside upper right", ncols=3)
    axes.set_xlabel("width kept (dots: chosen)")
    axes.set_ylabel("relative refit error")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return True


def _search(axes: Axes, report: Report) -> bool:
    """Rise of the val NLL, a dot a trial, those within the bound in colour."""
    search = report.get("search")
    if not search:
        return False
    whole = report["target"]["neurons_before"]
    x = np.array([t["neurons"] / whole for t in search["trials"]], float)
    y = np.array([number(t["rise"]) for t in search["trials"]], float)
    axes.plot(x, y, color=_LINE, lw=1, zorder=1)
    colours = [_ACCENT if t["within"] else _REST for t in search["trials"]]
    axes.scatter(x, y, c=colours, s=22, zorder=2)
    axes.axhline(search["bound"], color=_MARK, lw=1, ls="--")
    right = axes.get_yaxis_transform()
    axes.text(1, search["bound"], "bound", color=_MARK, va="bottom", ha="right", transform=right)
    axes.set_xlabel("FFN neurons kept")
    axes.set_ylabel("rise of the val NLL, nats")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return True


def _learning(axes: Axes, report: Report) -> bool:
    """The training of a selector that learns: NLL on train and on val."""
    rows = report.get("learning")
    if not rows:
        return False
    steps = [row["step"] for row in rows]
    for key, label, colour in (("nll", "train, soft gates", _REST), ("val_nll", "val, hard mask", _ACCENT)):
        y = np.array([number(row[key]) for row in rows], float)
        axes.plot(steps, y, color=colour, lw=1.4, marker="o", ms=3, label=label)
    axes.figure.legend(loc="outside upper right", ncols=2)
    axes.set_xlabel("step")
    axes.set_ylabel("NLL, nats per token")
    return True
