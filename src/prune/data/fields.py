"""What one line of a prompts file may hold, checked field by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from prune.errors import UsageError

Message = Mapping[str, str]  #: role and content

SPLITS = ("train", "val", "test")
ROLES = ("system", "user", "assistant")
SHAPES = ("prompt", "messages", "instruction")  #: fields that hold a prompt; a line has exactly one
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 10.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1e9),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
}  #: the sampling fields and the range of each, ends included
KNOWN = {*SHAPES, "input", "id", "category", "split", *RANGES}


def messages(where: str, line: Mapping[str, Any], counts: Counter[str]) -> tuple[Message, ...]:
    """The turns of a line in any of the :data:`SHAPES`; the last is a user turn with text.

    :raises UsageError: no prompt, more than one, an empty one, or one of a wrong type.
    """
    shapes = [name for name in SHAPES if name in line]
    if not shapes:
        found = ", ".join(sorted(map(shown, line)))[:120] or "nothing"
        raise UsageError(f"{where}: no prompt field (found: {found}); expected {', '.join(SHAPES)}")
    if len(shapes) > 1:
        raise UsageError(f"{where}: both {shapes[0]} and {shapes[1]}; keep one of them")
    if shapes == ["messages"]:
        return _turns(where, line["messages"], counts)
    text = _filled(where, shapes[0], _text(where, shapes[0], line[shapes[0]]))
    if shapes == ["instruction"] and (more := _text(where, "input", line.get("input", ""))).strip():
        text = f"{text}\n\n{more}"
    return ({"role": "user", "content": text},)


def shown(name: str) -> str:
    """A foreign name as text that can be printed and stored."""
    return name[:40].encode("utf-8", "replace").decode()


def _turns(where: str, value: Any, counts: Counter[str]) -> tuple[Message, ...]:
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        raise UsageError(f"{where}: messages must be a list of objects with role and content")
    turns = [_turn(where, turn) for turn in value]
    while turns and turns[-1]["role"] == "assistant":
        turns.pop()
        counts["assistant_turns_dropped"] += 1
    if not turns or turns[-1]["role"] != "user":
        raise UsageError(f"{where}: messages have no user turn to answer")
    _filled(where, "the last user turn", turns[-1]["content"])
    return tuple(turns)


def _turn(where: str, turn: Mapping[str, Any]) -> Message:
    role, content = turn.get("role"), turn.get("content")
    if role not in ROLES:
        raise UsageError(f"{where}: unknown role {str(role)[:40]!r} in messages; known: {', '.join(ROLES)}")
    return {"role": role, "content": _text(where, f"the content of the {role} turn", content)}


def _text(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where}: {name} must be text, found {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{where}: {name} holds half of a surrogate pair, which is no text") from None
    return value


def _filled(where: str, name: str, text: str) -> str:
    if not text.strip():
        raise UsageError(f"{where}: empty prompt ({name} holds no text)")
    return text


def label(where: str, line: Mapping[str, Any], name: str) -> str | None:
    """A free label of a line (``id``, ``category``) as text, or None."""
    value = line.get(name)
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    return _text(where, name, str(value) if whole else value)


def split(where: str, line: Mapping[str, Any]) -> str | None:
    """The split a line asks for, or None."""
    value = line.get("split")
    if value is not None and value not in SPLITS:
        raise UsageError(f"{where}: unknown split {str(value)[:40]!r}; known: {', '.join(SPLITS)}")
    return value


def sampling(where: str, line: Mapping[str, Any]) -> dict[str, float]:
    """The sampling settings among the keys of ``line``.

    :raises UsageError: a setting that is no number or out of its range.
    """
    return {name: _number(where, name, line[name]) for name in RANGES if line.get(name) is not None}


def _number(where: str, name: str, value: Any) -> float:
    low, high = RANGES[name]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise UsageError(f"{where}: {name} must be a number in {low:g} … {high:g}, got {str(value)[:40]!r}")
    if name == "top_k" and value != int(value):
        raise UsageError(f"{where}: top_k must be a whole number, got {value}")
    return value if isinstance(value, int) else float(value)
