"""What a teacher is asked: every sample of every prompt, rendered, with its settings and its seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prune.errors import UsageError
from prune.parts import Question, Teacher

from . import sampling
from .canonical import digest
from .prompts import Prompt
from .render import Renderer


@dataclass(frozen=True)
class Asked:
    """A question and the prompt it comes from."""

    question: Question
    prompt: Prompt
    sample: int
    fits: bool  #: the context has room for the prompt and an answer


def ask(
    prompts: Sequence[Prompt], teacher: Teacher, identity: str, renderer: Renderer, source: Path, seed: int
) -> list[Asked]:
    """``teacher.samples`` questions a prompt, in the prompts' order.

    :raises UsageError: a sampling choice that does not exist or draws equal samples, a prompt that the chat
        template refuses.
    """
    room, advice = context_of(source), teacher.recommended(source)
    asked = []
    for prompt in prompts:
        ids = _rendered(prompt, renderer)
        settings = sampling.settings(teacher.sampling, advice, prompt)
        drawn = bool(settings.get("temperature"))
        if teacher.samples > 1 and not drawn:
            raise UsageError(
                f"teacher.samples: {prompt.where} is answered greedily, each time the same; "
                "set teacher.sampling=temperature=0.7,top_p=0.9 or teacher.samples=1"
            )
        for sample in range(teacher.samples):
            start = int(digest([seed, prompt.prompt_id, sample])[:8], 16) >> 1  # some APIs take 31 bits
            key = [prompt.prompt_id, sample, identity, settings, teacher.max_tokens, start if drawn else None]
            question = Question(digest(key), prompt.messages, ids, settings, start)
            asked.append(Asked(question, prompt, sample, fits=len(ids) + 2 <= room))
    return asked


def _rendered(prompt: Prompt, renderer: Renderer) -> list[int]:
    try:
        return renderer.prompt(prompt.messages)
    except ValueError as error:
        raise UsageError(f"{prompt.where}: {error}") from None


def context_of(folder: Path) -> int:
    """Most positions that a model folder's config allows."""
    config: Mapping[str, object] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    inner = config.get("text_config")
    for holder in (inner if isinstance(inner, dict) else {}, config):
        for name in ("max_position_embeddings", "n_positions"):
            value = holder.get(name)
            if isinstance(value, int):
                return value
    return 1 << 30
