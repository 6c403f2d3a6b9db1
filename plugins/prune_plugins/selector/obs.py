"""obs: backward elimination; whoever the others can replace at the least cost leaves first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prune import hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from prune.parts import ReadOut


@dataclass
class ObsOptions:
    _target_: str = "prune_plugins.selector.obs.Obs"
    block: int = 8  # neurons removed between two updates: 8 lose nothing measurable against 1, 64 a little


class Obs:
    """Optimal brain surgeon on the read-out; 2F³ + 2D·F² float64 FLOPs a layer. Wants the refit."""

    def __init__(self, block: int) -> None:
        if block < 1:
            raise ValueError(f"selector.block={block}: give 1 or more")
        self.block = block

    def order(self, site: ReadOut) -> Tensor:
        """Neurons by when they would leave, the last first, int64 [F]."""
        from prune.nn.elimination import elimination_order

        return elimination_order(site.gram, site.weight, self.block)


@hookimpl
def prune_selectors() -> dict[str, type]:
    return {"obs": ObsOptions}
