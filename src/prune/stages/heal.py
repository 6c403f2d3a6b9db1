"""heal: trains the narrowed model back toward the source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prune.parts import build
from prune.stage import Stage


class Heal(Stage):
    """Left out of a run with ``heal=none``, the only choice of the default plugins."""

    uses = ("heal", "loss_on", "seed")
    reads = ("source", "answers", "weights")
    writes = ("weights",)

    def idle(self, options: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
        return bool(build(options["heal"]).idle)
