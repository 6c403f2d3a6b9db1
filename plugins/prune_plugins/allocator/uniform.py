"""uniform: the same fraction of every layer that is not protected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prune import hookimpl
from prune.allocation import by_fraction
from prune.parts import Room


@dataclass
class UniformOptions:
    _target_: str = "prune_plugins.allocator.uniform.Uniform"
    spread: bool = (
        False  # widen evenly spaced layers by a step, to come closer to the target; widths then differ
    )


class Uniform:
    """Widths ⌊f·F⌋ in steps, for the largest f whose sum does not exceed the target."""

    def __init__(self, spread: bool) -> None:
        self.spread = spread

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """One width a layer.

        :raises ValueError: where even the floors exceed ``total``.
        """
        widths = by_fraction(rooms, total, step)
        return _spread(widths, rooms, total, step) if self.spread else widths


def _spread(widths: list[int], rooms: Sequence[Room], total: int, step: int) -> list[int]:
    """Give the rest of the total to evenly spaced layers, a step each."""
    open_ = [
        i
        for i, (w, r) in enumerate(zip(widths, rooms, strict=True))
        if w + step <= r.full and not r.protected
    ]
    count = min(len(open_), (total - sum(widths)) // step)
    wider = {open_[(2 * n + 1) * len(open_) // (2 * count)] for n in range(count)}
    return [w + step if i in wider else w for i, w in enumerate(widths)]


@hookimpl
def prune_allocators() -> dict[str, type]:
    return {"uniform": UniformOptions}
