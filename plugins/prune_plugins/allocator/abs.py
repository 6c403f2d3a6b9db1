"""abs: narrow whichever layer's refit error grows least, in units of output energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prune import hookimpl
from prune.allocation import by_fraction, narrowed
from prune.parts import Room


@dataclass
class AbsOptions:
    _target_: str = "prune_plugins.allocator.abs.Abs"


class Abs:
    """As ``curve``, in units of the layer's output energy. Kept for comparison: it loses to ``uniform``."""

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """One width a layer; a forecast, without errors to go by, has one fraction.

        :raises ValueError: where even the floors exceed ``total``.
        """
        if not all(r.rel for r in rooms):
            return by_fraction(rooms, total, step)
        errors = [dict(r.rel) for r in rooms]
        return narrowed(rooms, total, step, lambda i, width: rooms[i].energy * errors[i][width])


@hookimpl
def prune_allocators() -> dict[str, type]:
    return {"abs": AbsOptions}
