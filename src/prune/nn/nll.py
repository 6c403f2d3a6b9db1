"""Negative log-likelihood of chosen tokens, by the streaming walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .model import LazyModel
from .walk import Stream, push_all
from .windows import Window, batches, cut

CHUNK = 1 << 24  # logits of at most this many floats at a time: 64 MB


@dataclass(frozen=True)
class Text:
    """Tokens, and the span [start, stop) of those whose likelihood counts (start ≥ 1)."""

    ids: Sequence[int]
    start: int
    stop: int


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
    windows = [w for i, t in enumerate(texts) for w in cut(i, t.ids, window)]
    stream = Stream(model, batches(windows, batch_tokens), budget, scratch)
    push_all(stream, done)
    sums = [0.0] * len(texts)
    counts = [0] * len(texts)
    with model.loaded(model.outside):
        for b in range(len(stream.batches)):
            for record, nll, tokens in _score_batch(stream, b, texts):
                sums[record] += nll
                counts[record] += tokens
    stream.close()
    return [Score(s, n) for s, n in zip(sums, counts, strict=True)]


def _score_batch(stream: Stream, b: int, texts: Sequence[Text]) -> list[tuple[int, float, int]]:
    """(record, summed NLL, tokens) of each window of a batch."""
    batch = stream.batches[b]
    predicted = torch.zeros(batch.ids.shape, dtype=torch.bool)
    for row, window in enumerate(batch.windows):
        first, last = _span(window, texts[window.record])
        predicted[row, first:last] = True
    if not predicted.any():
        return []
    nll = torch.zeros(batch.ids.shape, dtype=torch.float64)
    rows = predicted.roll(-1, dims=1)  # the position before a token predicts it
    targets = batch.ids[predicted]
    nll[predicted] = _token_nll(stream, b, rows, targets)
    return [
        (w.record, float(nll[row].sum()), int(predicted[row].sum())) for row, w in enumerate(batch.windows)
    ]


def _span(window: Window, text: Text) -> tuple[int, int]:
    """Where in a window the counted tokens of its text lie; its first token has nothing that predicts it."""
    first = max(text.start - window.offset, window.start, 1)
    return first, max(first, min(text.stop - window.offset, len(window.ids)))


def _token_nll(stream: Stream, b: int, rows: Tensor, targets: Tensor) -> Tensor:
    """−log p of each target, float64 [n], a chunk of the vocabulary's logits at a time."""
    places = rows.nonzero()
    step = max(1, CHUNK // stream.model.config.get_text_config().vocab_size)
    parts = []
    for start in range(0, len(places), step):
        some = torch.zeros_like(rows)
        chunk = places[start : start + step]
        some[chunk[:, 0], chunk[:, 1]] = True
        logits = stream.logits(b, some.to(stream.model.device)).float()
        wanted = targets[start : start + step].to(logits.device)
        parts.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none").double().cpu())
    return torch.cat(parts)
