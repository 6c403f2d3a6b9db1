"""Damaged or hostile weight folders: whatever the bytes say, only a PruneError comes out."""

import json

import pytest
import torch
from fuzzing import JSON, is_one_line, quick
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from prune.errors import PruneError
from prune.nn.checkpoint import INDEX, SINGLE, TORCH_DTYPE, Checkpoint, read_json

QUICK = quick(200)
NAMES = st.sampled_from(["a", "b", "__metadata__", ""]) | st.text(max_size=6)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*TORCH_DTYPE, "F8_E4M3", "U64", "f32", ""]) | JSON,
        "shape": st.lists(st.integers(-2, 9) | st.integers(), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-2, 70) | st.integers(), max_size=3) | JSON,
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def only_prune_errors(folder):
    """Everything that a stage asks of a checkpoint."""
    try:
        checkpoint = Checkpoint(folder)
        entries = checkpoint.entries
        loaded = checkpoint.load(list(entries))
    except PruneError as e:
        assert is_one_line(e)
        return None
    for name, entry in entries.items():
        assert tuple(loaded[name].shape) == entry.shape and loaded[name].nbytes == entry.nbytes
    return loaded


@QUICK
@given(header=st.dictionaries(NAMES, ENTRY | JSON, max_size=4) | JSON, data=st.binary(max_size=64))
def test_headers(folder, header, data):
    text = json.dumps(header).encode()
    (folder / SINGLE).write_bytes(len(text).to_bytes(8, "little") + text + data)
    only_prune_errors(folder)


@QUICK
@given(start=st.binary(max_size=120), length=st.none() | st.integers(0, 2**64 - 1))
def test_bytes(folder, start, length):
    (folder / SINGLE).write_bytes((b"" if length is None else length.to_bytes(8, "little")) + start)
    only_prune_errors(folder)


@QUICK
@given(place=st.integers(0, 10**6), change=st.integers(1, 255), cut=st.integers(0, 400))
def test_a_sound_file_with_a_flipped_or_missing_byte(folder, place, change, cut):
    path = folder / SINGLE
    save_file({"a": torch.ones(8), "b": torch.zeros(3, 4, dtype=torch.bfloat16)}, path)
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] ^= change
    path.write_bytes(bytes(raw[: len(raw) - cut] if cut < 100 else raw))
    only_prune_errors(folder)


FILES = st.sampled_from(
    ["x.safetensors", "y.safetensors", "../x.safetensors", "/etc/passwd", "a\0b.safetensors"]
)


@QUICK
@given(
    index=st.fixed_dictionaries({"weight_map": st.dictionaries(NAMES, FILES | JSON, max_size=4) | JSON})
    | JSON
)
def test_indices(folder, index):
    home = folder / "indexed"
    home.mkdir(exist_ok=True)
    if not (home / "x.safetensors").exists():
        save_file({"a": torch.ones(2)}, home / "x.safetensors")
        save_file({"b": torch.ones(2)}, home / "y.safetensors")
        save_file({"a": torch.zeros(2)}, folder / "x.safetensors")
    (home / INDEX).write_text(json.dumps(index))
    loaded = only_prune_errors(home)
    assert loaded is None or all(bool(t.all()) for t in loaded.values()), "it read outside its folder"


@QUICK
@given(raw=st.binary(max_size=80) | JSON.map(lambda v: json.dumps(v).encode()))
def test_json(folder, raw):
    (folder / "x.json").write_bytes(raw)
    try:
        assert isinstance(read_json(folder / "x.json"), dict)
    except PruneError as e:
        assert "x.json" in str(e) and is_one_line(e)
