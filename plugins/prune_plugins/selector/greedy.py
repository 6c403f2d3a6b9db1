"""greedy: forward selection on the output energy that each neuron adds to what the chosen ones explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prune import hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from prune.parts import ReadOut


@dataclass
class GreedyOptions:
    _target_: str = "prune_plugins.selector.greedy.Greedy"
    block: int = 32  # neurons chosen between two updates of the residual; 1 is the plain pursuit


class Greedy:
    """Orthogonal matching pursuit on the read-out's output; 2F³ + 4D·F² FLOPs a layer. Wants the refit."""

    def __init__(self, block: int) -> None:
        if block < 1:
            raise ValueError(f"selector.block={block}: give 1 or more")
        self.block = block

    def order(self, site: ReadOut) -> Tensor:
        """Neurons in the order of choice, int64 [F]."""
        from prune.nn.elimination import pursuit_order

        return pursuit_order(site.gram, site.weight, self.block)


@hookimpl
def prune_selectors() -> dict[str, type]:
    return {"greedy": GreedyOptions}
