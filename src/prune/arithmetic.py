"""Counts that need no tensor: width steps and sizes as people write them."""

from __future__ import annotations

import math
import re

from .errors import UsageError


def width_step(align: int, group: int | None) -> int:
    """Widths are multiples of this: lcm of the alignment and the codec's group size.

    :raises UsageError: for an alignment below 1.
    """
    if align < 1:
        raise UsageError(f"plan.align={align}: give 1 or more")
    return math.lcm(align, group or 1)


def parse_count(text: str) -> int:
    """``"900M"``, ``"1.5B"``, ``"134515008"`` as a number of parameters.

    :raises UsageError: for anything else.
    """
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMBT]?)\s*", str(text), re.IGNORECASE)
    if not found:
        raise UsageError(f"size={text}: give a number of parameters such as 900M or 1.5B")
    return round(float(found[1]) * 1000.0 ** " KMBT".index(found[2].upper() or " "))


def parse_rise(text: str) -> tuple[float, bool]:
    """``"0.05"`` as nats, ``"5%"`` as a fraction: (number, whether it is a fraction).

    :raises UsageError: for anything that is no number above 0.
    """
    found = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(%?)\s*", str(text))
    if not found or float(found[1]) == 0:
        raise UsageError(f"{text!r} is no rise; give nats above 0, such as 0.05, or a percentage such as 5%")
    return (float(found[1]) / 100, True) if found[2] else (float(found[1]), False)


def parse_bytes(text: str) -> int:
    """``"5GB"``, ``"100KB"``, ``"2048"`` as bytes: decimal units, binary ones with an i (``"4GiB"``).

    :raises UsageError: for anything else.
    """
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    if not found:
        raise UsageError(f"{text!r} is no size; give one such as 5GB or 100MB")
    unit = 1024.0 if found[3] else 1000.0
    return round(float(found[1]) * unit ** " KMGT".index(found[2].upper() or " "))
