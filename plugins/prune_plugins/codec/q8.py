"""q8: 8-bit symmetric integers, one scale a group of a row, in compressed-tensors' pack-quantized format."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prune import hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from prune.parts import Matrix

BITS = 8


@dataclass
class Q8Options:
    _target_: str = "prune_plugins.codec.q8.Q8"
    group: int = 128  # weights of a row that share a scale; halved where it does not divide a row


class Q8:
    """Round to nearest: w ≈ scale · c, scale = absmax / 127, 8 + 16/group bits a weight."""

    idle = False
    floats: str | None = None

    def __init__(self, group: int) -> None:
        if group < 8:
            raise ValueError(f"codec.group={group}: give 8 or more")
        self.group: int | None = group
        self._group = group

    def parts(self, matrix: Matrix) -> dict[str, tuple[str, tuple[int, ...]]]:
        rows, columns = matrix.shape
        if matrix.transposed:
            raise ValueError(
                f"{matrix.name} is stored transposed (Conv1D), which the q8 format cannot say; use f16"
            )
        return {
            f"{matrix.name}_packed": ("I32", (rows, -(-columns * BITS // 32))),
            f"{matrix.name}_scale": (matrix.dtype, (rows, columns // self._fitting(matrix))),
            f"{matrix.name}_shape": ("I64", (2,)),
        }

    def encode(self, matrix: Matrix, weight: Tensor) -> dict[str, Tensor]:
        import torch

        from prune.nn.packing import pack

        grouped = weight.float().reshape(matrix.shape[0], -1, self._fitting(matrix))
        scale = (grouped.abs().amax(-1) / 127).to(weight.dtype)
        safe = torch.where(scale == 0, 1, scale).float()
        codes = torch.round(grouped / safe.unsqueeze(-1)).clamp(-128, 127).to(torch.int32) + 128
        return {
            f"{matrix.name}_packed": pack(codes.flatten(1), BITS),
            f"{matrix.name}_scale": scale,
            f"{matrix.name}_shape": torch.tensor(matrix.shape),
        }

    def decode(self, name: str, stored: Mapping[str, Tensor]) -> Tensor:
        from prune.nn.packing import decode_packed

        return decode_packed(stored)

    def config(self, matrices: Sequence[Matrix]) -> dict[str, Any]:
        by_group: dict[int, list[Matrix]] = {}
        for matrix in matrices:
            by_group.setdefault(self._fitting(matrix), []).append(matrix)
        targets = {g: {_pattern(m) for m in members} for g, members in by_group.items()}
        shared = Counter(p for patterns in targets.values() for p in patterns)
        for (
            group,
            members,
        ) in by_group.items():  # a pattern must not span two groups: name such matrices one by one
            if any(shared[p] > 1 for p in targets[group]):
                targets[group] = {"re:^" + _either(m) + "$" for m in members}
        order = sorted(targets, reverse=True)
        groups = {f"group_{i}": _scheme(g, sorted(targets[g])) for i, g in enumerate(order)}
        return {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "quantization_status": "compressed",
                "config_groups": groups,
                "ignore": [],
            }
        }

    def note(self, matrix: Matrix) -> str | None:
        fitting = self._fitting(matrix)
        return None if fitting == self._group else f"{matrix.shape[1]} columns: groups of {fitting}"

    def _fitting(self, matrix: Matrix) -> int:
        """The group, halved until it divides a row; a whole row where nothing from 8 up does."""
        group, columns = self._group, matrix.shape[1]
        while group >= 8 and columns % group:
            group //= 2
        return group if group >= 8 else columns


def _scheme(group: int, targets: list[str]) -> dict[str, Any]:
    weights = {"num_bits": BITS, "type": "int", "symmetric": True, "strategy": "group", "group_size": group}
    return {"targets": targets, "weights": weights, "format": "pack-quantized"}


def _pattern(matrix: Matrix) -> str:
    """One regular expression for the same matrix of every layer."""
    return "re:^" + re.sub(r"(?<=\\\.)\d+(?=\\\.)", r"\\d+", _either(matrix)) + "$"


def _either(matrix: Matrix) -> str:
    """A regular expression for a module: as the file calls it or, where it differs, as transformers does."""
    in_file = matrix.name.removesuffix(".weight")
    names = [re.escape(n) for n in dict.fromkeys([in_file, matrix.module or in_file])]
    return names[0] if len(names) == 1 else f"({'|'.join(names)})"


@hookimpl
def prune_codecs() -> dict[str, type]:
    return {"q8": Q8Options}
