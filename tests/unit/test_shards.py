"""Files that take tensors one by one against what safetensors itself writes and reads."""

import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from prune.errors import StageError
from prune.nn.checkpoint import INDEX, NAME_OF, SINGLE, TORCH_DTYPE, Checkpoint
from prune.nn.shards import ShardWriter, nbytes

torch.set_num_threads(1)
QUICK = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def tensors(specs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, (dtype, shape) in specs.items():
        values = torch.randint(-9, 9, shape, generator=generator)
        made[name] = (values > 0) if dtype == "BOOL" else values.abs().to(TORCH_DTYPE[dtype])
    return made


def write(folder, specs, made, order, limit):
    folder.mkdir()
    with ShardWriter(folder, specs, limit) as writer:
        for name in order:
            writer.put(name, made[name])


def read(folder):
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                assert name not in found
                found[name] = file.get_tensor(name)
    return found


SPECS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda s: s != "__metadata__"),
    st.tuples(st.sampled_from(sorted(TORCH_DTYPE)), st.lists(st.integers(0, 5), max_size=3).map(tuple)),
    min_size=1,
    max_size=9,
)


@QUICK
@given(specs=SPECS, limit=st.integers(1, 400), data=st.data())
def test_any_tensors_in_any_order_come_back(tmp_path_factory, specs, limit, data):
    folder = tmp_path_factory.mktemp("w") / "out"
    made = tensors(specs)
    write(folder, specs, made, data.draw(st.permutations(sorted(specs))), limit)
    found = read(folder)
    assert found.keys() == made.keys()
    for name, tensor in made.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name
    entries = Checkpoint(folder).entries
    assert {n: (e.dtype, e.shape) for n, e in entries.items()} == specs
    files = sorted(p.name for p in folder.glob("*.safetensors"))
    for file in files:
        inside = [n for n, e in entries.items() if e.file == file]
        assert len(inside) == 1 or sum(nbytes(specs[n]) for n in inside) <= limit
    if len(files) > 1:
        index = json.loads((folder / INDEX).read_text())
        assert index["weight_map"] == {n: e.file for n, e in entries.items()}
        assert index["metadata"]["total_size"] == sum(map(nbytes, specs.values()))
    else:
        assert files == [SINGLE] and not (folder / INDEX).exists()


def test_it_equals_what_save_file_writes(tmp_path):
    specs = {
        "b": ("F32", (3, 4)),
        "a": ("BF16", (5,)),
        "c": ("I8", (7,)),
        "d": ("I64", (2,)),
        "e": ("F16", ()),
    }
    made = tensors(specs)
    write(tmp_path / "ours", specs, made, "cabed", 10**9)
    save_file(made, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    ours, theirs = load_file(tmp_path / "ours" / SINGLE), load_file(tmp_path / "theirs.safetensors")
    assert all(torch.equal(ours[n], theirs[n]) and ours[n].dtype == theirs[n].dtype for n in specs)
    with safe_open(tmp_path / "ours" / SINGLE, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert (tmp_path / "ours" / SINGLE).stat().st_size == (tmp_path / "theirs.safetensors").stat().st_size


def test_every_tensor_is_aligned_to_its_dtype(tmp_path):
    specs = {"a": ("I8", (3,)), "b": ("F32", (3,)), "c": ("BF16", (1,)), "d": ("I64", (1,))}
    write(tmp_path / "out", specs, tensors(specs), "abcd", 10**9)
    raw = (tmp_path / "out" / SINGLE).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    for name, (dtype, _) in specs.items():
        assert (8 + size + header[name]["data_offsets"][0]) % TORCH_DTYPE[dtype].itemsize == 0


def test_a_tensor_is_cast_to_what_was_declared(tmp_path):
    write(tmp_path / "out", {"a": ("F16", (2, 2))}, {"a": torch.eye(2).T * 1.5}, "a", 100)
    assert torch.equal(read(tmp_path / "out")["a"], torch.eye(2, dtype=torch.float16) * 1.5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e6])
def test_a_number_that_does_not_fit_is_refused_by_name(tmp_path, bad):
    with pytest.raises(StageError, match=r"^a: .*float16"):
        write(tmp_path / "out", {"a": ("F16", (3,))}, {"a": torch.tensor([0, bad, 1])}, "a", 100)


def test_a_missing_tensor_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"2 tensors were never written, b first"):
        write(tmp_path / "out", dict.fromkeys("abc", ("F32", (1,))), {"a": torch.ones(1)}, "a", 100)


@pytest.mark.parametrize(("order", "shape"), [("aa", (1,)), ("a", (2,))])
def test_a_second_put_or_another_shape_is_refused(tmp_path, order, shape):
    with pytest.raises(ValueError, match=r"^a \(.*declared \(1,\)"):
        write(tmp_path / "out", {"a": ("F32", (1,))}, {"a": torch.ones(shape)}, order, 100)


def test_an_undeclared_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^b: not declared"):
        write(tmp_path / "out", {"a": ("F32", (1,))}, {"b": torch.ones(1)}, "b", 100)


def test_another_error_inside_is_not_hidden_and_writes_no_index(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        ShardWriter(tmp_path, {"a": ("F32", (9,)), "b": ("F32", (9,))}, 36),
    ):
        raise ZeroDivisionError
    assert not (tmp_path / INDEX).exists()


def test_dtype_names_map_both_ways():
    assert {NAME_OF[v]: v for v in TORCH_DTYPE.values()} == TORCH_DTYPE
