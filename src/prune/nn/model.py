"""A model whose weights come from disk when they are needed: a layer at a time, or all at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from prune.errors import UsageError

from .checkpoint import Checkpoint
from .layout import Site, layout_of, sites_of
from .packing import decode_packed
from .skeleton import WIDTHS, read_config, skeleton

Decode = Callable[[str, Mapping[str, Tensor]], Tensor]


class LazyModel:
    """A causal LM on the meta device, and the checkpoint that fills it.

    Weights are cast to ``dtype`` as they are loaded; packed ones are decoded on the way.

    :raises UsageError: where config, names or shapes do not fit together, or the family is not supported.
    """

    def __init__(
        self,
        folder: Path,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        decode: Decode | None = None,
    ) -> None:
        self.folder, self.dtype, self.device = folder, dtype, device or torch.device("cpu")
        self.config = read_config(folder)
        self.layout = layout_of(self.config)
        self.checkpoint = Checkpoint(folder)
        self.model = skeleton(self.config, getattr(self.config, WIDTHS, None))
        self.sites = sites_of(self.model, self.layout)
        self.layers: nn.ModuleList = self.model.get_submodule(self.layout.layers)
        self._decode = decode or self._own_decode()
        self._stored = self._match_names()
        self._pinned = False

    @property
    def names(self) -> list[str]:
        """Every parameter by its module name, a shared head left out."""
        return list(self._stored)

    @functools.cached_property
    def outside(self) -> list[str]:
        """Parameter names outside the decoder layers."""
        prefix = self.layout.layers + "."
        return [n for n in self._stored if not n.startswith(prefix)]

    @functools.cached_property
    def outside_but_head(self) -> list[str]:
        """Those that the way from token ids to the first layer needs."""
        head = self.model.get_output_embeddings().weight
        return [n for n in self.outside if self.tied or self.model.get_parameter(n) is not head]

    @property
    def widest(self) -> int:
        """Neurons of the widest site; an expert's count as often as there are tokens to one that it sees."""
        experts = 1 + max((s.expert for s in self.sites if s.expert is not None), default=0)
        rarity = experts / self.config.num_experts_per_tok if self.layout.mixture else 1
        return max(round(s.width * (1 if s.expert is None else rarity)) for s in self.sites)

    def layer_names(self, layer: int) -> list[str]:
        """Parameter names of one decoder layer."""
        prefix = f"{self.layout.layers}.{layer}."
        return [n for n in self._stored if n.startswith(prefix)]

    def router(self, layer: int) -> str:
        """The parameter that picks a sparse layer's experts: a row each."""
        assert self.layout.mixture is not None
        return f"{self.layout.layers}.{layer}.{self.layout.mixture.router}.weight"

    def tensor(self, name: str) -> Tensor:
        """One parameter by its module name, decoded, in float32 on the CPU."""
        return self._read([name])[name].float()

    def read_out(self, site: Site) -> Tensor:
        """W of a site, float32 [D, F] on the CPU."""
        weight = self.tensor(f"{site.read_out}.weight")
        return weight.T.contiguous() if site.transposed else weight

    @contextmanager
    def loaded(self, names: Iterable[str]) -> Iterator[None]:
        """Within, these parameters hold their weights; afterwards they are on the meta device again."""
        if self._pinned:
            yield
            return
        wanted = list(names)
        self._fill(wanted)
        try:
            yield
        finally:
            for name in wanted:
                _assign(self.model, name, torch.empty(self._shape(name), device="meta", dtype=self.dtype))

    def reopened(self) -> LazyModel:
        """The same folder, nothing of it loaded."""
        return LazyModel(self.folder, self.dtype, self.device, self._decode)

    def pin(self) -> Any:
        """Load everything for good; returns the plain transformers model."""
        if not self._pinned:
            self._fill(self._stored)
            self.model.tie_weights()
            self._pinned = True
        return self.model

    @property
    def nbytes(self) -> int:
        """Bytes of all weights in the compute dtype."""
        return sum(torch.Size(self._shape(n)).numel() for n in self._stored) * self.dtype.itemsize

    def stored_names(self, name: str) -> list[str]:
        """The names on disk that a parameter is read from (several where it is packed)."""
        return self._stored[name]

    def _shape(self, name: str) -> torch.Size:
        shape: torch.Size = self.model.get_parameter(name).shape
        return shape

    def _fill(self, names: Iterable[str]) -> None:
        for (
            name
        ) in names:  # one at a time: the stored and the cast copy of a layer need not stand side by side
            tensor = self._read([name])[name]
            if tensor.shape != self._shape(name):
                want = tuple(self._shape(name))
                raise UsageError(f"{self.folder}: {name} is {tuple(tensor.shape)}, the config says {want}")
            _assign(self.model, name, tensor.to(self.device, self.dtype))
        self._tie(names)

    def _tie(self, names: Iterable[str]) -> None:
        """An output head that shares the embedding follows it."""
        head, embedding = self.model.get_output_embeddings(), self.model.get_input_embeddings()
        if self.tied and any(self.model.get_parameter(n) is embedding.weight for n in names):
            head.weight = embedding.weight

    @property
    def tied(self) -> bool:
        """The head and the embedding are one matrix."""
        return bool(getattr(self.config, "tie_word_embeddings", False))

    def _read(self, names: Iterable[str]) -> dict[str, Tensor]:
        wanted = {name: self._stored[name] for name in names}
        raw = self.checkpoint.load(s for stored in wanted.values() for s in stored)
        return {
            name: raw.pop(name_on_disk[0])
            if len(name_on_disk) == 1
            else self._decode(name, {s: raw.pop(s) for s in name_on_disk})
            for name, name_on_disk in wanted.items()
        }

    def _own_decode(self) -> Decode:
        """What reads the packed tensors that the config declares."""
        declared = getattr(self.config, "quantization_config", None)
        if declared and declared.get("format") != "pack-quantized":
            method = declared.get("quant_method", "unknown")
            raise UsageError(f"{self.folder}: quantized as {method!r}; give the model before quantization")
        return lambda _, stored: decode_packed(stored)

    def _match_names(self) -> dict[str, list[str]]:
        """Parameter name -> names on disk."""
        on_disk = self.checkpoint.entries
        head = set(_tied_names(self.model)) if self.tied else set()
        found: dict[str, list[str]] = {}
        for name, _ in self.model.named_parameters():
            if name in head:
                continue
            stored = next((s for n in self._spellings(name) if (s := _stored_as(n, on_disk))), None)
            if stored is None:
                raise UsageError(f"{self.folder}: the weights lack {name}{_advice(on_disk)}")
            found[name] = stored
        self._check_shapes(found)
        return found

    def _spellings(self, name: str) -> Iterator[str]:
        """How a parameter may be called on disk."""
        base = self.model.base_model_prefix + "."
        yield from (name, name.removeprefix(base), base + name)
        yield from (name.replace(here, there) for here, there in self.layout.on_disk)

    def _check_shapes(self, found: Mapping[str, list[str]]) -> None:
        for name, stored in found.items():
            have = self.checkpoint.entries[stored[0]].shape
            if len(stored) == 1 and have != tuple(self._shape(name)):
                want = tuple(self._shape(name))
                raise UsageError(f"{self.folder}: {stored[0]} is {have}, the config says {want}")


def load(folder: Path | str, dtype: torch.dtype | None = None, device: str = "cpu") -> Any:
    """A model that prune wrote, widths that differ from layer to layer included, as a transformers model.

    :param dtype: of the weights; None keeps the stored one.
    """
    folder = Path(folder)
    stored = dtype or getattr(read_config(folder), "dtype", None) or torch.float32
    model = LazyModel(folder, stored, torch.device(device)).pin()
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model


def _assign(model: nn.Module, name: str, tensor: Tensor) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, nn.Parameter(tensor, requires_grad=False))


def _tied_names(model: Any) -> list[str]:
    keys = getattr(model, "_tied_weights_keys", None) or {}
    return list(keys)


def _advice(on_disk: Iterable[str]) -> str:
    """For experts that lie fused in one tensor."""
    fused = next((n for n in on_disk if n.endswith(".experts.gate_up_proj")), None)
    return (
        f", but have {fused}; save the model anew with transformers, which writes experts one by one"
        * bool(fused)
    )


def _stored_as(name: str, on_disk: Mapping[str, object]) -> list[str]:
    """The tensors that make up one parameter on disk: itself, or its packed parts ``<parameter>_<part>``."""
    if name in on_disk:
        return [name]
    parts = name + "_"
    return [n for n in on_disk if n.startswith(parts)] if name.endswith(".weight") else []
