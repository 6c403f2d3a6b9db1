"""Batched generation with a KV cache, each row independent of its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LogitsProcessorList
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    eos: frozenset[int],
    sampling: Sequence[Mapping[str, float]],
    seeds: Sequence[int],
    batch: int,
    skip: frozenset[int] = frozenset(),
) -> Iterator[tuple[int, list[int], str]]:
    """Continuations of ``prompts``, each as soon as it is finished: (index, ids without eos, finish).

    Batches are cut from the prompts in order of length and depend on nothing else. A batch that holds a
    wanted row is decoded as if all its rows were wanted, so its numbers do not depend on ``skip``.

    :param model: a transformers causal LM in eval mode.
    :param prompts: token ids; none is empty, each is shorter than the model's context.
    :param max_tokens: most ids generated a row; the model's context limits them too.
    :param sampling: a row's settings; without a ``temperature`` above 0 it takes the likeliest token.
    :param seeds: a row's seed, read where it samples.
    :param skip: indices that are not wanted.
    :returns: finish is "stop" (an id of ``eos`` came) or "length".
    """
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    context = context_of(model.config)
    for start in range(0, len(order), batch):
        rows = [
            _Row(
                index=i,
                prompt=list(prompts[i]),
                room=min(max_tokens, context - len(prompts[i])),
                draw=_Draw(sampling[i], seeds[i], model.device),
            )
            for i in order[start : start + batch]
        ]
        yield from _decode(model, rows, eos, skip)


def context_of(config: Any) -> int:
    """Most positions that a model's config allows."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", None) or 1 << 30)


class _Draw:
    """How one row takes its next token."""

    def __init__(self, sampling: Mapping[str, float], seed: int, device: torch.device) -> None:
        self.warpers = _warpers(sampling)
        self.random: torch.Generator | None = None
        if sampling.get("temperature"):
            self.random = torch.Generator(device).manual_seed(seed)

    def __call__(self, ids: Sequence[int], logits: Tensor) -> int:
        """:param logits: float32 [V]; ``ids``: prompt and tokens so far."""
        scores = logits[None]
        if self.warpers:
            scores = self.warpers(torch.tensor([ids], device=logits.device), scores)
        if self.random is None:
            return int(scores.argmax())
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self.random))


def _warpers(sampling: Mapping[str, float]) -> Any:
    """In the order that transformers applies them."""
    found = LogitsProcessorList()
    if sampling.get("repetition_penalty", 1.0) != 1.0:
        found.append(RepetitionPenaltyLogitsProcessor(sampling["repetition_penalty"]))
    if not sampling.get("temperature"):
        return found
    if sampling["temperature"] != 1.0:
        found.append(TemperatureLogitsWarper(float(sampling["temperature"])))
    if sampling.get("top_k"):
        found.append(TopKLogitsWarper(int(sampling["top_k"])))
    if 0.0 < sampling.get("top_p", 1.0) < 1.0:
        found.append(TopPLogitsWarper(sampling["top_p"]))
    if sampling.get("min_p"):
        found.append(MinPLogitsWarper(sampling["min_p"]))
    return found


@dataclass
class _Row:
    index: int
    prompt: list[int]
    room: int  #: ids it may still generate in all
    draw: _Draw
    made: list[int] = field(default_factory=list)

    def take(self, logits: Tensor, eos: frozenset[int]) -> str | None:
        """Draw the next id; the reason to finish, if there is one."""
        token = self.draw([*self.prompt, *self.made], logits)
        if token in eos:
            return "stop"
        self.made.append(token)
        return "length" if len(self.made) >= self.room else None


def _decode(
    model: Any, rows: list[_Row], eos: frozenset[int], skip: frozenset[int]
) -> Iterator[tuple[int, list[int], str]]:
    cache = DynamicCache(config=model.config)
    ids, mask = _padded([row.prompt for row in rows], model.device)
    while any(row.index not in skip for row in rows):
        logits = _forward(model, ids, mask, cache)
        finish = [row.take(logits[i], eos) for i, row in enumerate(rows)]
        yield from (
            (r.index, r.made, why) for r, why in zip(rows, finish, strict=True) if why and r.index not in skip
        )
        live = [i for i, why in enumerate(finish) if why is None]
        if 0 < len(live) < len(rows):
            keep = torch.tensor(live, device=model.device)
            cache.batch_select_indices(keep)
            mask = mask[keep]
        rows = [rows[i] for i in live]
        ids = torch.tensor([[row.made[-1]] for row in rows], device=model.device)
        mask = torch.cat([mask[: len(rows)], mask.new_ones(len(rows), 1)], 1)


def _padded(prompts: Sequence[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Left-padded ids and mask, int64 [B, T]."""
    longest = max(map(len, prompts))
    ids = [[0] * (longest - len(p)) + p for p in prompts]
    mask = [[0] * (longest - len(p)) + [1] * len(p) for p in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _forward(model: Any, ids: Tensor, mask: Tensor, cache: Any) -> Tensor:
    """Logits of the last position, float32 [B, V]; ``ids`` are those that the cache has not seen."""
    positions = (mask.cumsum(1) - 1).clamp_min(0)[:, -ids.shape[1] :]
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = out.logits
    return logits[:, -1].float()
