"""One spelling of a JSON value, so that equal values have equal bytes and equal hashes."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any


def spell(value: Any) -> str:
    """JSON without spaces, keys sorted, text as it is (UTF-8)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """sha256 of :func:`spell`, 64 hex digits.

    :raises UnicodeEncodeError: where a text holds a lone surrogate.
    """
    return sha256(spell(value).encode()).hexdigest()
