"""fisher: what a layer's refit error costs in KL divergence, to second order, from one backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prune import hookimpl
from prune.allocation import by_fraction, cheapest
from prune.parts import Room, Workbench

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class FisherOptions:
    _target_: str = "prune_plugins.allocator.fisher.Fisher"
    tokens: int = 8192  # of train, whose gradients are averaged; one pass at six times a forward's FLOPs


class Fisher:
    """½ tr(M R Σ Rᵀ) nats, M the Fisher information at a layer's output; dynamic programming."""

    def __init__(self, tokens: int) -> None:
        if tokens < 1:
            raise ValueError(f"allocator.tokens={tokens}: give 1 or more")
        self.tokens = tokens

    def price(
        self, bench: Workbench, orders: Sequence[Tensor], stops: Sequence[Sequence[int]]
    ) -> list[Sequence[float]]:
        """The cost of each stop, nats a counted token."""
        from prune.nn.fisher import fisher_costs

        return fisher_costs(bench, orders, stops, self.tokens)

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """One width a layer; a forecast, before anything is measured, has one fraction.

        :raises ValueError: where even the floors exceed ``total``.
        """
        return cheapest(rooms, total) if all(r.cost for r in rooms) else by_fraction(rooms, total, step)


@hookimpl
def prune_allocators() -> dict[str, type]:
    return {"fisher": FisherOptions}
