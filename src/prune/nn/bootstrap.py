"""Token-weighted NLL and its 95 % interval, from a bootstrap over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """What one candidate reached on the test records; entry i of each field belongs to record i."""

    nll: Sequence[float]  #: summed NLL (or KL divergence) of the record's generated tokens, nats
    tokens: Sequence[int]  #: how many tokens that sum covers
    prompts: Sequence[str]  #: prompt id: the samples of one prompt are not independent

    def __post_init__(self) -> None:
        if not len(self.nll) == len(self.tokens) == len(self.prompts):
            raise ValueError("nll, tokens and prompts must have one entry a record")
        if not self.tokens or min(self.tokens) <= 0:
            raise ValueError("a score on zero tokens is no score")

    @property
    def mean(self) -> float:
        """NLL per generated token, nats: long records weigh more."""
        return float(np.sum(np.asarray(self.nll, np.float64)) / sum(self.tokens))

    def by_prompt(self) -> tuple[Floats, Floats]:
        """(NLL sums [P], token counts [P]), the prompts in order of first appearance."""
        place = {prompt: i for i, prompt in enumerate(dict.fromkeys(self.prompts))}
        nll, tokens = np.zeros(len(place)), np.zeros(len(place))
        for prompt, loss, count in zip(self.prompts, self.nll, self.tokens, strict=True):
            nll[place[prompt]] += loss
            tokens[place[prompt]] += count
        return nll, tokens


@dataclass(frozen=True)
class Interval:
    """A mean with its percentile interval; without bounds, ``why`` says what is missing."""

    mean: float
    low: float | None
    high: float | None
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "why" or v}


def interval(scores: Scores, seed: int = 0, draws: int = 2000) -> Interval:
    """The mean per generated token, over resampled prompts."""
    return _interval(scores.mean, [scores.by_prompt()], seed, draws)


def delta_interval(candidate: Scores, source: Scores, seed: int = 0, draws: int = 2000) -> Interval:
    """NLL per generated token of the candidate minus that of the source, on the same resampled prompts.

    Paired: a prompt that is hard for both moves neither bound.

    :raises ValueError: where the two were not scored on the same records.
    """
    if list(candidate.prompts) != list(source.prompts):
        raise ValueError("a paired interval needs both candidates on the same records")
    pairs = [candidate.by_prompt(), source.by_prompt()]
    return _interval(candidate.mean - source.mean, pairs, seed, draws)


def _interval(mean: float, pairs: list[tuple[Floats, Floats]], seed: int, draws: int) -> Interval:
    """Percentile interval of the first pair's ratio of sums, less that of the second where there is one."""
    count = len(pairs[0][0])
    if count < 2:
        return Interval(mean, None, None, "one prompt cannot be resampled: give more test prompts")
    generator = np.random.default_rng(seed)
    values = [_resample(pairs, generator, rows) for rows in _blocks(draws, count)]
    low, high = np.quantile(np.concatenate(values), [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def _resample(pairs: list[tuple[Floats, Floats]], generator: np.random.Generator, rows: int) -> Floats:
    """The statistic of ``rows`` resamples, float64 [rows]."""
    count = len(pairs[0][0])
    picks = generator.multinomial(count, np.full(count, 1 / count), size=rows).astype(np.float64)
    ratios: list[Floats] = [(picks @ nll) / (picks @ tokens) for nll, tokens in pairs]
    return ratios[0] - ratios[1] if len(ratios) > 1 else ratios[0]


def _blocks(draws: int, count: int, cells: int = 4_000_000) -> list[int]:
    """``draws`` cut so that no block of counts [rows, P] holds more than ``cells`` numbers."""
    rows = max(1, cells // count)
    return [min(rows, draws - start) for start in range(0, draws, rows)]
