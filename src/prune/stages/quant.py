"""quant: writes the weights in the codec's format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune.errors import StageError, UsageError
from prune.parts import Matrix, build
from prune.stage import Job, Stage

if TYPE_CHECKING:
    from torch import Tensor


class Quant(Stage):
    """Every matrix of the decoder layers through the codec, the rest as it is or in its float dtype."""

    uses = ("codec", "save.shard", "threads")
    tunes = ("threads",)
    reads = ("weights",)
    writes = ("weights",)

    def idle(self, options: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
        return bool(build(options["codec"]).idle)

    def run(self, job: Job) -> dict[str, Any]:
        from prune.arithmetic import parse_bytes
        from prune.nn.folder import encoded_specs, kept_entries, matrices, write_folder
        from prune.nn.model import LazyModel
        from prune.nn.shards import nbytes

        codec = build(job.options["codec"])
        model = LazyModel(job.inputs["weights"])
        encoded = matrices(model)
        kept = kept_entries(model)
        try:
            specs = encoded_specs(kept, encoded, codec)
        except ValueError as e:
            raise UsageError(f"codec: {e}") from None
        write_folder(
            model,
            job.out / "weights",
            specs,
            _pieces(kept, encoded, codec),
            codec.config(list(encoded.values())),
            parse_bytes(job.options["save.shard"]),
            lambda done, total: job.progress(done, total),
        )
        for note in sorted({n for m in encoded.values() if (n := codec.note(m))}):
            job.notice(note)
        return {"bytes": sum(map(nbytes, specs.values())), "matrices": len(encoded)}


def _pieces(
    kept: Mapping[str, Any], encoded: Mapping[str, Matrix], codec: Any
) -> Iterator[tuple[list[str], Callable[..., Any]]]:
    from prune.nn.folder import copied

    for name in kept:
        if name in encoded:
            yield [name], lambda stored, m=encoded[name]: _encode(codec, m, stored[m.name])
        else:
            yield [name], copied


def _encode(codec: Any, matrix: Matrix, weight: Tensor) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = codec.encode(matrix, weight)
    except ValueError as e:
        raise StageError(f"codec: {e}") from None
    return tensors
