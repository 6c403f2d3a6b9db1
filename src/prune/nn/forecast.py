"""What an output will hold, before any tensor is read: shapes, bytes, the codec's fallbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from prune.errors import UsageError
from prune.parts import Codec, Matrix

from .budget import budget_of
from .folder import encoded_specs, kept_entries, matrices, matrix_names
from .layout import Site, experts_kept
from .model import LazyModel
from .shards import Spec, nbytes
from .widths import places


@dataclass(frozen=True)
class Forecast:
    """The tensors of the output and what they weigh."""

    specs: dict[str, Spec]
    parameters: int
    notes: list[str] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, headers not counted."""
        return sum(map(nbytes, self.specs.values()))


def forecast(model: LazyModel, widths: Sequence[int] | None = None, codec: Codec | None = None) -> Forecast:
    """The output of a source narrowed to ``widths`` and stored by ``codec``; None leaves it as it is.

    :raises UsageError: where the codec cannot store a matrix, naming it.
    """
    budget = budget_of(model)
    widths = list(widths or budget.full)
    specs = narrowed_specs(model, widths)
    if codec is None or codec.idle:
        return Forecast(specs, budget.parameters(widths))
    encoded = {n: replace(m, shape=_rank2(specs[n][1])) for n, m in matrices(model).items() if n in specs}
    try:
        specs = encoded_specs(specs, encoded, codec)
    except ValueError as e:
        raise UsageError(f"codec: {e}") from None
    return Forecast(specs, budget.parameters(widths), _notes(codec, list(encoded.values())))


def narrowed_specs(model: LazyModel, widths: Sequence[int]) -> dict[str, Spec]:
    """The output's tensors in the source's dtypes; those of dropped experts are left out."""
    specs = kept_entries(model)
    shapes: dict[str, tuple[int, ...] | None] = {
        n: None for s in model.sites for n in _ffn_shapes(s, 1, model)
    }
    for site, place in places(model.sites, widths):
        shapes.update(_ffn_shapes(place, widths[site.index], model))
    for layer, count in experts_kept(model.sites, widths).items():
        shapes[model.router(layer)] = (count, model.sites[0].hidden)
    on_disk = {model.stored_names(name)[0]: shape for name, shape in shapes.items()}
    changed = {n: (dtype, on_disk.get(n, shape)) for n, (dtype, shape) in specs.items()}
    return {n: (dtype, shape) for n, (dtype, shape) in changed.items() if shape is not None}


def _ffn_shapes(site: Site, width: int, model: LazyModel) -> dict[str, tuple[int, ...]]:
    def matrix(rows: int, columns: int) -> tuple[int, int]:
        return (columns, rows) if site.transposed else (rows, columns)

    shapes: dict[str, tuple[int, ...]] = {f"{site.read_out}.weight": matrix(site.hidden, width)}
    for read_in in site.read_ins:
        rows = width * read_in.blocks
        shapes[f"{read_in.module}.weight"] = matrix(rows, site.hidden)
        if model.model.get_submodule(read_in.module).bias is not None:
            shapes[f"{read_in.module}.bias"] = (rows,)
    return shapes


def _rank2(shape: Sequence[int]) -> tuple[int, int]:
    rows, columns = shape
    return rows, columns


def _notes(codec: Codec, found: Sequence[Matrix]) -> list[str]:
    return sorted({note for m in found if (note := codec.note(m))})


def stored_share(model: LazyModel, codec: Codec) -> tuple[int, float, list[str]]:
    """Of a finished model: parameters that the codec stores, bits a weight of its matrices, its notes."""
    names = matrix_names(model)
    weights = sum(model.model.get_parameter(n).numel() for n in names)
    stored = sum(model.checkpoint.entries[s].nbytes for n in names for s in model.stored_names(n))
    notes = [] if codec.idle else _notes(codec, list(matrices(model).values()))
    return 0 if codec.idle else weights, 8 * stored / weights, notes
