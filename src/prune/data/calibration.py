"""The windows that calibrate a fold: train to solve, val to judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .records import Record, read

if TYPE_CHECKING:
    from prune.nn.windows import Batch, Text

PER_NEURON = 20  #: calibration tokens a neuron of the widest FFN; under about 10 the refit overfits


def calibration(
    answers: Path, options: Mapping[str, Any], widest: int
) -> tuple[Sequence[Batch], Sequence[Batch]]:
    """Batches of train and, a quarter as many tokens, of val.

    :param options: ``illuminate``: ``window``, and ``tokens`` (None: 20 a neuron; 0: all).
    """
    from prune.nn.windows import batched

    window = options["window"]
    train, val = texts(answers, options, widest, "all")
    return batched(train, window, max(window, 4096)), batched(val, window, max(window, 4096))


def texts(
    answers: Path, options: Mapping[str, Any], widest: int, loss_on: str
) -> tuple[Sequence[Text], Sequence[Text]]:
    """The records of train and val behind :func:`calibration`, with the span that ``loss_on`` counts."""
    wanted = PER_NEURON * widest if options["tokens"] is None else options["tokens"]
    train, val = (read(answers, split) for split in ("train", "val"))
    return _texts(train, loss_on, wanted), _texts(val, loss_on, wanted and max(1, wanted // 4))


def _texts(records: Iterable[Record], loss_on: str, wanted: int) -> list[Text]:
    """As many records as hold ``wanted`` tokens; 0 = all."""
    from prune.nn.windows import Text

    found: list[Text] = []
    tokens = 0
    for record in records:
        if wanted and tokens >= wanted:
            break
        found.append(Text(record.ids, *record.span(loss_on)))
        tokens += len(record.ids)
    return found
