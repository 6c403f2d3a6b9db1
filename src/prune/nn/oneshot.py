"""Folding every layer by itself, from the Gram matrices of the source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from .gram import gram_facts, gram_file
from .layout import Site
from .refit import Refit, best_refit, bias_shift, own_output


class OneShotFold:
    """The target of each refit is the layer's own output on the source's activations."""

    def __init__(self, grams: Path) -> None:
        self._grams = grams
        self._energies = gram_facts(grams)["energy_val"]

    def refit(
        self, site: Site, weight: Tensor, keep: Tensor, ridges: Sequence[float], mode: str
    ) -> tuple[Refit, float, Tensor]:
        """The refit of one site, the plain cut's error, and the bias shift, float64 [D].

        :param weight: W, float32 [D, F].
        """
        gram = load_file(gram_file(self._grams, site.layer))
        solve, judge = (own_output(gram[split], weight.double(), keep) for split in ("train", "val"))
        best, plain = best_refit(solve, judge, self._energies[site.layer], ridges, mode)
        return best, plain, bias_shift(weight, gram["mean"], keep, best.correction) * (mode != "off")

    def close(self) -> None:
        """Nothing is held."""
