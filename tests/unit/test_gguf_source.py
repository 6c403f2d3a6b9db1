"""A .gguf source: how lossy it is, from files written with the public gguf package."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants

from prune.errors import UsageError
from prune.nn.gguf_source import bits_per_weight, check_lossy

KINDS = {
    "F32": 32, "F16": 16, "Q8_0": 8.5, "Q5_0": 5.5, "Q4_0": 4.5,
}  # fmt: skip


def gguf(path, *kinds):
    """A file with one 64 × 256 matrix a kind, and a float32 vector."""
    writer = GGUFWriter(path, "llama")
    for i, kind in enumerate(kinds):
        kind = GGMLQuantizationType[kind]
        values = np.random.default_rng(i).standard_normal((64, 256)).astype(np.float32)
        writer.add_tensor(f"m{i}", quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("v", np.ones(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("kind", "bits"), KINDS.items())
def test_bits_of_one_kind(tmp_path, kind, bits):
    assert bits_per_weight(gguf(tmp_path / "m.gguf", kind)) == pytest.approx(bits)


def test_bits_are_a_mean_over_weights(tmp_path):
    assert bits_per_weight(gguf(tmp_path / "m.gguf", "F16", "Q4_0", "Q4_0")) == pytest.approx((16 + 9) / 3)


@pytest.mark.parametrize("kind", KINDS)
def test_four_bits_or_less_need_permission(tmp_path, kind):
    path = gguf(tmp_path / "m.gguf", kind)
    check_lossy(path, allowed=True)
    if kind != "Q4_0":
        check_lossy(path, allowed=False)
        return
    with pytest.raises(UsageError, match=r"m\.gguf stores 4\.5 bits.*allow_lossy_source=true"):
        check_lossy(path, allowed=False)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no gguf at all", b"GGUF\x03\0\0\0" + b"\xff" * 64])
def test_what_is_no_gguf(tmp_path, content):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(UsageError, match=r"m\.gguf: no readable GGUF file") as caught:
        bits_per_weight(tmp_path / "m.gguf")
    assert "\n" not in str(caught.value)


def test_a_torn_file(tmp_path):
    path = gguf(tmp_path / "m.gguf", "F16")
    path.write_bytes(path.read_bytes()[:-20_000])
    with pytest.raises(UsageError, match=r"m\.gguf: no readable GGUF file"):
        bits_per_weight(path)


def test_a_file_without_a_matrix(tmp_path):
    with pytest.raises(UsageError, match=r"m\.gguf: the GGUF file holds no matrix"):
        bits_per_weight(gguf(tmp_path / "m.gguf"))
