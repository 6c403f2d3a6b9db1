"""Folding in order of layers: each refit sees the folds before it and aims at the source's residual stream.

With x̃ the residual stream of the folded model and x that of the source, ã the folded model's kept read-out
inputs, the refit minimises ‖(x̃_mid + W′ã) − x_out‖² + ε‖W′ − W_S‖²: it repairs what earlier layers broke.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .gram import calls_of, picked
from .layout import Site
from .model import LazyModel
from .narrow import folded
from .refit import Moments, Refit, best_refit, complement
from .walk import Stream
from .windows import Batch


class SequentialFold:
    """Two walks over the same windows, the source's and the folded model's; sites are folded in order.

    Cost a layer: three forward passes of it over the windows and two Grams of the kept width.
    """

    def __init__(
        self, model: LazyModel, train: Sequence[Batch], val: Sequence[Batch], budget: int, scratch: Path
    ) -> None:
        self.model, self.split, self.count = model, len(train), len(train) + len(val)
        self._scale = float(getattr(model.config, model.layout.scale_key or "", 1.0))
        every = [*train, *val]
        self._source = Stream(model, every, budget, scratch)
        self._folded = Stream(model, every, budget, scratch)

    def refit(
        self, site: Site, weight: Tensor, keep: Tensor, ridges: Sequence[float], mode: str
    ) -> tuple[Refit, float, Tensor]:
        """Fold one site and walk both streams through its layer.

        :param weight: W, float32 [D, F].
        :returns: the refit, the plain cut's error, and the bias shift E[r] − C E[ã], float64 [D].
        """
        with self.model.loaded(self.model.layer_names(site.layer)):
            train = self._gather(site, weight, keep, range(self.split))
            val = self._gather(site, weight, keep, range(self.split, self.count))
            best, plain = best_refit(train.moments(), val.moments(), val.energy, ridges, mode)
            shift = train.shift(best.correction)
            with folded(self.model, site, weight, keep, best.correction, shift):
                for b in range(self.count):
                    self._folded.push(site.layer, b)
        return best, plain, shift

    def close(self) -> None:
        """Give the hidden states back."""
        self._source.close()
        self._folded.close()

    def _gather(self, site: Site, weight: Tensor, keep: Tensor, batches: range) -> _Sums:
        """Sums over the counted tokens of some batches; the source's stream goes through the layer."""
        sums = _Sums(len(keep), site.hidden)
        drop = complement(keep, site.width)
        readout = self.model.model.get_submodule(site.read_out)
        for b in batches:
            self._source.push(site.layer, b)
            with calls_of(readout) as seen:
                out = self._folded.run(site.layer, b)
            rows = self._source.batches[b].counted.to(self.model.device)
            a, own = (t.float() for t in picked(seen[0], rows))
            rest = a[:, drop] @ weight[:, drop].T
            if not self.model.layout.read_out_norm:  # behind a norm the residual stream is no linear target
                rest += (self._source.states[b][rows] - out[rows]).float() / self._scale
            sums.add(a[:, keep], rest, own)
        return sums


class _Sums:
    """Float64 sums of float32 products."""

    def __init__(self, kept: int, hidden: int) -> None:
        self.tokens, self.square, self.out = 0, 0.0, 0.0
        self.kept = torch.zeros((kept, kept), dtype=torch.float64)
        self.cross = torch.zeros((kept, hidden), dtype=torch.float64)
        self.mean_kept = torch.zeros(kept, dtype=torch.float64)
        self.mean_rest = torch.zeros(hidden, dtype=torch.float64)

    def add(self, kept: Tensor, rest: Tensor, output: Tensor) -> None:
        self.tokens += len(kept)
        self.kept += kept.T @ kept
        self.cross += kept.T @ rest
        self.square += float(rest.double().square().sum())
        self.out += float(output.double().square().sum())
        self.mean_kept += kept.sum(0, dtype=torch.float64)
        self.mean_rest += rest.sum(0, dtype=torch.float64)

    @property
    def energy(self) -> float:
        return self.out / max(self.tokens, 1)

    def moments(self) -> Moments:
        """The means; the sums are used up."""
        n = max(self.tokens, 1)
        return Moments(self.kept.div_(n), self.cross.div_(n), self.square / n)

    def shift(self, correction: Tensor | None) -> Tensor:
        n = max(self.tokens, 1)
        shift = self.mean_rest / n
        return shift if correction is None else shift - correction @ (self.mean_kept / n)
