"""Negative log-likelihood of chosen tokens, by the streaming walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .model import LazyModel
from .walk import Stream, push_all
from .windows import Text, batched, targets

CHUNK = 1 << 24  # logits of at most this many floats at a time: 64 MB


@dataclass(frozen=True)
class Score:
    """Summed NLL in nats of one text, over ``tokens`` tokens."""

    nll: float
    tokens: int


def score(
    model: LazyModel,
    texts: Sequence[Text],
    *,
    window: int,
    budget: int,
    scratch: Path,
    batch_tokens: int = 4096,
    done: Callable[[int, int], None] | None = None,
) -> list[Score]:
    """The NLL of every text, in order. One longer than ``window`` is scored in windows with half overlap."""
    stream = Stream(model, batched(texts, window, batch_tokens), budget, scratch)
    push_all(stream, done)
    found = scores(stream, texts)
    stream.close()
    return found


def scores(stream: Stream, texts: Sequence[Text]) -> list[Score]:
    """The NLL of every text, in order, of a stream that has walked their batches to the end."""
    sums = [0.0] * len(texts)
    counts = [0] * len(texts)
    with stream.model.loaded(stream.model.outside):
        for b in range(len(stream.batches)):
            for record, nll, tokens in _score_batch(stream, b, texts):
                sums[record] += nll
                counts[record] += tokens
    return [Score(s, n) for s, n in zip(sums, counts, strict=True)]


def mean(scores: Sequence[Score]) -> float:
    """NLL a counted token, over all texts."""
    return sum(s.nll for s in scores) / max(1, sum(s.tokens for s in scores))


def _score_batch(stream: Stream, b: int, texts: Sequence[Text]) -> list[tuple[int, float, int]]:
    """(record, summed NLL, tokens) of each window of a batch."""
    batch = stream.batches[b]
    predicted = targets(batch, texts)
    if not predicted.any():
        return []
    nll = torch.zeros(batch.ids.shape, dtype=torch.float64)
    nll[predicted] = _token_nll(stream, b, predicted)
    return [
        (w.record, float(nll[row].sum()), int(predicted[row].sum())) for row, w in enumerate(batch.windows)
    ]


def _token_nll(stream: Stream, b: int, predicted: Tensor) -> Tensor:
    """−log p of each predicted token, float64 [n]."""
    parts = []
    for rows, wanted in predictors(stream, b, predicted):
        logits = stream.logits(b, rows).float()
        parts.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none").double().cpu())
    return torch.cat(parts)


def predictors(stream: Stream, b: int, predicted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The positions whose logits predict the marked tokens of a batch, as many at a time as CHUNK allows.

    :param predicted: bool [B, T].
    :returns: (bool [B, T] of the positions, int64 [n] of the tokens they predict).
    """
    places = predicted.roll(-1, dims=1).nonzero()  # the position before a token predicts it
    wanted = stream.batches[b].ids[predicted]
    step = max(1, CHUNK // stream.model.config.get_text_config().vocab_size)
    for start in range(0, len(places), step):
        rows = torch.zeros_like(predicted)
        chunk = places[start : start + step]
        rows[chunk[:, 0], chunk[:, 1]] = True
        device = stream.model.device
        yield rows.to(device), wanted[start : start + step].to(device)
