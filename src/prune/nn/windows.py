"""Token windows: long records cut with overlap, short ones batched by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Text:
    """Tokens, and the span [start, stop) of those whose likelihood counts (start ≥ 1)."""

    ids: Sequence[int]
    start: int
    stop: int


@dataclass(frozen=True)
class Window:
    """Tokens of one record. Those before ``start`` are context only: another window counts them."""

    record: int
    offset: int  #: index in the record of the first token here
    ids: tuple[int, ...]
    start: int

    @property
    def counted(self) -> int:
        return len(self.ids) - self.start


def cut(record: int, ids: Sequence[int], size: int) -> list[Window]:
    """Windows of at most ``size`` tokens, each half over the one before, so that each token counts once."""
    windows = [Window(record, 0, tuple(ids[:size]), 0)]
    end = size
    while end < len(ids):
        begin = end - size // 2
        part = tuple(ids[begin : begin + size])
        windows.append(Window(record, begin, part, end - begin))
        end = begin + len(part)
    return windows


@dataclass(frozen=True)
class Batch:
    """Windows of similar length, padded on the right.

    Under causal attention no token sees the padding behind it, so neither mask nor position ids are needed:
    every row's positions count from 0.
    """

    windows: tuple[Window, ...]
    ids: Tensor  #: int64 [B, T]
    counted: Tensor  #: bool [B, T], False on context and padding


def batches(windows: Sequence[Window], tokens: int) -> list[Batch]:
    """Batches of at most ``tokens`` padded tokens (a longer window is alone), the longest windows first."""
    ordered = sorted(windows, key=lambda w: (-len(w.ids), w.record, w.offset))
    found: list[Batch] = []
    group: list[Window] = []
    for window in ordered:
        if group and (len(group) + 1) * len(group[0].ids) > tokens:
            found.append(_batch(group))
            group = []
        group.append(window)
    return [*found, _batch(group)] if group else found


def batched(texts: Sequence[Text], window: int, tokens: int) -> list[Batch]:
    """Batches of windows over ``texts``; a window's record is the index of its text."""
    return batches([w for i, t in enumerate(texts) for w in cut(i, t.ids, window)], tokens)


def targets(batch: Batch, texts: Sequence[Text]) -> Tensor:
    """Which tokens of a batch of :func:`batched` count for the likelihood, bool [B, T]."""
    found = torch.zeros(batch.ids.shape, dtype=torch.bool)
    for row, window in enumerate(batch.windows):
        first, last = _span(window, texts[window.record])
        found[row, first:last] = True
    return found


def first(texts: Sequence[Text], tokens: int) -> list[Text]:
    """The first texts that together hold so many counted tokens."""
    found: list[Text] = []
    held = 0
    for text in texts:
        if held >= tokens:
            break
        found.append(text)
        held += text.stop - text.start
    return found


def _span(window: Window, text: Text) -> tuple[int, int]:
    """Where in a window the counted tokens of its text lie; its first token has nothing that predicts it."""
    first = max(text.start - window.offset, window.start, 1)
    return first, max(first, min(text.stop - window.offset, len(window.ids)))


def _batch(group: Sequence[Window]) -> Batch:
    width = len(group[0].ids)
    ids = torch.zeros((len(group), width), dtype=torch.int64)
    counted = torch.zeros((len(group), width), dtype=torch.bool)
    for row, window in enumerate(group):
        ids[row, : len(window.ids)] = torch.tensor(window.ids)
        counted[row, window.start : len(window.ids)] = True
    return Batch(tuple(group), ids, counted)
