"""What one candidate is measured by: NLL on held-out answers, general text, greedy generation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .generate import generate
from .model import LazyModel
from .nll import Score, score
from .windows import Text


@dataclass(frozen=True)
class Questions:
    """What every candidate is asked, in the same order."""

    texts: Sequence[Text]  #: test records, and the span of each that counts
    general: Sequence[Text]  #: general text, empty where none was given
    prompts: Sequence[Sequence[int]]  #: token ids to continue greedily
    max_tokens: int
    stops: frozenset[int]  #: ids that end an answer


@dataclass
class Measured:
    """The answers of one candidate."""

    parameters: int
    nbytes: int  #: of its weight files
    scores: list[Score]
    general: list[Score] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)
    tokens_per_second: float | None = None


def measure(
    model: LazyModel, questions: Questions, *, budget: int, scratch: Path, done: Callable[[float], None]
) -> Measured:
    """Score and ask one candidate.

    :param done: hears the share that is done, 0 to 1.
    """

    def score_all(texts: Sequence[Text], base: float, share: float) -> list[Score]:
        heard = lambda i, n: done(base + share * i / n)  # noqa: E731
        return score(model, texts, window=2048, budget=budget, scratch=scratch, done=heard) if texts else []

    found = Measured(
        sum(model.model.get_parameter(n).numel() for n in model.names),
        sum((model.folder / f).stat().st_size for f in model.checkpoint.files),
        score_all(questions.texts, 0.0, 0.3),
        score_all(questions.general, 0.3, 0.2),
    )
    if questions.prompts:
        _generate(model, questions, found, lambda share: done(0.5 + 0.5 * share))
    return found


def _generate(model: LazyModel, questions: Questions, found: Measured, done: Callable[[float], None]) -> None:
    """Greedy continuations, in one batch, in the order of the prompts."""
    count = len(questions.prompts)
    answers: dict[int, tuple[list[int], bool]] = {}
    resident = model.pin()
    begin = time.monotonic()
    for index, ids, finish in generate(
        resident,
        questions.prompts,
        max_tokens=questions.max_tokens,
        eos=questions.stops,
        sampling=[{}] * count,
        seeds=[0] * count,
        batch=16,
    ):
        answers[index] = (ids, finish == "stop")
        done(len(answers) / count)
    spent = time.monotonic() - begin
    found.answers = [answers[i][0] for i in range(count)]
    found.stopped = [answers[i][1] for i in range(count)]
    found.tokens_per_second = sum(map(len, found.answers)) / max(spent, 1e-9)
