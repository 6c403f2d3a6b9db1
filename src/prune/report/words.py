"""Numbers as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOT_MEASURED = "not measured"


def number(value: Any) -> float | None:
    """A float, also from the "nan" and "inf" of ``report.json``; None where nothing was measured."""
    return None if value is None else float(value)


def fixed(value: Any, digits: int = 3, sign: bool = False) -> str:
    """A fixed number of decimals, with a true minus sign."""
    found = number(value)
    if found is None:
        return NOT_MEASURED
    return f"{found:{'+' if sign else ''}.{digits}f}".replace("-", "\u2212")


def significant(value: Any, digits: int = 3) -> str:
    """As many digits as carry meaning: 0.0072, 28.4, 0.15, 1230."""
    found = number(value)
    if found is None:
        return NOT_MEASURED
    whole = math.isfinite(found) and abs(found) >= 10**digits
    return (f"{found:.0f}" if whole else f"{found:.{digits}g}").replace("-", "\u2212")


def count(value: int) -> str:
    """61440 as 61,440."""
    return f"{value:,}"


def scaled(value: Any) -> str:
    """134515008 as 135 M, 512 as it is."""
    found = number(value)
    if found is None or not math.isfinite(found):
        return NOT_MEASURED if found is None else f"{found:g}"
    step = min(4, int(math.log10(abs(found)) // 3)) if abs(found) >= 1000 else 0
    return f"{significant(found / 1000**step)} {'KMGT'[step - 1]}" if step else f"{found:g}"


def size(value: Any) -> str:
    """Bytes, in powers of 1000 as disks and hubs count them."""
    text = scaled(value)
    return text if value is None else f"{text}B" if " " in text else f"{text} B"


def params(value: Any) -> str:
    """Parameters: 135 M, 1.72 B."""
    return scaled(value).replace("G", "B")


def percent(value: Any, digits: int = 1) -> str:
    found = number(value)
    return NOT_MEASURED if found is None else f"{fixed(found * 100, digits)} %"


def delta(value: Mapping[str, Any] | None, bounds: bool = True) -> str:
    """``+0.007 (−0.003 to +0.018)``."""
    if value is None:
        return NOT_MEASURED
    mean = fixed(value["mean"], sign=True)
    if not bounds or value["low"] is None:
        return mean
    return f"{mean} ({fixed(value['low'], sign=True)} to {fixed(value['high'], sign=True)})"


def mean(value: Mapping[str, Any] | None) -> str:
    """``0.0166 (0.0121 to 0.0214)``."""
    if value is None:
        return NOT_MEASURED
    text = fixed(value["mean"], 4)
    return text if value["low"] is None else f"{text} ({fixed(value['low'], 4)} to {fixed(value['high'], 4)})"


def smaller(before: float, after: float) -> str:
    """``51.0 % smaller`` or, honestly, ``3.2 % larger``."""
    share = 1 - after / before if before else 0.0
    if round(abs(share), 3) == 0:
        return "no smaller"
    return f"{percent(abs(share))} {'smaller' if share > 0 else 'larger'}"


def seconds(value: float) -> str:
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{value:.1f} s"
