"""none and f16: weights as plain floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from prune.parts import Matrix


@dataclass
class NoneOptions:
    _target_: str = "prune_plugins.codec.floats.AsIs"


@dataclass
class F16Options:
    _target_: str = "prune_plugins.codec.floats.F16"


class Floats:
    """One float tensor a matrix, in a dtype of its own or the source's."""

    idle = False
    group: int | None = None
    floats: str | None = None

    def parts(self, matrix: Matrix) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {matrix.name: (self.floats or matrix.dtype, matrix.shape)}

    def encode(self, matrix: Matrix, weight: Tensor) -> dict[str, Tensor]:
        return {matrix.name: weight}

    def decode(self, name: str, stored: Mapping[str, Tensor]) -> Tensor:
        return stored[name].float()

    def config(self, matrices: Sequence[Matrix]) -> dict[str, Any]:
        return {}

    def note(self, matrix: Matrix) -> str | None:
        return None


class AsIs(Floats):
    """The folded weights in the source's own dtype."""

    idle = True


class F16(Floats):
    """IEEE half precision: 16 bits a weight, 11 of them significant."""

    floats = "F16"

    def encode(self, matrix: Matrix, weight: Tensor) -> dict[str, Tensor]:
        """:raises ValueError: for a weight beyond ±65504, which float16 cannot hold."""
        import torch

        top = float(weight.abs().max())
        if top > torch.finfo(torch.float16).max:
            raise ValueError(f"{matrix.name} holds {top:.3g}, beyond float16's 65504; use codec=none")
        return {matrix.name: weight.half()}

    def config(self, matrices: Sequence[Matrix]) -> dict[str, Any]:
        return {"dtype": "float16"}


@hookimpl
def prune_codecs() -> dict[str, type]:
    return {"none": NoneOptions, "f16": F16Options}
