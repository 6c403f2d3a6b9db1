"""Folders that are either complete or not there: scratch, hash, fsync, manifest, rename."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Any

from .errors import StageError
from .identity import Hashes, sha256

MANIFEST = "manifest.json"
SCHEMA = 1


def read(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder, or None where there is none that parses."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return manifest if manifest["schema"] == SCHEMA and isinstance(manifest["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def intact(folder: Path, manifest: Mapping[str, Any], hashes: Hashes) -> bool:
    """Whether every file of the manifest is there with its content."""
    try:
        return all(_same(folder / name, entry, hashes) for name, entry in manifest["files"].items())
    except (OSError, KeyError, TypeError):
        return False


def _same(path: Path, entry: Mapping[str, Any], hashes: Hashes) -> bool:
    return bool(path.stat().st_size == entry["size"]) and hashes.file(path) == entry["sha256"]


def commit(place: Path, fill: Callable[[Path], Mapping[str, Any]]) -> dict[str, Any]:
    """Make ``place`` from what ``fill`` writes into a scratch folder; what it returns goes into the manifest.

    An older ``place`` stays whole until the new one is complete. The caller holds the lock.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    sweep(place)
    scratch = _beside(place)
    scratch.mkdir()
    try:
        extra = fill(scratch)
        manifest = seal(scratch, extra)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    _swap(scratch, place)
    return manifest


def seal(folder: Path, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Hash and fsync every file, then write the manifest."""
    files = {p.relative_to(folder).as_posix(): _persist(p) for p in sorted(_walk(folder))}
    manifest = {"schema": SCHEMA, **extra, "files": files}
    text = json.dumps(manifest, indent=1, sort_keys=True)
    with (folder / MANIFEST).open("w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    for inner in [p for p in folder.rglob("*") if p.is_dir()]:
        sync_folder(inner)
    sync_folder(folder)
    return manifest


def _walk(folder: Path) -> Iterator[Path]:
    for p in folder.rglob("*"):
        if p.is_symlink():
            raise StageError(f"{p.name}: a stage may not leave a link in its result")
        if p.is_file():
            yield p


def _persist(path: Path) -> dict[str, Any]:
    with path.open("rb") as f:
        os.fsync(f.fileno())
    return {"size": path.stat().st_size, "sha256": sha256(path)}


def sync_folder(folder: Path) -> None:
    """fsync a directory, so that a rename in it survives a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.{uuid.uuid4().hex[:12]}.part")


def sweep(place: Path) -> None:
    """Remove what killed runs left beside ``place``; put back what was moved away and not replaced."""
    for old in _left(place, "old"):
        if place.exists():
            shutil.rmtree(old)
        else:
            old.rename(place)
    for part in _left(place, "part"):
        shutil.rmtree(part)


def _left(place: Path, kind: str) -> list[Path]:
    return list(place.parent.glob(f".{escape(place.name)}.{'[0-9a-f]' * 12}.{kind}"))


def _swap(scratch: Path, place: Path) -> None:
    """Rename ``scratch`` to ``place``; where the system can, an older ``place`` is exchanged in one step."""
    if not place.exists():
        scratch.rename(place)
    elif _exchange(scratch, place):
        shutil.rmtree(scratch)
    else:
        old = _beside(place).with_suffix(".old")
        place.rename(old)
        scratch.rename(place)
        shutil.rmtree(old)
    sync_folder(place.parent)


def _exchange(a: Path, b: Path) -> bool:
    """renameat2(2) with RENAME_EXCHANGE, which Python does not offer."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return call is not None and call(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0


def learn(place: Path, manifest: Mapping[str, Any], hashes: Hashes) -> None:
    """Remember the hashes of a folder that was just committed."""
    for name, entry in manifest["files"].items():
        hashes.learn((place / name).resolve(), entry["sha256"])
