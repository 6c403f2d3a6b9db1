"""Integer codes as compressed-tensors' ``pack-quantized`` keeps them: exact, and read by plain transformers.

Per matrix [R, C]: ``weight_packed`` int32 [R, C·b/32], a row-wise little-endian stream of unsigned b-bit
codes; ``weight_scale`` [R, C/g]; ``weight_shape`` int64 [2]. The value of code c is scale · (c − 2^(b−1)).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def pack(codes: Tensor, bits: int) -> Tensor:
    """Unsigned codes, int32 [R, C] below 2^bits, as int32 [R, ceil(C·bits/32)]; ``bits`` divides 32."""
    per_word = 32 // bits
    rows, columns = codes.shape
    padded = torch.nn.functional.pad(codes, (0, -columns % per_word)).to(torch.int64)
    words = padded.reshape(rows, -1, per_word)
    shifts = torch.arange(per_word, device=codes.device) * bits
    packed = (words << shifts).sum(-1)
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)


def unpack(packed: Tensor, bits: int, columns: int) -> Tensor:
    """The inverse of :func:`pack`: int32 [R, columns]."""
    shifts = torch.arange(32 // bits, device=packed.device, dtype=torch.int32) * bits
    codes: Tensor = (packed.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return codes.reshape(len(packed), -1)[:, :columns]


def decode_packed(stored: Mapping[str, Tensor]) -> Tensor:
    """float32 [R, C] from the three tensors of a matrix, by the ends of their names.

    Bits and group size follow from the shapes.
    """
    by_end = {name.rpartition("_")[2]: tensor for name, tensor in stored.items()}
    packed, scale = by_end["packed"], by_end["scale"]
    rows, columns = by_end["shape"].tolist()
    bits = packed.shape[1] * 32 // columns
    centred = unpack(packed, bits, columns) - (1 << (bits - 1))
    grouped: Tensor = centred.reshape(rows, scale.shape[1], -1).to(scale.dtype) * scale.unsqueeze(-1)
    return grouped.reshape(rows, columns).float()
