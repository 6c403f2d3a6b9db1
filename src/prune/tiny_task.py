"""A tiny model that has learnt a tiny task: spelling numbers. What end-to-end tests run on, in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def question(number: int) -> str:
    """The prompt."""
    return f"Spell {number}."


def answer(number: int) -> str:
    """What the model is taught to say: its digits as words."""
    return " ".join(WORDS[int(d)] for d in str(number))


def write_prompts(path: Path, count: int = 60) -> Path:
    """A .jsonl of ``count`` prompts."""
    lines = [json.dumps({"prompt": question(10 + i)}) for i in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return path


def taught(folder: Path, steps: int = 250, seed: int = 0) -> Path:
    """Train the tiny llama on the task for a few seconds and save it with its tokenizer."""
    import torch

    from .data.render import load_tokenizer
    from .tiny import save_tiny, tiny_model

    model = tiny_model("llama", seed)
    save_tiny(model, folder)
    rows = _rows(load_tokenizer(folder))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        picked = torch.randint(0, len(rows), (24,), generator=generator).tolist()
        loss = _loss(model, [rows[i] for i in picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return save_tiny(model.eval(), folder)


def _rows(tokenizer: Any) -> list[tuple[list[int], int]]:
    """(ids, length of the prompt) of every number below 100."""
    from .data.render import Renderer

    renderer = Renderer(tokenizer)
    found = []
    for number in range(10, 100):
        prompt = renderer.prompt([{"role": "user", "content": question(number)}])
        found.append(([*prompt, *renderer.answer(prompt, answer(number)), renderer.end or 0], len(prompt)))
    return found


def _loss(model: Any, rows: list[tuple[list[int], int]]) -> Any:
    import torch

    longest = max(len(ids) for ids, _ in rows)
    ids = torch.zeros((len(rows), longest), dtype=torch.int64)
    labels = torch.full_like(ids, -100)
    for i, (row, start) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        labels[i, start : len(row)] = torch.tensor(row[start:])
    return model(input_ids=ids, labels=labels).loss
