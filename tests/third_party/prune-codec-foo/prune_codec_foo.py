"""foo: each row rounded to a symmetric grid and stored as plain floats, which every reader knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from prune.parts import Matrix


@dataclass
class FooOptions:
    _target_: str = "prune_codec_foo.Foo"
    bits: int = 6  # of a code on the grid


class Foo:
    """w ≈ s · c with integer |c| < 2^(bits−1) and s = absmax of the row over the largest code."""

    idle = False
    group: int | None = None
    floats: str | None = None

    def __init__(self, bits: int) -> None:
        if not 2 <= bits <= 8:
            raise ValueError(f"codec.bits={bits}: give 2 to 8")
        self.top = 2 ** (bits - 1) - 1

    def parts(self, matrix: Matrix) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {matrix.name: (matrix.dtype, matrix.shape)}

    def encode(self, matrix: Matrix, weight: Tensor) -> dict[str, Tensor]:
        """The same name, shape and dtype; values on the grid of their row."""
        import torch

        rows = weight.float()
        scale = rows.abs().amax(1, keepdim=True) / self.top
        codes = torch.round(rows / torch.where(scale == 0, 1, scale))
        return {matrix.name: (codes * scale).to(weight.dtype)}

    def decode(self, name: str, stored: Mapping[str, Tensor]) -> Tensor:
        return stored[name].float()

    def config(self, matrices: Sequence[Matrix]) -> dict[str, Any]:
        return {}

    def note(self, matrix: Matrix) -> str | None:
        return None


@hookimpl
def prune_codecs() -> dict[str, type]:
    return {"foo": FooOptions}
