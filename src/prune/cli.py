"""``prune``: Hydra on the outside, one clear line on failure."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from importlib import import_module
from typing import Any, NoReturn

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from . import __version__, plugins, sweep, usage
from .argv import tidy
from .config import RunConfig, conf_path
from .errors import UsageError, hint
from .explain import Terminated, exit_code, explain
from .isolate import Crash

#: Subcommands, taken before Hydra sees the line: ``module:function`` of the arguments behind the name.
COMMANDS = {"plugins": "prune.listing:show"}


@hydra.main(version_base="1.3", config_path=conf_path(), config_name="config")
def job(cfg: DictConfig) -> float:
    """One run; a failure ends this job, not the sweep. Returns the final NLL, inf where there is none."""
    from .engine import run

    outcome: dict[str, Any] = {"exit_code": 0}
    sweep.announce()
    try:
        outcome.update(run(cfg))
    except BaseException as e:
        outcome.update(error=explain(e), exit_code=exit_code(e))
        if not isinstance(e, Exception):
            raise
        _say(e)
    finally:
        sweep.leave(outcome)
    return float(outcome.get("nll", float("inf"))) if outcome["exit_code"] == 0 else float("inf")


def main() -> None:
    """The console script: never a traceback unless ``PRUNE_DEBUG=1``."""
    signal.signal(signal.SIGTERM, _terminate)
    code = 0
    try:
        _dispatch(sys.argv[1:])
        code = sweep.Summary.exit_code
    except (Exception, KeyboardInterrupt, Terminated) as e:
        _say(e)
        code = exit_code(e)
    finally:
        sweep.clean_up()
    raise SystemExit(code)


def _terminate(signum: int, frame: Any) -> NoReturn:
    raise Terminated


def _dispatch(argv: list[str]) -> None:
    if "--version" in argv:
        print(f"prune {__version__}")
    elif {"-h", "--help"} & set(argv):
        print(usage.text())
    elif argv and argv[0] in COMMANDS:
        module, _, name = COMMANDS[argv[0]].partition(":")
        getattr(import_module(module), name)(argv[1:])
    else:
        _hydra(argv)


def _hydra(argv: list[str]) -> None:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    plugins.require_sound()
    _refuse_words(argv)
    sys.argv[1:] = tidy(argv)
    ConfigStore.instance().store("schema", RunConfig)
    plugins.register_options()
    try:
        job()
    except SystemExit as e:  # Hydra's way to end after --hydra-help
        if e.code:
            raise UsageError(f"Hydra ended with {e.code}") from e


def _refuse_words(argv: list[str]) -> None:
    word = argv[0] if argv else ""
    if word and "=" not in word and word[0] not in "-~+":
        raise UsageError(
            f"unknown command {word!r}{hint(word, COMMANDS)}; options are key=value, see prune --help"
        )


def _say(error: BaseException) -> None:
    if os.environ.get("PRUNE_DEBUG") == "1":
        cause = next((e for e in (error, error.__cause__) if isinstance(e, Crash)), None)
        sys.stderr.write(cause.text if cause else "".join(traceback.format_exception(error)))
    print(f"prune: {explain(error)}", file=sys.stderr)
