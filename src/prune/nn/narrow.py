"""Narrowing a feed-forward block to a keep-set: which slices of which tensors stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from prune.errors import StageError

from .layout import Site
from .model import LazyModel


def narrowed(
    site: Site, stored: Mapping[str, Tensor], keep: Tensor, correction: Tensor | None, shift: Tensor | None
) -> dict[str, Tensor]:
    """The tensors of one FFN after a fold, by their module names; dtypes stay.

    :param stored: weights and biases of the block's matrices as the source stores them.
    :param keep: kept neurons, int64, ascending.
    :param correction: C, float64 [D, len(keep)], added to the kept read-out columns; None for a plain cut.
    :param shift: float64 [D], added to the read-out's bias where it has one.
    :raises StageError: where a refitted number is beyond the source's dtype.
    """
    result: dict[str, Tensor] = {}
    for read_in in site.read_ins:
        rows = torch.cat([keep + block * site.width for block in range(read_in.blocks)])
        weight = stored[f"{read_in.module}.weight"]
        result[f"{read_in.module}.weight"] = weight[:, rows] if site.transposed else weight[rows]
        if (bias := stored.get(f"{read_in.module}.bias")) is not None:
            result[f"{read_in.module}.bias"] = bias[rows]
    weight = stored[f"{site.read_out}.weight"]
    kept = weight[keep].T if site.transposed else weight[:, keep]
    if correction is not None:
        kept = _rounded(kept.double() + correction, weight.dtype, site)
    result[f"{site.read_out}.weight"] = kept.T if site.transposed else kept
    if (bias := stored.get(f"{site.read_out}.bias")) is not None:
        shifted = bias if shift is None else _rounded(bias.double() + shift, bias.dtype, site)
        result[f"{site.read_out}.bias"] = shifted
    return result


@contextmanager
def folded(
    model: LazyModel, site: Site, weight: Tensor, keep: Tensor, correction: Tensor | None, shift: Tensor
) -> Iterator[None]:
    """Within, a loaded layer computes what the folded one will: dropped columns of its read-out are zero.

    :param weight: W, float32 [D, F]; the others as in :func:`narrowed`.
    """
    readout: Any = model.model.get_submodule(site.read_out)
    before: Any = readout.weight.data, None if readout.bias is None else readout.bias.data
    full = torch.zeros_like(weight)
    kept = weight[:, keep] if correction is None else (weight[:, keep].double() + correction).float()
    full[:, keep] = kept
    readout.weight.data = (full.T if site.transposed else full).to(before[0])
    if site.biased:
        readout.bias.data = (before[1].double() + shift).to(before[1])
    try:
        yield
    finally:
        readout.weight.data = before[0]
        if site.biased:
            readout.bias.data = before[1]


def _rounded(tensor: Tensor, dtype: torch.dtype, site: Site) -> Tensor:
    small = tensor.to(dtype)
    if not torch.isfinite(small).all():
        kind = str(dtype).removeprefix("torch.")
        raise StageError(
            f"layer {site.layer}: the refitted {site.read_out} does not fit {kind}; give larger ridges "
            "(fold.ridge) or fold.refit=off"
        )
    return small


def padded(site: Site, tensors: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """The same block with dead neurons up to ``width``: zero rows and columns that change no output."""
    result = dict(tensors)
    for read_in in site.read_ins:
        for end in ("weight", "bias"):
            if (name := f"{read_in.module}.{end}") in result:
                axis = 1 if site.transposed and end == "weight" else 0
                blocks = result[name].chunk(read_in.blocks, axis)
                result[name] = torch.cat([_pad(b, axis, width) for b in blocks], axis)
    name = f"{site.read_out}.weight"
    result[name] = _pad(result[name], 0 if site.transposed else 1, width)
    return result


def _pad(tensor: Tensor, axis: int, size: int) -> Tensor:
    shape = list(tensor.shape)
    shape[axis] = size - shape[axis]
    return torch.cat([tensor, tensor.new_zeros(shape)], axis)
