"""What a file or a folder *is*: a hash of its content, never its path."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import UsageError

#: The files of a model folder that decide what it computes.
MODEL: tuple[str, ...] = (
    "config.json",
    "*.index.json",
    "tokenizer*",
    "*.model",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template*",
    "*processor_config.json",
    "*.safetensors",
)


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Hex digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class Hashes:
    """Content hashes, remembered by (path, size, time, inode) between runs."""

    def __init__(self, memo: Path) -> None:
        self.memo = memo
        self.known: dict[str, list[Any]] = _read(memo)
        self.fresh: dict[str, list[Any]] = {}

    def file(self, path: Path) -> str:
        """sha256 of a file's content."""
        path = path.resolve()
        entry = self.known.get(str(path))
        if entry is None or entry[:3] != _stamp(path):
            entry = self.learn(path, sha256(path))
        return str(entry[3])

    def learn(self, path: Path, content: str) -> list[Any]:
        """Remember the sha256 of a file that was just written and read back."""
        entry = self.known[str(path)] = self.fresh[str(path)] = [*_stamp(path), content]
        return entry

    def tree(self, root: Path, paths: Iterable[Path]) -> str:
        """One hash over files and their names below ``root``."""
        return digest({p.relative_to(root).as_posix(): self.file(p) for p in sorted(paths)})

    def save(self) -> None:
        """Write what is new; called once a run has really started."""
        if not self.fresh:
            return
        self.memo.parent.mkdir(parents=True, exist_ok=True)
        both = _read(self.memo) | self.fresh  # another run may have written meanwhile
        scratch = self.memo.with_name(f".{self.memo.name}.{os.getpid()}.part")
        scratch.write_text(json.dumps(both))
        scratch.replace(self.memo)
        self.fresh = {}


def _stamp(path: Path) -> list[int]:
    s = path.stat()
    return [s.st_size, s.st_mtime_ns, s.st_ino]


def _read(memo: Path) -> dict[str, list[Any]]:
    try:
        known = json.loads(memo.read_text())
        return {k: v for k, v in known.items() if isinstance(v, list) and len(v) == 4}
    except (OSError, ValueError, AttributeError):  # absent or damaged: it is only a memo
        return {}


def model_files(folder: Path) -> list[Path]:
    """The files of a model folder that decide what it computes, sorted."""
    return sorted({p for pattern in MODEL for p in folder.glob(pattern) if p.is_file()})


def of_source(path: Path, hashes: Hashes) -> str:
    """Identity of a model folder or a .gguf file."""
    if path.is_dir() and model_files(path):
        return of_files("source", path, model_files(path), hashes)
    return of_path("source", path, hashes)


def of_path(key: str, path: Path, hashes: Hashes) -> str:
    """Identity of a file, or of a folder by all its files."""
    paths = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    return of_files(key, path, paths, hashes)


def of_files(key: str, root: Path, paths: list[Path], hashes: Hashes) -> str:
    """:raises UsageError: on a file that cannot be read."""
    try:
        return hashes.tree(root, paths) if root.is_dir() else hashes.file(root)
    except OSError as e:
        raise UsageError(f"{key}: cannot read {e.filename}: {e.strerror}") from None
