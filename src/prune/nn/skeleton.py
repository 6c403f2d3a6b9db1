"""The transformers config of a folder, and its model without weights, each FFN at its own width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from prune.errors import UsageError, first_line

from .checkpoint import read_json
from .experts import separate
from .layout import Layout, Site, experts_kept, layout_of, sites_of

#: Our own config.json key: the FFN width of every layer, where they differ.
WIDTHS = "ffn_widths"


def read_config(folder: Path) -> Any:
    """The transformers config of a folder, never running code that it brings.

    :raises UsageError: where it is missing, unknown to transformers or asks for remote code.
    """
    raw = read_json(folder / "config.json")
    if "model_type" not in raw:
        raise UsageError(f"{folder / 'config.json'}: no model_type")
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as e:  # transformers raises whatever its field validators raise
        raise UsageError(f"{folder / 'config.json'}: {first_line(e)}") from None


def skeleton(config: Any, widths: list[int] | None = None) -> Any:
    """The model with every parameter on the meta device and real buffers; ``widths`` narrow its FFNs.

    :raises UsageError: where transformers has no causal model for the config.
    """
    try:
        with init_empty_weights(include_buffers=False):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as e:  # a config can be wrong in as many ways as there are models
        raise UsageError(f"model_type {config.model_type!r}: {first_line(e)}") from None
    model.eval()
    layout = layout_of(config)
    separate(model, layout)
    if widths:
        _narrow(model, layout, widths)
    return model


def _narrow(model: Any, layout: Layout, widths: list[int]) -> None:
    """Resize the FFN matrices of a meta model, a width a site; experts of width 0 leave."""
    sites = sites_of(model, layout)
    sound = isinstance(widths, list) and len(widths) == len(sites)
    if not sound or not all(_fits(w, s) for w, s in zip(widths, sites, strict=True)):
        raise UsageError(
            f"config.json: {WIDTHS} must be {len(sites)} numbers from 1 to the widest FFN, one a layer "
            "or expert; 0 for experts that a layer lacks"
        )
    for site, width in zip(sites, widths, strict=True):
        for read_in in site.read_ins:
            _resize(model.get_submodule(read_in.module), site.transposed, out=width * read_in.blocks)
        _resize(model.get_submodule(site.read_out), site.transposed, into=width)
    for layer, count in experts_kept(sites, widths).items():
        _thin(model.get_submodule(f"{layout.layers}.{layer}"), layout.mixture, count)


def _fits(width: Any, site: Site) -> bool:
    return type(width) is int and (0 if site.expert else 1) <= width <= site.width


def _thin(layer: Any, mixture: Any, count: int) -> None:
    """Leave the first ``count`` experts of a sparse layer, and as many rows of its router."""
    del layer.get_submodule(mixture.experts)[count:]
    router = layer.get_submodule(mixture.router)
    router.weight = nn.Parameter(router.weight[:count], requires_grad=False)


def _resize(matrix: Any, transposed: bool, out: int | None = None, into: int | None = None) -> None:
    rows, columns = matrix.weight.shape[::-1] if transposed else matrix.weight.shape
    rows, columns = out or rows, into or columns
    shape = (columns, rows) if transposed else (rows, columns)
    matrix.weight = nn.Parameter(torch.empty(shape, device="meta"), requires_grad=False)
    if matrix.bias is not None:
        matrix.bias = nn.Parameter(torch.empty(rows, device="meta"), requires_grad=False)
    for key, value in (("nf", rows), ("nx", columns), ("out_features", rows), ("in_features", columns)):
        if hasattr(matrix, key):
            setattr(matrix, key, value)
