"""Does generated text still look like text: loops, length, stopping."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

#: Of the 5-grams in the last 128 tokens, healthy text has more than 30 % distinct, a collapse almost none.
LOOP = 0.3


def distinct_ngrams(ids: Sequence[int], n: int = 5, last: int = 128) -> float | None:
    """Distinct n-grams of the last ``last`` tokens over the possible ones; None below n tokens."""
    tail = tuple(ids[-last:])
    grams = [tail[i : i + n] for i in range(len(tail) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def loops(ids: Sequence[int]) -> bool:
    """True where a generated text repeats itself; a text too short to tell does not."""
    share = distinct_ngrams(ids)
    return share is not None and share < LOOP


def generation_stats(
    answers: Sequence[Sequence[int]], stopped: Sequence[bool], expected: Sequence[int], max_tokens: int
) -> dict[str, Any]:
    """What ``candidates[].generation`` of a report holds.

    :param answers: generated token ids of each prompt, without the end-of-sequence token.
    :param stopped: whether each ended by itself, not at the token limit.
    :param expected: tokens of the teacher's answer to each prompt. No answer can be longer than the
        limit, so a longer one counts as ``max_tokens``.
    """
    if not len(answers) == len(stopped) == len(expected):
        raise ValueError("answers, stopped and expected must have one entry a prompt")
    ratios = [len(a) / min(e, max_tokens) for a, e in zip(answers, expected, strict=True) if e > 0]
    return {
        "prompts": len(answers),
        "loops": sum(map(loops, answers)),
        "median_length_ratio": median(ratios) if ratios else None,
        "stop_rate": sum(stopped) / len(stopped) if stopped else None,
    }
