"""illuminate: which neurons the task lights up, as a Gram matrix a layer, on train and on val."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prune.stage import Job, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from prune.nn.walk import Stream


class Illuminate(Stage):
    """One pass over the teacher's train and val records."""

    uses = ("illuminate", "dtype", "device", "stream", "threads")
    tunes = ("stream", "threads")
    reads = ("weights", "answers")
    writes = ("grams",)
    version = 2

    def run(self, job: Job) -> dict[str, Any]:
        from prune.arithmetic import parse_bytes
        from prune.data.calibration import calibration
        from prune.nn.open import open_model
        from prune.nn.walk import Stream

        model = open_model(job.inputs["weights"], job.options)
        widest = max(s.width for s in model.sites)
        train, val = calibration(job.inputs["answers"], job.options["illuminate"], widest)
        budget = parse_bytes(job.options["stream"]["states"])
        stream = Stream(model, [*train, *val], budget, job.out)
        facts = _walk(stream, len(train), job)
        stream.close()
        _warn(facts, widest, job)
        (job.out / "grams" / "grams.json").write_text(json.dumps(facts, indent=1) + "\n")
        return {k: v for k, v in facts.items() if k.startswith("tokens")}


def _walk(stream: Stream, split: int, job: Job) -> dict[str, Any]:
    """Gather and write layer by layer, one Gram in memory at a time."""
    from safetensors.torch import save_file

    from prune.nn.gram import gram_file, layer_gram

    folder = job.out / "grams"
    folder.mkdir()
    parts = {"train": range(split), "val": range(split, len(stream.batches))}
    facts: dict[str, Any] = {f"energy_{part}": [] for part in parts}
    for i, _ in stream.layers():
        tensors: dict[str, Tensor] = {}
        for part, batches in parts.items():
            gram = layer_gram(stream, i, batches)
            facts[f"tokens_{part}"] = gram.tokens
            facts[f"energy_{part}"].append(gram.energy)
            tensors[part], mean = gram.finish()
            tensors.setdefault("mean", mean)
        save_file(tensors, gram_file(folder, i))
        job.progress(i + 1, len(stream.model.layers), tokens=facts["tokens_train"] + facts["tokens_val"])
    return facts


def _warn(facts: Mapping[str, int], widest: int, job: Job) -> None:
    per_neuron = facts["tokens_train"] / widest
    if per_neuron < 10:
        job.notice(
            f"{facts['tokens_train']:,} calibration tokens are {per_neuron:.1f} a neuron; "
            "under 10 the refit overfits: give more prompts or illuminate.tokens=0"
        )
