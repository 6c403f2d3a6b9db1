"""illuminate: which neurons the task lights up, as a Gram matrix a layer, on train and on val."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prune.stage import Job, Stage


class Illuminate(Stage):
    """One pass over the teacher's train and val records."""

    uses = ("illuminate", "dtype", "device", "stream", "threads")
    tunes = ("stream", "threads")
    reads = ("source", "answers")
    writes = ("grams",)

    def run(self, job: Job) -> dict[str, Any]:
        from prune.data.calibration import calibration
        from prune.nn.device import parse_bytes
        from prune.nn.open import open_model
        from prune.nn.walk import Stream

        model = open_model(job.inputs["source"], job.options)
        widest = max(s.width for s in model.sites)
        train, val = calibration(job.inputs["answers"], job.options["illuminate"], widest)
        budget = parse_bytes(job.options["stream"]["states"])
        stream = Stream(model, [*train, *val], budget, job.out)
        facts = _walk(stream, len(train), job)
        stream.close()
        _warn(facts, widest, job)
        (job.out / "grams" / "grams.json").write_text(json.dumps(facts, indent=1) + "\n")
        return facts


def _walk(stream: Any, split: int, job: Job) -> dict[str, int]:
    from safetensors.torch import save_file

    from prune.nn.gram import gram_file, layer_gram

    folder = job.out / "grams"
    folder.mkdir()
    train, val = range(split), range(split, len(stream.batches))
    facts: dict[str, int] = {}
    for i, _ in stream.layers():
        seen = layer_gram(stream, i, train)
        facts["tokens_train"] = seen.tokens
        gram, mean = seen.finish()
        del seen
        judged = layer_gram(stream, i, val)
        facts["tokens_val"] = judged.tokens
        save_file({"train": gram, "mean": mean, "val": judged.finish()[0]}, gram_file(folder, i))
        job.progress(i + 1, len(stream.model.layers), tokens=facts["tokens_train"] + facts["tokens_val"])
    return facts


def _warn(facts: Mapping[str, int], widest: int, job: Job) -> None:
    per_neuron = facts["tokens_train"] / widest
    if per_neuron < 10:
        job.notice(
            f"{facts['tokens_train']:,} calibration tokens are {per_neuron:.1f} a neuron; "
            "under 10 the refit overfits: give more prompts or illuminate.tokens=0"
        )
