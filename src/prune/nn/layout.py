"""The one place that knows where transformer families keep their decoder layers and feed-forward matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


GLU = ("gate_proj", "up_proj", "down_proj")  #: of a gated block, as most families call them


@dataclass(frozen=True)
class Mixture:
    """The sparse feed-forward blocks of a family: a router, and the experts that it picks from."""

    matrices: tuple[str, str, str] = GLU  #: gate, up and down of an expert, as files call them
    width_key: str = "moe_intermediate_size"  #: config.json's key for an expert's F
    shared: str | None = None  #: a gated block that every token passes
    shared_key: str = "shared_expert_intermediate_size"
    shared_gate: str | None = None  #: its own router, one row
    experts: str = "mlp.experts"
    router: str = "mlp.gate"  #: a row an expert


#: config.json's keys for the number of experts: a family may be written with either.
COUNT_KEYS = ("num_experts", "num_local_experts")


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
    on_disk: tuple[tuple[str, str], ...] = ()  #: (a piece of parameter names here, how files spell it)
    mixture: Mixture | None = None  #: what stands in its sparse layers; the others are as above


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
    "mixtral": replace(
        _GATED,
        mixture=Mixture(("w1", "w3", "w2"), width_key="intermediate_size"),
        on_disk=((".mlp.", ".block_sparse_moe."),),
    ),
    "qwen2_moe": replace(
        _GATED, mixture=Mixture(shared="mlp.shared_expert", shared_gate="mlp.shared_expert_gate")
    ),
    "qwen3_moe": replace(_GATED, mixture=Mixture()),
    "gpt2": Layout("transformer.h", (ReadIn("mlp.c_fc"),), "mlp.c_proj", width_key="n_inner"),
}


@dataclass(frozen=True)
class Site:
    """One feed-forward block: all of a layer's, or an expert or the shared expert of a sparse layer."""

    layer: int
    read_ins: tuple[ReadIn, ...]  #: by full module names
    read_out: str
    transposed: bool  #: weights are stored [in, out] (Conv1D) rather than [out, in] (Linear)
    width: int  #: F
    hidden: int  #: D
    biased: bool  #: the read-out has a bias
    width_key: str = "intermediate_size"  #: config.json's key for F
    expert: int | None = None  #: its number among the layer's experts
    shared: bool = False  #: the expert that every token passes
    index: int = 0  #: its place among the model's sites

    @property
    def neuron_parameters(self) -> int:
        """Parameters that leave with one neuron, without read-in biases."""
        return self.hidden * (1 + sum(r.blocks for r in self.read_ins))

    @property
    def part(self) -> str:
        """What it is of its layer: "" for all, ``shared``, ``expert-3``."""
        return "shared" if self.shared else "" if self.expert is None else f"expert-{self.expert}"

    @property
    def name(self) -> str:
        """``4``, ``4-shared``, ``4-expert-3``."""
        return f"{self.layer}-{self.part}" if self.part else str(self.layer)

    @property
    def label(self) -> dict[str, Any]:
        """The same as the fields of a table's row."""
        return {"layer": self.layer, **({"part": self.part} if self.part else {})}


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
    """Every feed-forward block of a model in order of layers, experts before the shared one.

    Its weights may be on the meta device; its experts are modules of their own.

    :raises UsageError: where a layer is built otherwise than the layout says, naming the module.
    """
    count = len(model.get_submodule(layout.layers))  # type: ignore[arg-type]
    found = [site for i in range(count) for site in _layer_sites(model, layout, i)]
    return [replace(site, index=i) for i, site in enumerate(found)]


def experts_kept(sites: Sequence[Site], widths: Sequence[int]) -> dict[int, int]:
    """Sparse layer -> how many of its experts have any width."""
    found: dict[int, int] = {}
    for site, width in zip(sites, widths, strict=True):
        if site.expert is not None:
            found[site.layer] = found.get(site.layer, 0) + (width > 0)
    return found


def _layer_sites(model: nn.Module, layout: Layout, layer: int) -> Iterator[Site]:
    prefix, mixture = f"{layout.layers}.{layer}.", layout.mixture
    if mixture is None or not _has(model, prefix + mixture.experts):
        read_ins = [replace(r, module=prefix + r.module) for r in layout.read_ins]
        yield _site(model, layer, read_ins, prefix + layout.read_out, layout.width_key)
        return
    experts = f"{prefix}{mixture.experts}."
    for i in range(len(model.get_submodule(experts[:-1]))):  # type: ignore[arg-type]
        gated = _gated(model, layer, f"{experts}{i}.", mixture.matrices, mixture.width_key)
        yield replace(gated, expert=i)
    if mixture.shared:
        gated = _gated(model, layer, f"{prefix}{mixture.shared}.", GLU, mixture.shared_key)
        yield replace(gated, shared=True)


def _gated(model: nn.Module, layer: int, prefix: str, names: Sequence[str], width_key: str) -> Site:
    gate, up, down = (prefix + name for name in names)
    return _site(model, layer, [ReadIn(gate), ReadIn(up)], down, width_key)


def _site(model: nn.Module, layer: int, read_ins: Sequence[ReadIn], read_out: str, width_key: str) -> Site:
    out = _matrix(model, read_out)
    transposed = isinstance(out, Conv1D)
    hidden, width = out.weight.shape[::-1] if transposed else out.weight.shape
    for read_in in read_ins:
        matrix = _matrix(model, read_in.module)
        rows = matrix.weight.shape[1 if transposed else 0]
        if rows != width * read_in.blocks or isinstance(matrix, Conv1D) != transposed:
            raise UsageError(f"{read_in.module}: {rows} outputs do not fit the {width} inputs of {read_out}")
    biased = out.bias is not None
    return Site(layer, tuple(read_ins), read_out, transposed, width, hidden, biased, width_key)


def _has(model: nn.Module, name: str) -> bool:
    return _class_of(model, name) != "missing"


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
