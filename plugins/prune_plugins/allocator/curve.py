"""curve: narrow whichever layer's relative refit error grows least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prune import hookimpl
from prune.allocation import by_fraction, narrowed
from prune.parts import Room


@dataclass
class CurveOptions:
    _target_: str = "prune_plugins.allocator.curve.Curve"


class Curve:
    """From full width, a step at a time. Kept for comparison: where measured it loses to ``uniform``."""

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """One width a layer; a forecast, without errors to go by, has one fraction.

        :raises ValueError: where even the floors exceed ``total``.
        """
        if not all(r.rel for r in rooms):
            return by_fraction(rooms, total, step)
        errors = [dict(r.rel) for r in rooms]
        return narrowed(rooms, total, step, lambda i, width: errors[i][width])


@hookimpl
def prune_allocators() -> dict[str, type]:
    return {"curve": CurveOptions}
