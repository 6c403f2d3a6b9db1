"""Folding in order of layers: each refit sees the folds before it and aims at the source's residual stream.

With x̃ the residual stream of the folded model and x that of the source, ã the folded model's kept read-out
inputs, the refit minimises ‖(x̃_mid + W′ã) − x_out‖² + ε‖W′ − W_S‖²: it repairs what earlier layers broke.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .gram import add_outer, calls_of, mirror, picked
from .layout import Site
from .model import LazyModel
from .narrow import folded
from .refit import Moments, Refit, best_refit, complement
from .states import States
from .walk import Stream
from .windows import Batch


class SequentialFold:
    """Two walks over the same windows, the source's and the folded model's; sites are folded in order.

    Cost a layer: two forward passes of it over the windows and two Grams of the kept width. What the refit
    adds to the folded stream is linear in the kept inputs ã, which are kept until it is known. Behind a norm
    it is not: there the folded layer runs once more, and the target is the layer's own output.
    """

    def __init__(
        self, model: LazyModel, train: Sequence[Batch], val: Sequence[Batch], budget: int, scratch: Path
    ) -> None:
        self.model, self.split, self.count = model, len(train), len(train) + len(val)
        self.budget, self.scratch = budget, scratch
        self.scale = float(getattr(model.config, model.layout.scale_key or "", 1.0))
        self.batches = [*train, *val]
        self.source = Stream(model, self.batches, budget, scratch)
        self.folded = Stream(model, self.batches, budget, scratch)

    def refit(
        self, site: Site, weight: Tensor, keep: Tensor, ridges: Sequence[float], mode: str
    ) -> tuple[Refit, float, Tensor]:
        """Fold one site and walk both streams through its layer.

        :param weight: W, float32 [D, F].
        :returns: the refit, the plain cut's error, and the bias shift E[r] − C E[ã], float64 [D].
        """
        way = _BehindNorm if self.model.layout.read_out_norm else _Residual
        with self.model.loaded(self.model.layer_names(site.layer)):
            layer = way(self, site, weight, keep)
            train = layer.gather(range(self.split))
            val = layer.gather(range(self.split, self.count))
            best, plain = best_refit(train.moments(), val.moments(), val.energy, ridges, mode)
            shift = train.shift(best.correction) * (mode != "off")
            layer.advance(best.correction, shift)
        return best, plain, shift

    def close(self) -> None:
        """Give the hidden states back."""
        self.source.close()
        self.folded.close()


class _Residual:
    """One layer whose read-out adds to the residual stream.

    The folded stream stands at the plain cut's output while the correction is not known: the target that the
    cut leaves undone is x_out less it, and a correction adds C ã.
    """

    def __init__(self, fold: SequentialFold, site: Site, weight: Tensor, keep: Tensor) -> None:
        self.fold, self.site, self.keep = fold, site, keep
        self.drop = complement(keep, site.width)
        self.dropped = weight[:, self.drop]
        shapes = [torch.Size((*b.ids.shape, len(keep))) for b in fold.batches]
        model = fold.model
        self.kept = States(shapes, model.dtype, model.device, fold.budget, fold.scratch)

    def gather(self, batches: range) -> _Sums:
        """Sums over the counted tokens of some batches; both streams go through the layer."""
        sums = _Sums(len(self.keep), self.site.hidden)
        source, stream, scale = self.fold.source, self.fold.folded, self.fold.scale
        readout = self.fold.model.model.get_submodule(self.site.read_out)
        for b in batches:
            source.push(self.site.layer, b)
            with calls_of(readout) as seen:
                out = stream.run(self.site.layer, b)
            a, own = (t.view(*out.shape[:-1], -1) for t in seen[0])
            cut = out - scale * (a[..., self.drop].float() @ self.dropped.T).to(out.dtype)
            self.kept[b], stream.states[b] = a[..., self.keep], cut
            rows = source.batches[b].counted.to(cut.device)
            rest = (source.states[b][rows] - cut[rows]).float() / scale
            sums.add(self.kept[b][rows].float(), rest, own[rows].float())
        return sums

    def advance(self, correction: Tensor | None, shift: Tensor) -> None:
        """From the plain cut's stream to the folded one's."""
        states, scale = self.fold.folded.states, self.fold.scale
        shift = shift if self.site.biased else torch.zeros_like(shift)
        for b in range(self.fold.count):
            added = shift.to(self.fold.model.device).float().expand_as(states[b])
            if correction is not None:
                added = added + self.kept[b].float() @ correction.T.float()
            states[b] = states[b] + scale * added.to(states[b].dtype)
        self.kept.close()


class _BehindNorm:
    """One layer with a norm behind its read-out: the residual stream is no linear target there."""

    def __init__(self, fold: SequentialFold, site: Site, weight: Tensor, keep: Tensor) -> None:
        self.fold, self.site, self.weight, self.keep = fold, site, weight, keep
        self.drop = complement(keep, site.width)

    def gather(self, batches: range) -> _Sums:
        """Sums over the counted tokens of some batches; the folded stream stays before the layer."""
        sums = _Sums(len(self.keep), self.site.hidden)
        stream = self.fold.folded
        readout = self.fold.model.model.get_submodule(self.site.read_out)
        for b in batches:
            with calls_of(readout) as seen:
                stream.run(self.site.layer, b)
            rows = stream.batches[b].counted.to(self.fold.model.device)
            a, own = (t.float() for t in picked(seen[0], rows))
            sums.add(a[:, self.keep], a[:, self.drop] @ self.weight[:, self.drop].T, own)
        return sums

    def advance(self, correction: Tensor | None, shift: Tensor) -> None:
        """Push the folded stream through the folded layer."""
        with folded(self.fold.model, self.site, self.weight, self.keep, correction, shift):
            for b in range(self.fold.count):
                self.fold.folded.push(self.site.layer, b)


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
        add_outer(self.kept, kept)
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
        return Moments(mirror(self.kept).div_(n), self.cross.div_(n), self.square / n)

    def shift(self, correction: Tensor | None) -> Tensor:
        n = max(self.tokens, 1)
        shift = self.mean_rest / n
        return shift if correction is None else shift - correction @ (self.mean_kept / n)
