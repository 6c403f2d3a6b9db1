"""Packed codes against numpy's own bit order, and what compressed-tensors reads."""

import numpy as np
import pytest
import torch

from prune.nn.packing import decode_packed, pack, unpack


def codes_of(rows, columns, bits):
    generator = torch.Generator().manual_seed(bits * columns)
    return torch.randint(0, 1 << bits, (rows, columns), generator=generator, dtype=torch.int32)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("columns", [1, 7, 32, 65])
def test_the_stream_is_little_endian_bits(bits, columns):
    codes = codes_of(3, columns, bits)
    packed = pack(codes, bits)
    assert packed.dtype == torch.int32 and packed.shape == (3, -(-columns * bits // 32))
    stream = np.unpackbits(packed.numpy().view(np.uint8), axis=1, bitorder="little")[:, : columns * bits]
    values = stream.reshape(3, columns, bits) @ (1 << np.arange(bits))
    assert (values == codes.numpy()).all()
    assert torch.equal(unpack(packed, bits, columns), codes)


def test_all_ones_survive_the_sign_bit():
    codes = torch.full((1, 8), 15, dtype=torch.int32)
    assert pack(codes, 4).tolist() == [[-1]] and torch.equal(unpack(pack(codes, 4), 4, 8), codes)


@pytest.mark.parametrize("bits", [4, 8])
def test_compressed_tensors_unpacks_the_same_codes(bits):
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32

    codes = codes_of(5, 48, bits)
    theirs = unpack_from_int32(pack(codes, bits), bits, torch.Size((5, 48)))
    assert torch.equal(theirs.int() + (1 << (bits - 1)), codes)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_decoding_is_scale_times_centred_code(bits):
    codes, scale = codes_of(4, 32, bits), torch.linspace(-1, 2, 8).reshape(4, 2)
    stored = {
        "w.weight_packed": pack(codes, bits),
        "w.weight_scale": scale,
        "w.weight_shape": torch.tensor([4, 32]),
    }
    want = (codes - (1 << (bits - 1))) * scale.repeat_interleave(16, 1)
    assert torch.equal(decode_packed(stored), want.float())
