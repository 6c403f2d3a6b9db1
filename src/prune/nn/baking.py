"""Gates folded into a model's read-outs: column j of W times g_j is what a gate g on its input j computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from .folder import copied, kept_entries, write_folder
from .layout import Site
from .model import LazyModel


def bake(model: LazyModel, gates: Sequence[Tensor], out: Path, shard_bytes: int) -> None:
    """Write the model to ``out``, every width as it was.

    :param gates: of each layer's read-out inputs, float32 [F].
    """
    specs = kept_entries(model)
    read_outs = {model.stored_names(f"{s.read_out}.weight")[0]: s for s in model.sites}

    def make(stored: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        ((name, weight),) = stored.items()
        return {name: _scaled(read_outs[name], weight, gates)}

    pieces = [([name], make if name in read_outs else copied) for name in specs]
    write_folder(model, out, specs, pieces, {}, shard_bytes)


def _scaled(site: Site, weight: Tensor, gates: Sequence[Tensor]) -> Tensor:
    gate = gates[site.layer].double()
    return (weight.double() * (gate.unsqueeze(1) if site.transposed else gate)).to(weight.dtype)
