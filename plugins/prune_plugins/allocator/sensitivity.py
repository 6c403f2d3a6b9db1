"""sensitivity: the measured rise of the KL divergence to the source when one layer alone is narrowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prune import hookimpl
from prune.allocation import by_fraction, cheapest
from prune.parts import Room, Workbench

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class SensitivityOptions:
    _target_: str = "prune_plugins.allocator.sensitivity.Sensitivity"
    shares: list[float] = field(
        default_factory=lambda: [0.25, 0.5, 0.75]
    )  # of a layer's width, where it is measured; straight lines between
    tokens: int = 4096  # of val; half a forward pass over them for each layer and share
    ridge: float = 0.03  # ρ of the fold that is tried


class Sensitivity:
    """Each layer is folded alone at a few widths; dynamic programming under the total."""

    def __init__(self, shares: Sequence[float], tokens: int, ridge: float) -> None:
        if not shares or not all(0 < s < 1 for s in shares):
            raise ValueError(f"allocator.shares={list(shares)}: give fractions between 0 and 1")
        if tokens < 1 or ridge < 0:
            raise ValueError(f"allocator: tokens={tokens} must be 1 or more, ridge={ridge} 0 or more")
        self.shares, self.tokens, self.ridge = sorted(shares), tokens, ridge

    def price(
        self, bench: Workbench, orders: Sequence[Tensor], stops: Sequence[Sequence[int]]
    ) -> list[Sequence[float]]:
        """The cost of each stop, nats a counted token."""
        from prune.nn.sensitivity import sensitivity_costs

        return sensitivity_costs(bench, orders, stops, self.shares, self.tokens, self.ridge)

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """One width a layer; a forecast, before anything is measured, has one fraction.

        :raises ValueError: where even the floors exceed ``total``.
        """
        return cheapest(rooms, total) if all(r.cost for r in rooms) else by_fraction(rooms, total, step)


@hookimpl
def prune_allocators() -> dict[str, type]:
    return {"sensitivity": SensitivityOptions}
