"""What one candidate is measured by: NLL on held-out answers, general text, greedy generation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .divergence import divergence
from .generate import generate
from .model import LazyModel
from .nll import Score, score, scores
from .walk import Stream, push_all
from .windows import Text, batched

WINDOW = 2048  # tokens; a longer text is scored in windows with half overlap


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
    kl: list[float] | None = None  #: to the source, summed over each text; None: of another vocabulary
    general: list[Score] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)
    tokens_per_second: float | None = None


class Examiner:
    """Asks every candidate the same, the source first: the others are compared with it token by token."""

    def __init__(self, questions: Questions, budget: int, scratch: Path) -> None:
        self.questions, self.budget, self.scratch = questions, budget, scratch
        self._source: Stream | None = None

    def measure(self, model: LazyModel, done: Callable[[float], None]) -> Measured:
        """Score and ask one candidate.

        :param done: hears the share that is done, 0 to 1.
        """
        questions, general = self.questions, self.questions.general
        found = Measured(
            sum(model.model.get_parameter(n).numel() for n in model.names),
            sum((model.folder / f).stat().st_size for f in model.checkpoint.files),
            *self._scored(model, lambda i, n: done(0.3 * i / n)),
        )
        if general:
            heard = lambda i, n: done(0.3 + 0.2 * i / n)  # noqa: E731
            found.general = score(
                model, general, window=WINDOW, budget=self.budget, scratch=self.scratch, done=heard
            )
        if questions.prompts:
            _generate(model, questions, found, lambda share: done(0.5 + 0.5 * share))
        return found

    def close(self) -> None:
        """Give the source's hidden states back."""
        if self._source is not None:
            self._source.close()

    def _scored(
        self, model: LazyModel, done: Callable[[int, int], None]
    ) -> tuple[list[Score], list[float] | None]:
        """NLL and KL divergence to the source, summed over each text."""
        texts = self.questions.texts
        stream = Stream(model, batched(texts, WINDOW, 4096), self.budget, self.scratch)
        push_all(stream, done)
        found = scores(stream, texts)
        if self._source is None:
            self._source = stream
            stream.model = model.reopened()  # its head is all that is wanted from here on
            return found, [0.0] * len(texts)
        same = _vocabulary(model) == _vocabulary(self._source.model)
        kl = divergence(self._source, stream, texts) if same else None
        stream.close()
        return found, kl


def _vocabulary(model: LazyModel) -> int:
    size: int = model.model.get_output_embeddings().weight.shape[0]
    return size


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
