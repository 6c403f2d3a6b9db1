"""How answers are drawn: ``teacher.sampling``."""

from __future__ import annotations

from collections.abc import Mapping

from prune.errors import UsageError

from . import fields
from .prompts import Prompt

CHOICES = "auto, greedy, file, or settings as temperature=0.7,top_p=0.9"


def parse(text: str) -> dict[str, float]:
    """``temperature=0.7,top_p=0.9`` as numbers.

    :raises UsageError: an unknown setting or a value out of its range.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in fields.RANGES:
            raise UsageError(f"teacher.sampling: unknown choice {part[:40]!r}; give {CHOICES}")
        found.update(fields.sampling("teacher.sampling", {name: _number(value)}))
    return found


def settings(choice: str, recommended: Mapping[str, float], prompt: Prompt) -> dict[str, float]:
    """The settings for one prompt; {} is greedy.

    :param choice: ``teacher.sampling``.
    :param recommended: what the teacher itself advises, for ``auto``.
    """
    named = {"auto": recommended, "greedy": {}, "file": prompt.sampling}
    return dict(sorted(named[choice].items() if choice in named else parse(choice).items()))


def _number(text: str) -> float | str:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text
