"""General text to score a model on."""

from __future__ import annotations

import json
from pathlib import Path

from prune.errors import UsageError


def read_text(path: Path) -> str:
    """A plain text file, or the ``text`` fields of a .jsonl, joined by blank lines.

    :raises UsageError: where the file is not UTF-8, or a line is no object with a ``text``.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"eval.general={path}: {e}"[:300]) from None
    if path.suffix != ".jsonl":
        return content
    return "\n\n".join(_line(path, i, line) for i, line in enumerate(content.splitlines(), 1) if line.strip())


def _line(path: Path, number: int, line: str) -> str:
    try:
        return str(json.loads(line)["text"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path}:{number}: no object with a text field") from None
