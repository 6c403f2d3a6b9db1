"""The one place that knows where transformer families keep their decoder layers and feed-forward matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from prune.errors import UsageError, hint


@dataclass(frozen=True)
class ReadIn:
    """A matrix whose outputs are the FFN neurons; ``blocks`` of F rows are stacked (2: gate over up)."""

    module: str
    blocks: int = 1


@dataclass(frozen=True)
class Layout:
    """One family. Module names of a layer are relative to it."""

    layers: str  #: the ModuleList of decoder layers, as the causal model names it
    read_ins: tuple[ReadIn, ...]
    read_out: str  #: W, [D, F]: its input is the activation a
    width_key: str = "intermediate_size"  #: config.json's key for F
    read_out_norm: bool = False  #: a norm stands between the read-out and the residual stream
    scale_key: str | None = None  #: config.json's key for what the read-out's output is multiplied by
    tuples: bool = False  #: a layer returns a tuple, the hidden states first
    on_disk: tuple[tuple[str, str], ...] = ()  #: (how parameter names begin here, how they begin in files)


_GATED = Layout("model.layers", (ReadIn("mlp.gate_proj"), ReadIn("mlp.up_proj")), "mlp.down_proj")
_FOUR_H = Layout("transformer.h", (ReadIn("mlp.dense_h_to_4h"),), "mlp.dense_4h_to_h")

#: ``model_type`` of config.json -> layout. A family is supported when it stands here and its test row passes.
LAYOUTS = {
    "llama": _GATED,
    "qwen2": _GATED,
    "qwen3": _GATED,
    "mistral": _GATED,
    "smollm3": _GATED,
    "stablelm": _GATED,
    "granite": replace(_GATED, scale_key="residual_multiplier"),
    "gemma2": replace(_GATED, read_out_norm=True),
    "gemma3_text": replace(_GATED, read_out_norm=True),
    "gemma3": replace(  # its text part; what lies outside the text layers is carried over as it is
        _GATED,
        layers="model.language_model.layers",
        width_key="text_config.intermediate_size",
        read_out_norm=True,
        on_disk=(
            ("model.language_model.", "language_model.model."),
            ("model.vision_tower.", "vision_tower.vision_model."),
            ("model.multi_modal_projector.", "multi_modal_projector."),
            ("lm_head.", "language_model.lm_head."),
        ),
    ),
    "olmo2": replace(_GATED, read_out_norm=True),
    "phi3": Layout("model.layers", (ReadIn("mlp.gate_up_proj", blocks=2),), "mlp.down_proj"),
    "nemotron": replace(_GATED, read_ins=(ReadIn("mlp.up_proj"),)),
    "phi": Layout("model.layers", (ReadIn("mlp.fc1"),), "mlp.fc2"),
    "opt": Layout("model.decoder.layers", (ReadIn("fc1"),), "fc2", width_key="ffn_dim"),
    "gpt_neox": replace(_FOUR_H, layers="gpt_neox.layers", on_disk=(("lm_head.", "embed_out."),)),
    "falcon": replace(_FOUR_H, width_key="ffn_hidden_size", tuples=True),
    "gpt2": Layout("transformer.h", (ReadIn("mlp.c_fc"),), "mlp.c_proj", width_key="n_inner"),
}


@dataclass(frozen=True)
class Site:
    """The feed-forward block of one decoder layer, by full module names."""

    layer: int
    read_ins: tuple[ReadIn, ...]
    read_out: str
    transposed: bool  #: weights are stored [in, out] (Conv1D) rather than [out, in] (Linear)
    width: int  #: F
    hidden: int  #: D
    biased: bool  #: the read-out has a bias

    @property
    def neuron_parameters(self) -> int:
        """Parameters that leave with one neuron, without read-in biases."""
        return self.hidden * (1 + sum(r.blocks for r in self.read_ins))


def layout_of(config: Any) -> Layout:
    """The layout of a transformers config.

    :raises UsageError: for a family that is not in :data:`LAYOUTS`.
    """
    kind = str(config.model_type)
    if kind not in LAYOUTS:
        names = ", ".join(config.architectures or [type(config).__name__])
        raise UsageError(f"model_type {kind!r} ({names}) is not supported{hint(kind, LAYOUTS)}")
    return LAYOUTS[kind]


def sites_of(model: nn.Module, layout: Layout) -> list[Site]:
    """The feed-forward block of every layer of a model (its weights may be on the meta device).

    :raises UsageError: where a layer is built otherwise than the layout says, naming the module.
    """
    count = len(model.get_submodule(layout.layers))  # type: ignore[arg-type]
    return [_site(model, layout, i) for i in range(count)]


def _site(model: nn.Module, layout: Layout, layer: int) -> Site:
    prefix = f"{layout.layers}.{layer}."
    out = _matrix(model, prefix + layout.read_out)
    transposed = isinstance(out, Conv1D)
    hidden, width = out.weight.shape[::-1] if transposed else out.weight.shape
    read_ins = tuple(ReadIn(prefix + r.module, r.blocks) for r in layout.read_ins)
    for read_in in read_ins:
        matrix = _matrix(model, read_in.module)
        rows = matrix.weight.shape[1 if transposed else 0]
        if rows != width * read_in.blocks or isinstance(matrix, Conv1D) != transposed:
            raise UsageError(
                f"{read_in.module}: {rows} outputs do not fit the {width} inputs of {layout.read_out}"
            )
    return Site(layer, read_ins, prefix + layout.read_out, transposed, width, hidden, out.bias is not None)


def _matrix(model: nn.Module, name: str) -> nn.Linear | Conv1D:
    try:
        module = model.get_submodule(name)
    except AttributeError:
        parent = name.rpartition(".")[0]
        kind = _class_of(model, parent)
        raise UsageError(f"{name} is missing; {parent} ({kind}) is no supported feed-forward block") from None
    if not isinstance(module, nn.Linear | Conv1D):
        raise UsageError(f"{name} is a {type(module).__name__}, not a Linear or Conv1D")
    return module


def _class_of(model: nn.Module, name: str) -> str:
    try:
        return type(model.get_submodule(name)).__name__
    except AttributeError:
        return "missing"
