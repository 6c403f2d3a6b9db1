"""What an output will hold, before any tensor is read: shapes, bytes, the codec's fallbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..errors import UsageError
from ..parts import Codec, Matrix
from .budget import Budget, budget_of
from .folder import encoded_specs, kept_entries, matrices
from .layout import Site
from .model import LazyModel
from .shards import Spec, nbytes


@dataclass(frozen=True)
class Forecast:
    """The tensors of the output and what they weigh."""

    specs: dict[str, Spec]
    parameters: int
    encoded: int  #: parameters that the codec stores
    notes: list[str] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, headers not counted."""
        return sum(map(nbytes, self.specs.values()))


def forecast(model: LazyModel, widths: Sequence[int] | None, codec: Codec, budget: Budget | None = None) -> Forecast:
    """The output of a source narrowed to ``widths`` (None: as it is) and stored by ``codec``.

    :raises UsageError: where the codec cannot store a matrix, naming it.
    """
    budget = budget or budget_of(model)
    widths = list(widths or budget.full)
    specs = narrowed_specs(model, widths)
    encoded = {n: replace(m, shape=specs[n][1]) for n, m in matrices(model).items()}
    try:
        specs = encoded_specs(specs, {} if codec.idle else encoded, codec)
    except ValueError as e:
        raise UsageError(f"codec: {e}") from None
    stored = 0 if codec.idle else sum(m.shape[0] * m.shape[1] for m in encoded.values())
    return Forecast(specs, budget.parameters(widths), stored, _notes(codec, list(encoded.values())))


def narrowed_specs(model: LazyModel, widths: Sequence[int]) -> dict[str, Spec]:
    """The output's tensors in the source's dtypes."""
    specs = kept_entries(model)
    for site, width in zip(model.sites, widths, strict=True):
        for name, shape in _ffn_shapes(site, width, model).items():
            on_disk = model.stored_names(name)[0]
            specs[on_disk] = (specs[on_disk][0], shape)
    return specs


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


def _notes(codec: Codec, found: Sequence[Matrix]) -> list[str]:
    return sorted({note for m in found if not codec.idle and (note := codec.note(m))})
