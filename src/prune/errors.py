"""Errors a user can act on, and the exit code of each."""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """What the shell sees; ``docs/exit-codes.md`` is generated from it."""

    meaning: str  #: what happened
    on_disk: str  #: what the run leaves behind

    def __new__(cls, value: int, meaning: str = "", on_disk: str = "") -> Self:
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning, code.on_disk = meaning, on_disk
        return code

    OK = 0, "the output is published", "the complete output with its manifest"
    BUG = 1, "a bug: anything not foreseen", "a crash bundle; the cache is resumable"
    USAGE = 2, "a wrong option, input, model or plugin, refused before any work", "nothing new anywhere"
    STAGE = (
        3,
        "a stage failed while running: memory, disk, a non-finite number, a plugin that raised",
        "the cache is resumable, an older output is untouched, a crash bundle",
    )
    TEACHER = 4, "the teacher gave up within its budget", "the answers so far are kept"
    GATE = 5, "a quality gate refused the output", "no output; with `write_on_fail=true`, `<output>.rejected`"
    BUSY = 6, "another run is publishing to this output", "nothing touched"
    INTERRUPTED = 130, "Ctrl-C", "resumable by the same command; out within 5 s"
    TERMINATED = 143, "SIGTERM", "resumable by the same command; out within 5 s"


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


def first_line(error: BaseException, most: int = 200) -> str:
    """What a foreign exception says, cut to one line; its class where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:most]


def hint(word: str, known: Iterable[str], where: str = "") -> str:
    """The nearest known name, else all of them, as the tail of an error line."""
    names = sorted(k for k in known if not k.startswith("_"))
    close = get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    of = f" of {where}" if where else ""
    return f"; known{of}: {', '.join(names)}" if names else ""
