"""The marks around a model's reasoning, and which tokens of an answer lie between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Marks:
    """The token ids of the two marks (one id each where the vocabulary holds the mark whole)."""

    open: tuple[int, ...]
    close: tuple[int, ...]

    def opened_by(self, prompt: Sequence[int]) -> bool:
        """Whether a rendered prompt ends with the opening mark and a line end, as some templates do."""
        tail = prompt[-len(self.open) - 2 :]
        return bool(find(tail, self.open)) and not find(tail, self.close)

    def span(self, prompt: Sequence[int], generated: Sequence[int]) -> int | None:
        """How many of the generated tokens are reasoning, its closing mark included; 0 where there is none.

        None where the marks do not pair: a block that never ends, or more than one.
        """
        opens, closes = find(generated, self.open), find(generated, self.close)
        starts = len(opens) + self.opened_by(prompt)
        if starts == 0 and not closes:
            return 0
        if starts != 1 or len(closes) != 1 or (opens and opens[0] > closes[0]):
            return None
        return closes[0] + len(self.close)


def find(ids: Sequence[int], mark: Sequence[int]) -> list[int]:
    """Every index at which ``mark`` begins in ``ids``."""
    size = len(mark)
    return [i for i in range(len(ids) - size + 1) if tuple(ids[i : i + size]) == tuple(mark)]


def divide(text: str) -> tuple[str, str]:
    """(reasoning, answer) of a text that may carry the marks itself."""
    before, mark, after = text.partition(CLOSE)
    if not mark:
        return "", text
    return before.replace(OPEN, "", 1).strip(), after.lstrip("\n")
