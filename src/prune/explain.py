"""An error of ours, of Hydra's or of OmegaConf's, as one line."""

from __future__ import annotations

from dataclasses import fields

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from .config import RunConfig
from .errors import ExitCode, PruneError, hint
from .isolate import Crash

LIMIT = 300  #: characters of an error line
AGAIN = "type the same command again to resume"
EXPECTED = (PruneError, HydraException, OmegaConfBaseException)


class Terminated(BaseException):
    """SIGTERM has arrived; no ``except Exception`` may hold it up."""


def exit_code(error: BaseException) -> int:
    """What the shell is told."""
    if isinstance(error, PruneError):
        return int(error.exit_code)
    if isinstance(error, KeyboardInterrupt | Terminated):
        return int(ExitCode.INTERRUPTED if isinstance(error, KeyboardInterrupt) else ExitCode.TERMINATED)
    return int(ExitCode.USAGE if isinstance(error, EXPECTED) else ExitCode.BUG)


def explain(error: BaseException) -> str:
    """At most 300 characters that name the option, file or key, and the fix."""
    if isinstance(error, PruneError):
        return line(str(error))
    if isinstance(error, EXPECTED):
        return line(_of_hydra(error))
    if isinstance(error, KeyboardInterrupt | Terminated):
        return f"{'interrupted' if isinstance(error, KeyboardInterrupt) else 'terminated'}; {AGAIN}"
    crash = error if isinstance(error, Crash) else Crash.of(error)
    return line(f"{crash} (a bug: PRUNE_DEBUG=1 shows the traceback)")


def line(text: str) -> str:
    """One line, shortened in the middle: the fix stands at the end."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    room = LIMIT - len("prune: ")
    return text if len(text) <= room else f"{text[: room - 120]} … {text[-117:]}"


def _of_hydra(error: BaseException) -> str:
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return f"unknown {group} {name!r}{hint(name, error.options)}"
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
        return _unknown_key(cause)
    if isinstance(cause, ValidationError) and cause.full_key:
        return f"{cause.full_key}: {_first(cause)}{_meaning(cause.full_key)}"
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return f"{cause.full_key}: {_first(cause)}"
    if isinstance(error, OverrideParseException):
        return f"cannot read {error.override!r}: expected key=value (quote odd characters as key=\"'value'\")"
    return _first(error)


def _unknown_key(cause: OmegaConfBaseException) -> str:
    parent = cause.parent_node
    known = [str(k) for k in parent] if isinstance(parent, DictConfig) else []
    where = str(cause.full_key).rpartition(".")[0]
    return f"unknown option {cause.full_key!r}{hint(str(cause.key), known, where)}"


def _meaning(key: str) -> str:
    """What a top-level option takes, from the schema."""
    kind = next((str(f.type) for f in fields(RunConfig) if f.name == key), "")
    return f"; {key} takes {kind.replace(' | None', ' or null')}" if kind else ""


def _first(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
