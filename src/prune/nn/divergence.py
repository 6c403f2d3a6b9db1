"""KL divergence of one model's next-token distributions from another's, at counted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch

from .nll import predictors
from .walk import Stream
from .windows import Text, targets


def divergence(source: Stream, other: Stream, texts: Sequence[Text]) -> list[float]:
    """KL(source ‖ other) in nats, summed over the counted tokens of each text.

    Both streams have walked the same batches to the end.
    """
    with ExitStack() as held:
        for model in dict.fromkeys((source.model, other.model)):
            held.enter_context(model.loaded(model.outside))
        return _divergence(source, other, texts)


def _divergence(source: Stream, other: Stream, texts: Sequence[Text]) -> list[float]:
    sums = [0.0] * len(texts)
    for b, batch in enumerate(source.batches):
        kl = torch.zeros(batch.ids.shape, dtype=torch.float64)
        for rows, _ in predictors(source, b, targets(batch, texts)):
            kl[rows.cpu()] = _kl(source, other, b, rows).double().cpu()
        for row, window in enumerate(batch.windows):
            sums[window.record] += float(kl[row].sum())
    return sums


def _kl(source: Stream, other: Stream, b: int, rows: torch.Tensor) -> torch.Tensor:
    """Σ p (log p − log q) at each picked position, float32 [n]."""
    p, q = (s.logits(b, rows).float().log_softmax(-1) for s in (source, other))
    return (p.exp() * (p - q)).sum(-1)
