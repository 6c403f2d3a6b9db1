"""Whose fault it is when a stage raises: the machine's, a plugin's or ours."""

from __future__ import annotations

import errno
import re

from . import plugins
from .errors import PruneError, StageError
from .isolate import Crash

AGAIN = "type the same command again to resume"
FULL = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EIO: "I/O error",
}
NATIVE = re.compile(r"os error (\d+)")  # how writers in Rust say it
MEMORY = ("MemoryError", "OutOfMemoryError")


def of(stage: str, error: BaseException) -> Exception:
    """What to raise for an exception of a stage: a :class:`PruneError`, or a :class:`Crash` naming it."""
    if isinstance(error, StageError) and not str(error).startswith("stage "):
        return StageError(f"stage {stage}: {error}")
    if isinstance(error, PruneError):
        return error
    crash = error if isinstance(error, Crash) else Crash.of(error)
    full = FULL.get(_errno(crash))
    if full:
        return StageError(f"stage {stage}: {full} ({crash.message}); make room, then {AGAIN}")
    if crash.kind in MEMORY or "can't allocate memory" in crash.message:
        return StageError(
            f"stage {stage}: out of memory ({crash.message}); use a machine with more, then {AGAIN}"
        )
    culprit = plugins.third_party(crash.modules)
    if culprit:
        return StageError(f"plugin {culprit} failed in stage {stage}: {crash}")
    return Crash(f"stage {stage}: {crash.kind}", crash.message, crash.errno, crash.modules, crash.text)


def _errno(crash: Crash) -> int:
    native = NATIVE.search(crash.message)
    return crash.errno or (int(native[1]) if native else 0)
