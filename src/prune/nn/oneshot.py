"""Folding every layer by itself, from the Gram matrices of the source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from .gram import gram_facts, gram_file
from .layout import Site
from .refit import Refit, best_refit, bias_shift, own_output

STARVED = 10  #: tokens a kept neuron of an expert, fewer of which overfit its refit


class OneShotFold:
    """The target of each refit is the layer's own output on the source's activations."""

    def __init__(self, grams: Path) -> None:
        self._grams = grams
        self._facts = gram_facts(grams)

    def refit(
        self, site: Site, weight: Tensor, keep: Tensor, ridges: Sequence[float], mode: str
    ) -> tuple[Refit, float, Tensor]:
        """The refit of one site, the plain cut's error, and the bias shift, float64 [D].

        :param weight: W, float32 [D, F].
        """
        gram = load_file(gram_file(self._grams, site.layer, site.part))
        solve, judge = (own_output(gram[split], weight.double(), keep) for split in ("train", "val"))
        mode = "off" if starved(site, len(keep), self._facts["routed_train"][site.index]) else mode
        best, plain = best_refit(solve, judge, self._facts["energy_val"][site.index], ridges, mode)
        return best, plain, bias_shift(weight, gram["mean"], keep, best.correction) * (mode != "off")

    def close(self) -> None:
        """Nothing is held."""


def starved(site: Site, width: int, seen: int) -> bool:
    """Whether an expert that is narrowed to ``width`` saw too few tokens to be refitted."""
    return site.expert is not None and 0 < width < site.width and seen < STARVED * width
