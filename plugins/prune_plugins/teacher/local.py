"""local: the source itself, or another local model with the same tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prune import hookimpl
from prune.errors import UsageError
from prune.parts import Answer, Question


@dataclass
class LocalOptions:
    _target_: str = "prune_plugins.teacher.local.Local"
    model: str | None = None  # a model folder with the source's tokenizer; none: the source itself
    max_tokens: int = 2048  # longest answer; a longer one is cut and left out
    samples: int = 1  # answers a prompt, all in the same split; more than one needs a temperature
    sampling: str = "auto"  # auto: the model's own advice, else greedy; greedy; file; temperature=…,top_p=…
    think: bool = True  # false: asks the chat template to leave the reasoning out
    batch: int = 16  # prompts decoded together; more need memory for their KV cache


class Local:
    """Decodes in float32 on a CPU, where equal inputs give equal answers, and in bfloat16 on a GPU."""

    def __init__(
        self, model: str | None, max_tokens: int, samples: int, sampling: str, think: bool, batch: int
    ) -> None:
        for name, value in (("max_tokens", max_tokens), ("samples", samples), ("batch", batch)):
            if value < 1:
                raise UsageError(f"teacher.{name}={value}: must be at least 1")
        self.model = Path(model) if model else None
        self.name = self.model.name if self.model else "the source itself"
        self.max_tokens, self.samples, self.sampling = max_tokens, samples, sampling
        self.think, self.batch = think, batch

    def identity(self, source: Path) -> str:
        """Hash of the teacher's files and of how the source's chat template renders for it.

        :raises UsageError: the teacher has another tokenizer than the source.
        """
        from prune.data.canonical import digest
        from prune.data.render import Renderer, load_tokenizer, same_tokenizer

        tokenizer, folder = load_tokenizer(source), self.model or source
        if self.model:
            same_tokenizer(tokenizer, load_tokenizer(folder), f"teacher.model={folder.name}")
        return digest([_content(folder), Renderer(tokenizer, self.think).template_hash])

    def recommended(self, source: Path) -> Mapping[str, float]:
        """What generation_config.json advises, where it says ``do_sample``."""
        advice = _json((self.model or source) / "generation_config.json")
        if not advice.get("do_sample"):
            return {}
        known = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        return {"temperature": 1.0, **{n: advice[n] for n in known if advice.get(n) is not None}}

    def answer(
        self, questions: Sequence[Question], done: frozenset[str], source: Path, device: str
    ) -> Iterator[Answer]:
        """Batches depend on the questions alone; those that are done as a whole are left out."""
        from prune.data.render import Renderer, load_tokenizer
        from prune.data.stops import stop_ids
        from prune.nn.generate import generate

        tokenizer = load_tokenizer(source)
        rows = generate(
            _load(self.model or source, device),
            [q.ids for q in questions],
            max_tokens=self.max_tokens,
            eos=stop_ids(self.model or source, Renderer(tokenizer, self.think)),
            sampling=[q.sampling for q in questions],
            seeds=[q.seed for q in questions],
            batch=self.batch,
            skip=frozenset(i for i, q in enumerate(questions) if q.rid in done),
        )
        for index, ids, finish in rows:
            yield Answer(questions[index].rid, ids, tokenizer.decode(ids), finish, {})


def _load(folder: Path, device: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from prune.nn.device import pick_device, pick_dtype

    place = pick_device(device)
    dtype = torch.float32 if place.type == "cpu" else pick_dtype("auto", place)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, local_files_only=True
    )
    return model.to(place).eval()


def _content(folder: Path) -> str:
    from prune.identity import Hashes, of_source

    return of_source(folder, Hashes(folder / ".no-memo"))


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


@hookimpl
def prune_teachers() -> Mapping[str, type]:
    return {"local": LocalOptions}
