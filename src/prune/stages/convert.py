"""convert: a .gguf source as a model folder; a folder needs none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prune.stage import Job, Stage


class Convert(Stage):
    """Dequantized by transformers, stored as bfloat16."""

    reads = ("source",)
    writes = ("source", "origin")

    def idle(self, options: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
        return inputs["source"].is_dir()

    def run(self, job: Job) -> dict[str, Any]:
        from prune.nn.gguf_source import bits_per_weight, convert

        convert(job.inputs["source"], job.out / "source")
        origin = {"file": job.inputs["source"].name, "bits_per_weight": bits_per_weight(job.inputs["source"])}
        (job.out / "origin").write_text(json.dumps(origin) + "\n")
        return origin
