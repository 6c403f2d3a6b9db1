"""Locks that the kernel releases: flock on an open file, so that none is ever stale."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import BusyError, UsageError


@contextmanager
def lock(place: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Hold ``place`` alone; ``wait`` is called before waiting for another run that holds it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("a") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


@contextmanager
def claim(place: Path) -> Iterator[None]:
    """Hold an output alone or not at all; the hidden lock file is gone afterwards.

    :raises BusyError: at once, where another run holds it.
    """
    made = [p for p in place.parents if not p.exists()]
    path = place.with_name(f".{place.name}.lock")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        f = _take(path, place)
    except OSError as e:
        raise UsageError(f"output={place}: cannot write in {place.parent}: {e.strerror}") from e
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: nobody can hold a file of this name
        f.close()
        _remove_empty(made)


def _take(path: Path, place: Path) -> Any:
    while True:
        f = path.open("a")
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(f.fileno()), path.stat()):
                return f
        except BlockingIOError:
            f.close()
            raise BusyError(
                f"output={place}: another run is publishing to it; wait for it or choose another output"
            ) from None
        f.close()  # its holder removed it between our open and our lock


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
