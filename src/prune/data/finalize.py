"""From answers to records: which are usable, and where the reasoning ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prune.errors import TeacherError
from prune.parts import Answer

from .fields import SPLITS
from .questions import Asked
from .records import Record, Rejected
from .render import Renderer

WASTE = 0.5  #: the share of unusable answers above which the set would tell about the rest only


def judge(
    asked: Asked, answer: Answer | None, split: str, renderer: Renderer, context: int
) -> Record | Rejected:
    """The record of an answered question, or the reason why there is none.

    Usable = the teacher stopped by itself, at least one answer token besides the end-of-turn token, marks of
    reasoning that pair, and all of it fits the context.
    """
    prompt = list(asked.question.ids)
    generated = _generated(renderer, prompt, answer)
    think = renderer.marks.span(prompt, generated) if renderer.marks else 0
    reason = _fault(renderer, asked, answer, generated, think)
    end = [] if renderer.end is None else [renderer.end]
    if reason is None and len(prompt) + len(generated) + len(end) > context:
        reason = "longer than the context"
    common = (asked.question.rid, asked.prompt.prompt_id, asked.sample, split)
    if reason is not None or answer is None or think is None:
        return Rejected(*common, reason=reason or "failed", text=answer.text if answer else "")
    return Record(
        *common,
        category=asked.prompt.category,
        messages=[dict(turn) for turn in asked.prompt.messages],
        ids=[*prompt, *generated, *end],
        n_prompt=len(prompt),
        n_think=think,
        n_answer=len(generated) - think + len(end),
        finish=answer.finish,
        meta=_meta(asked, answer, renderer.tokenizer.decode(generated[think:]).strip()),
    )


def refuse_waste(records: Sequence[Record], rejected: Sequence[Rejected]) -> None:
    """:raises TeacherError: too few usable answers, or none for one of the splits."""
    reasons = Counter(r.reason for r in rejected)
    counted = ", ".join(f"{reason} {n}" for reason, n in reasons.most_common(4))
    whole = len(records) + len(rejected)
    if len(rejected) > WASTE * whole:
        raise TeacherError(
            f"{len(rejected)} of {whole} answers are unusable ({counted}); raise teacher.max_tokens, "
            "or ask for shorter answers in the prompts"
        )
    for split in SPLITS:
        if not any(r.split == split for r in records):
            raise TeacherError(
                f"no usable answer is left in split {split} ({counted}); "
                "give more prompts or raise teacher.max_tokens"
            )


def _generated(renderer: Renderer, prompt: Sequence[int], answer: Answer | None) -> list[int]:
    """The answer's own tokens, or those of its text where a teacher gave none."""
    if answer is None:
        return []
    if answer.ids or not answer.text.strip():
        return list(answer.ids)
    return renderer.answer(prompt, answer.text, str(answer.meta.get("reasoning") or ""))


def _fault(
    renderer: Renderer, asked: Asked, answer: Answer | None, generated: Sequence[int], think: int | None
) -> str | None:
    if not asked.fits:
        return "prompt longer than the context"
    if answer is None or answer.finish not in ("stop", "length"):
        return "failed"
    if answer.finish == "length":
        return "truncated"
    if think is None:
        return "unpaired marks of reasoning"
    return None if renderer.tokenizer.decode(generated[think:]).strip() else "empty"


def _meta(asked: Asked, answer: Answer, text: str) -> dict[str, Any]:
    name: Mapping[str, Any] = {"id": asked.prompt.name} if asked.prompt.name is not None else {}
    return {**answer.meta, **name, "answer": text}
