"""The command line as people type it, made into what Hydra's grammar accepts."""

from __future__ import annotations

import re
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from .errors import UsageError
from .plugins import GROUPS

#: Their values are paths, taken as the shell hands them over.
PATHS = ("source", "data", "output", "cache", "teacher.model", "eval.general")
WITH_VALUE: tuple[str, ...] = (
    "-c",
    "--cfg",
    "-p",
    "--package",
    "-cp",
    "--config-path",
    "-cn",
    "--config-name",
)
WITH_VALUE += ("-cd", "--config-dir", "--experimental-rerun", "-i", "--info")

SWEEP = re.compile(r"(choice|range|interval|glob|sort|shuffle|tag)\(.*\)", re.S)
QUOTED = re.compile(r"""('(\\.|[^'\\])*'|"(\\.|[^"\\])*")""", re.S)
COMMA = re.compile(r",(?![^{]*\})")  # not inside ${…}


def tidy(argv: list[str]) -> list[str]:
    """Flags first, ``+selector=x`` as ``selector=x``, paths quoted.

    Hydra wants all overrides in one place, and refuses ``+`` for a group that is in the defaults list.

    :raises UsageError: on a flag that does not exist or lacks its value.
    """
    flags, overrides = _split(argv)
    many = any(f in ("-m", "--multirun") for f in flags)
    tidied = flags + [_override(o, many) for o in overrides]
    _check_flags(tidied)
    return tidied


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    flags: list[str] = []
    overrides: list[str] = []
    rest = iter(argv)
    for arg in rest:
        if not arg.startswith("-"):
            overrides.append(arg)
            continue
        flags.append(arg)
        if arg in WITH_VALUE:
            flags += [v for v in [next(rest, None)] if v is not None]
    return flags, overrides


def _override(arg: str, many: bool) -> str:
    key, equals, value = arg.partition("=")
    bare = key.lstrip("+")
    if bare in (*GROUPS, "recipe", *PATHS[:4]):
        key = bare
    return key + equals + (_paths(value, many) if bare in PATHS else value)


def _paths(value: str, many: bool) -> str:
    """A path in Hydra's quotes; in a multirun one for each comma, and sweep functions pass."""
    if value in ("", "null") or QUOTED.fullmatch(value):
        return value
    if not many:
        return _quote(value)
    return value if SWEEP.fullmatch(value) else ",".join(_one(v) for v in COMMA.split(value))


def _one(value: str) -> str:
    return value if QUOTED.fullmatch(value) else _quote(value)


def _quote(value: str) -> str:
    """In Hydra's grammar only a backslash before a quote is an escape."""
    value = re.sub(r"(\\*)'", r"\1\1\\'", value)
    return "'" + re.sub(r"(\\+)$", r"\1\1", value) + "'"


def _check_flags(argv: list[str]) -> None:
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise UsageError(f"{message}; prune --help lists the options")

    parser.error = refuse  # type: ignore[method-assign]
    if parser.parse_args(argv).experimental_rerun is not None:
        raise UsageError("--experimental-rerun reads a pickle, which can run code: give the options instead")
