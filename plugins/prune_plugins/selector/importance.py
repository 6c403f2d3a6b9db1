"""importance: the energy that a neuron puts into its layer's output on the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prune import hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from prune.parts import ReadOut


@dataclass
class ImportanceOptions:
    _target_: str = "prune_plugins.selector.importance.Importance"


class Importance:
    """s_j = Σ_jj · ‖W_:,j‖²; D·F FLOPs a layer."""

    def order(self, site: ReadOut) -> Tensor:
        """Neurons by descending score, ties by index; int64 [F]."""
        score = site.gram.diagonal().double() * site.weight.double().square().sum(0)
        return score.argsort(descending=True, stable=True)


@hookimpl
def prune_selectors() -> dict[str, type]:
    return {"importance": ImportanceOptions}
