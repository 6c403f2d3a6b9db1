"""Reads a file of task prompts: JSON Lines, one prompt a line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prune.errors import UsageError

from . import fields
from .canonical import digest
from .fields import Message


@dataclass(frozen=True)
class Prompt:
    """One distinct prompt of a file."""

    messages: tuple[Message, ...]  #: ends in a user turn
    prompt_id: str  #: hash of the messages: the same words are the same prompt
    where: str  #: ``file:line``, for error messages
    name: str | None = None  #: the file's own ``id``
    category: str | None = None
    split: str | None = None  #: train, val or test where the file says so
    sampling: Mapping[str, float] = field(default_factory=dict)  #: the sampling fields of its line


@dataclass(frozen=True)
class PromptFile:
    """The distinct prompts of a file in its order, and a count of everything that was left out."""

    prompts: tuple[Prompt, ...]
    counts: Mapping[str, int]  #: lines, duplicates, assistant_turns_dropped, ``ignored_field.<name>`` …


def read_prompts(path: Path) -> PromptFile:
    """The prompts of a .jsonl file.

    A byte-order mark, CRLF, blank lines and a missing last newline change nothing. Equal prompts collapse
    into their first line; assistant turns at the end of ``messages`` are dropped: they would be the answer.

    :raises UsageError: ``file:line: what is wrong``.
    """
    counts: Counter[str] = Counter(lines=0, prompts=0, duplicates=0, assistant_turns_dropped=0)
    found: dict[str, Prompt] = {}
    for where, line in _lines(path):
        counts["lines"] += 1
        prompt = _prompt(where, line, counts)
        first = found.setdefault(prompt.prompt_id, prompt)
        if first is not prompt:
            counts["duplicates"] += 1
            _same_split(first, prompt)
    counts["prompts"] = len(found)
    return PromptFile(tuple(found.values()), dict(sorted(counts.items())))


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                where = f"{path.name}:{number}"
                text = _text(where, raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw)
                if text:
                    yield where, _object(where, text)
    except OSError as error:
        raise UsageError(f"data: cannot read {path}: {error.strerror}") from None


def _text(where: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise UsageError(f"{where}: not UTF-8; save the file as UTF-8") from None


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "too deep or too long")
        raise UsageError(f"{where}: not valid JSON ({reason}); one JSON object a line is expected") from None
    if not isinstance(line, dict):
        raise UsageError(f"{where}: expected a JSON object, found {type(line).__name__}")
    return line


def _prompt(where: str, line: Mapping[str, Any], counts: Counter[str]) -> Prompt:
    messages = fields.messages(where, line, counts)
    counts.update(f"ignored_field.{fields.shown(name)}" for name in line if name not in fields.KNOWN)
    return Prompt(
        messages=messages,
        prompt_id=digest(messages),
        where=where,
        name=fields.label(where, line, "id"),
        category=fields.label(where, line, "category"),
        split=fields.split(where, line),
        sampling=fields.sampling(where, line),
    )


def _same_split(first: Prompt, again: Prompt) -> None:
    if again.split and first.split and again.split != first.split:
        raise UsageError(
            f"{again.where}: the same prompt as {first.where}, but in split {again.split}, not {first.split}"
        )
