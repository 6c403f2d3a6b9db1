"""fold: cuts the neurons that the plan drops and refits the kept read-out columns to stand in for them."""

from __future__ import annotations

import json
from typing import Any

from prune.stage import Job, Stage


class Fold(Stage):
    """Per layer, the plain cut or the ridge that errs least on val."""

    uses = ("fold", "save", "illuminate", "dtype", "device", "stream", "threads")
    tunes = ("stream", "threads")
    reads = ("weights", "answers", "grams", "plan")
    writes = ("weights", "folding")

    def run(self, job: Job) -> dict[str, Any]:
        from safetensors.torch import load_file

        from prune.nn.folding import Evidence, fold
        from prune.nn.open import open_model

        rows = fold(
            open_model(job.inputs["weights"], job.options),
            load_file(job.inputs["plan"] / "keep.safetensors"),
            Evidence(job.inputs["answers"], job.inputs["grams"]),
            job.out / "weights",
            job.options,
            job.progress,
        )
        (job.out / "folding").write_text(json.dumps({"layers": rows}, indent=1) + "\n")
        return {"refitted": sum(r["choice"] != "plain" for r in rows), "layers": len(rows)}
