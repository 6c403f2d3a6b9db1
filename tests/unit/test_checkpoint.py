"""What a weights folder may hold, and what is refused by name."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from prune.errors import UsageError
from prune.nn.checkpoint import INDEX, SINGLE, Checkpoint, read_json


@pytest.fixture
def two(tmp_path):
    """A folder of two shards."""
    save_file({"a": torch.ones(2), "b": torch.zeros(3, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    save_file({"c": torch.arange(4)}, tmp_path / "y.safetensors")
    index(tmp_path, {"a": "x.safetensors", "b": "x.safetensors", "c": "y.safetensors"})
    return tmp_path


def index(folder, weight_map):
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def refused(folder, pattern):
    with pytest.raises(UsageError, match=pattern) as caught:
        Checkpoint(folder).entries  # noqa: B018
    assert "\n" not in str(caught.value)


def test_tensors_by_name_whatever_their_file(two):
    checkpoint = Checkpoint(two)
    assert checkpoint.files == ["x.safetensors", "y.safetensors"]
    assert {n: (e.dtype, e.shape, e.nbytes) for n, e in checkpoint.entries.items()} == {
        "a": ("F32", (2,), 8),
        "b": ("BF16", (3,), 6),
        "c": ("I64", (4,), 32),
    }
    loaded = checkpoint.load(["c", "a"])
    assert loaded["c"].tolist() == [0, 1, 2, 3] and loaded["a"].tolist() == [1, 1]


def test_a_file_that_the_index_does_not_name_is_not_read(two):
    (two / "old.safetensors").write_bytes(b"torn")
    (two / "pytorch_model.bin").write_bytes(b"\x80\x04evil")
    assert set(Checkpoint(two).entries) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "sub/x.safetensors", "..", "", "x.bin", ".", 7, None, ["x"]]
)
def test_an_index_stays_in_its_folder(two, name):
    save_file({"a": torch.ones(1)}, two.parent / "x.safetensors")
    index(two, {"a": name})
    refused(two, f"{INDEX}: a names .* no safetensors file here")


def test_an_absolute_path_is_refused(two):
    index(two, {"a": str(two / "x.safetensors")})
    refused(two, "no safetensors file here")


def test_a_missing_shard_is_named(two):
    (two / "y.safetensors").unlink()
    refused(two, f"{INDEX}: y.safetensors is missing")


@pytest.mark.parametrize("where", ["y.safetensors", "x.safetensors"])
def test_a_tensor_that_is_not_where_the_index_says(two, where):
    index(two, {"a": "x.safetensors", "c": "y.safetensors", "z": where})
    refused(two, f"{INDEX}: z is not in {where}")


def test_a_tensor_in_two_files_is_refused(two):
    save_file({"a": torch.zeros(1)}, two / "y.safetensors")
    index(two, {"b": "x.safetensors", "a": "y.safetensors"})
    refused(two, r"a is in both x.safetensors and y.safetensors")


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "{}", '{"weight_map": []}', '{"weight_map": {}}', "[" * 99999]
)
def test_an_index_that_is_none(two, content):
    (two / INDEX).write_text(content)
    refused(two, INDEX)


@pytest.mark.parametrize("cut", [0, 4, 8, 40, -1])
def test_a_torn_file_is_named(two, cut):
    path = two / "x.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    refused(two, "x.safetensors: ")


def header(folder, entries, data=b"\0" * 64):
    text = json.dumps(entries).encode()
    (folder / SINGLE).write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(("kind", "size"), [("F8_E4M3", 64), ("U16", 32), ("F3", 64), ("C64", 8)])
def test_a_dtype_that_nobody_multiplies_is_refused(tmp_path, kind, size):
    header(tmp_path, {"a": {"dtype": kind, "shape": [size], "data_offsets": [0, 64]}})
    refused(tmp_path, SINGLE)


@pytest.mark.parametrize("offsets", [[0, 60], [4, 68], [0, 1 << 40], [64, 0], [-4, 60]])
def test_offsets_that_lie_are_refused(tmp_path, offsets):
    header(tmp_path, {"a": {"dtype": "F32", "shape": [16], "data_offsets": offsets}})
    refused(tmp_path, SINGLE)


def test_only_pickles(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04evil")
    refused(tmp_path, r"safetensors only, and this holds pytorch_model.bin")


def test_nothing_at_all(tmp_path):
    refused(tmp_path, f"no {SINGLE}")


def test_a_folder_in_the_place_of_a_file(tmp_path):
    (tmp_path / SINGLE).mkdir()
    refused(tmp_path, f"no {SINGLE}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named(two):
    (two / "x.safetensors").chmod(0)
    refused(two, "x.safetensors: ")


def test_json_with_a_byte_order_mark(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"x": 1}')
    assert read_json(tmp_path / "a.json") == {"x": 1}
    with pytest.raises(UsageError, match=r"b\.json is missing"):
        read_json(tmp_path / "b.json")
