"""A model folder made from another: tensors copied, replaced, encoded one by one, its small files beside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from prune.parts import Codec, Matrix

from .checkpoint import read_json
from .model import LazyModel
from .shards import ShardWriter, Spec

#: Not carried into an output: weights, indices, what says where a file came from, code.
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".gguf", ".ot"}
_CARRIED = {".json", ".txt", ".jinja", ".model", ".tiktoken", ".vocab", ".merges"}
_REWRITTEN = {"config.json", "model.safetensors.index.json", "manifest.json"}

#: Keys of config.json that say where the source came from: trainers reload a reference model from them.
FROM_WHERE = ("_name_or_path", "_model_name_or_path")

Make = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


def extra_files(folder: Path) -> list[Path]:
    """Tokenizer, chat template, generation and processor configs: carried over byte by byte."""
    return sorted(
        p for p in folder.iterdir() if p.is_file() and p.suffix in _CARRIED and p.name not in _REWRITTEN
    )


def write_folder(
    source: LazyModel,
    out: Path,
    specs: Mapping[str, Spec],
    pieces: Iterable[tuple[list[str], Make]],
    changes: Mapping[str, Any],
    shard_bytes: int,
    done: Callable[[int, int], None] | None = None,
) -> None:
    """Write a model folder.

    :param specs: every tensor of the output, {name on disk: (dtype, shape)}.
    :param pieces: (names on disk in the source to load together, what makes output tensors of them).
    :param changes: keys (dotted where nested) to set in config.json; None removes a key.
    """
    out.mkdir(parents=True, exist_ok=True)
    work = list(pieces)
    with ShardWriter(out, specs, shard_bytes) as writer:
        for i, (names, make) in enumerate(work):
            for name, tensor in make(source.checkpoint.load(names)).items():
                writer.put(name, tensor)
            if done:
                done(i + 1, len(work))
    write_config(source.folder, out, changes)
    for path in extra_files(source.folder):
        shutil.copyfile(path, out / path.name)


def write_config(source: Path, out: Path, changes: Mapping[str, Any]) -> None:
    """config.json of ``source`` with some keys changed; where it came from is left out."""
    config = read_json(source / "config.json")
    for key, value in (dict.fromkeys(FROM_WHERE) | dict(changes)).items():
        _set(config, key.split("."), value)
    (out / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _set(config: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set, or with None remove, a nested key."""
    *outer, name = path
    for part in outer:
        config = config.setdefault(part, {})
    if value is None:
        config.pop(name, None)
    else:
        config[name] = value


def copied(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A piece that stays as it is."""
    return tensors


def kept_entries(source: LazyModel) -> dict[str, Spec]:
    """The source's tensors that an output keeps: all but a head that is the embedding once more."""
    used = {n for name in source.names for n in source.stored_names(name)}
    heads = ("lm_head.weight", "embed_out.weight") if source.tied else ()
    head = {n for n in source.checkpoint.entries if n.endswith(heads)}
    return {n: (e.dtype, e.shape) for n, e in source.checkpoint.entries.items() if n in used or n not in head}


def matrix_names(model: LazyModel) -> list[str]:
    """The parameters that a codec stores: weight matrices of the decoder layers, none that routes."""
    gate = model.layout.mixture and model.layout.mixture.shared_gate
    inside = (n for n in model.names if n.startswith(model.layout.layers + ".") and n.endswith(".weight"))
    matrices = (n for n in inside if isinstance(_module(model, n), nn.Linear | Conv1D))
    return [n for n in matrices if not (gate and n.endswith(f".{gate}.weight"))]


def matrices(model: LazyModel) -> dict[str, Matrix]:
    """Those matrices by their names on disk, with the shapes of the model as it is."""
    found: dict[str, Matrix] = {}
    for name in matrix_names(model):
        on_disk = model.stored_names(name)[0]
        rows, columns = model.model.get_parameter(name).shape
        dtype, transposed = model.checkpoint.entries[on_disk].dtype, isinstance(_module(model, name), Conv1D)
        found[on_disk] = Matrix(on_disk, (rows, columns), dtype, transposed, name.removesuffix(".weight"))
    return found


def _module(model: LazyModel, parameter: str) -> nn.Module:
    return model.model.get_submodule(parameter.rpartition(".")[0])  # type: ignore[no-any-return]


def encoded_specs(specs: Mapping[str, Spec], encoded: Mapping[str, Matrix], codec: Codec) -> dict[str, Spec]:
    """What a codec makes of these tensors.

    :param encoded: the matrices among them, with the shapes that ``specs`` has.
    :raises ValueError: where the codec cannot store a matrix.
    """
    result: dict[str, Spec] = {}
    for name, (dtype, shape) in specs.items():
        if name in encoded:
            result.update(codec.parts(encoded[name]))
        else:
            result[name] = (codec.floats if codec.floats and dtype in _FLOATS else dtype, shape)
    return result


_FLOATS = {"F64", "F32", "F16", "BF16"}
