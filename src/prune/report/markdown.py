"""The report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .tables import Table
from .view import View, view


def markdown(report: Mapping[str, Any], speed: Mapping[str, Any] | None = None) -> str:
    """``report.md``: the same words as the page, without the pictures."""
    return "\n".join(_lines(view(report, speed))) + "\n"


def escape(text: str) -> str:
    """Text that a Markdown renderer shows as it is, on one line: no markup, no HTML, no table cell."""
    line = re.sub(r"([\\`*\[\]<>|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([#+.)=-]+)(?=\s|$)", r"\1\\\2", line)  # a heading, list or rule


def fence(text: str) -> list[str]:
    """A code block that no run of backticks inside can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return [f"{marks}text", *text.splitlines(), marks, ""]


def table(data: Table) -> list[str]:
    rows = [data.head, ["---"] * len(data.head), *data.rows]
    cells = ([c if i == 1 else escape(c) for c in row] for i, row in enumerate(rows))
    return [*(f"| {' | '.join(row)} |" for row in cells), ""]


def _lines(shown: View) -> Iterator[str]:
    yield from (f"# {escape(shown.title)}", "", f"**{escape(shown.verdict)}**", "")
    yield from (f"* {escape(f'{t.value} {t.what}: {t.detail}')}" for t in shown.tiles)
    yield from ("", *(f"> **Warning:** {escape(text)}\n" for text in shown.warnings))
    yield from ("## Quality on held-out answers", "", *table(shown.candidates))
    if shown.candidates.missing:
        yield f"Not measured: {escape(', '.join(shown.candidates.missing))}.\n"
    yield from (f"{escape(text)}\n" for text in shown.evidence)
    yield from ("## Gates", "", *table(shown.gates))
    if shown.layers:
        yield from ("## Widths", "", *table(shown.layers))
    yield from ("## Answers side by side", "", *_samples(shown))
    yield from ("## What went in", "", *(f"* **{name}**: {escape(text)}" for name, text in shown.facts), "")
    if shown.stages:
        yield from ("## Time", "", *table(shown.stages))
    if shown.commands:
        yield from ("## What to type next", "", *fence("\n".join(shown.commands))[:-1])


def _samples(shown: View) -> Iterator[str]:
    if not shown.samples:
        yield "No answers were generated in this run.\n"
    for i, sample in enumerate(shown.samples, 1):
        yield from (f"### Prompt {i}", "", *fence(sample["prompt"]))
        for name, answer in {"teacher": sample["teacher"], **sample["answers"]}.items():
            yield from (f"{escape(name)}:", "", *fence(answer))
