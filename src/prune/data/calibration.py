"""The windows that calibrate a fold: train to solve, val to judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .records import Record, read

if TYPE_CHECKING:
    from prune.nn.windows import Batch

PER_NEURON = 20  #: calibration tokens a neuron of the widest FFN; under about 10 the refit overfits


def calibration(
    answers: Path, options: Mapping[str, Any], widest: int
) -> tuple[Sequence[Batch], Sequence[Batch]]:
    """Batches of train and, a quarter as many tokens, of val.

    :param options: ``illuminate``: ``window``, and ``tokens`` (None: 20 a neuron; 0: all).
    """
    wanted = PER_NEURON * widest if options["tokens"] is None else options["tokens"]
    train = _batches(read(answers, "train"), options["window"], wanted)
    return train, _batches(read(answers, "val"), options["window"], wanted and max(1, wanted // 4))


def _batches(records: Iterable[Record], window: int, wanted: int) -> Sequence[Batch]:
    from prune.nn.windows import batches, cut

    windows, tokens = [], 0
    for i, record in enumerate(records):
        if wanted and tokens >= wanted:
            break
        windows += cut(i, record.ids, window)
        tokens += len(record.ids)
    return batches(windows, tokens=max(window, 4096))
