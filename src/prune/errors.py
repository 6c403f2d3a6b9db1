"""Errors a user can act on, and the exit code of each."""

from difflib import get_close_matches
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell sees. ``docs/exit-codes.md`` is generated from the comments."""

    OK = 0
    BUG = 1
    USAGE = 2
    STAGE = 3
    TEACHER = 4
    GATE = 5
    BUSY = 6
    INTERRUPTED = 130
    TERMINATED = 143


class PruneError(Exception):
    """One line for the user; ``exit_code`` for the shell."""

    exit_code = ExitCode.BUG


class UsageError(PruneError):
    """A wrong option, input or model, refused before any work."""

    exit_code = ExitCode.USAGE


class PluginError(PruneError):
    """A plugin that cannot be loaded or used, refused before any work."""

    exit_code = ExitCode.USAGE


class StageError(PruneError):
    """A stage failed while running: memory, disk, a non-finite number, a plugin that raised."""

    exit_code = ExitCode.STAGE


class TeacherError(PruneError):
    """The teacher gave up within its budget; the answers so far are kept."""

    exit_code = ExitCode.TEACHER


class GateFailed(PruneError):
    """A quality gate refused the output."""

    exit_code = ExitCode.GATE


class BusyError(PruneError):
    """Another run is publishing to this output."""

    exit_code = ExitCode.BUSY


def hint(word: str, known: Iterable[str], where: str = "") -> str:
    """The nearest known name, else all of them, as the tail of an error line."""
    names = sorted(k for k in known if not k.startswith("_"))
    close = get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    of = f" of {where}" if where else ""
    return f"; known{of}: {', '.join(names)}" if names else ""
