"""What the parts that plugins offer must be able to do (types only), and how one is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor


def build(node: Mapping[str, Any]) -> Any:
    """The part that a config node describes: ``_target_`` called with the other keys."""
    module, _, name = str(node["_target_"]).rpartition(".")
    return getattr(import_module(module), name)(**{k: v for k, v in node.items() if k != "_target_"})


@dataclass(frozen=True)
class ReadOut:
    """A read-out site: where a layer's hidden neurons re-enter the residual stream.

    A selector and a refit see nothing else of the model, so heads on ``o_proj`` are the same problem.
    """

    layer: int
    gram: Tensor  #: Σ = E[a aᵀ] of the inputs a, float32 [F, F]
    weight: Tensor  #: W, float32 [D, F]: output = W a (+ bias)


class Selector(Protocol):
    """Which neurons are worth keeping."""

    def order(self, site: ReadOut) -> Tensor:
        """All F neuron indices, int64 [F], the most valuable first; a width k keeps the first k."""
        ...


@dataclass(frozen=True)
class Room:
    """What an allocator may do with one layer."""

    full: int  #: F, the source's width
    floor: int  #: least width allowed (a multiple of ``step``, or F)
    protected: bool  #: stays at ``full``
    rel: Sequence[tuple[int, float]] = ()  #: (width, relative refit error) at multiples of ``step``
    energy: float = 0.0  #: tr(W Σ Wᵀ)


class Allocator(Protocol):
    """How wide each layer stays."""

    same_width: bool  #: True where every unprotected layer of equal size gets the same width

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """One width a layer, multiples of ``step`` (or full), their sum the closest not above ``total``.

        :raises ValueError: where no such widths exist.
        """
        ...


class Codec(Protocol):
    """How a weight matrix is stored."""

    idle: bool  #: True where weights stay exactly as they are
    group: int  #: weights of a row that share a scale, 1 where there are none: widths are multiples of it

    def parts(self, name: str, shape: tuple[int, int], dtype: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The tensors that replace ``name`` (``….weight``): {name: (safetensors dtype, shape)}.

        :raises ValueError: where the codec cannot store such a shape; called in the plan.
        """
        ...

    def encode(self, name: str, weight: Tensor) -> dict[str, Tensor]:
        """The tensors of :meth:`parts` for a float32 weight [rows, columns]."""
        ...

    def decode(self, name: str, stored: Mapping[str, Tensor]) -> Tensor:
        """float32 [rows, columns] back from the tensors of :meth:`encode`."""
        ...

    def config(self, shapes: Mapping[str, tuple[int, int]]) -> dict[str, Any] | None:
        """``quantization_config`` for config.json, given every encoded matrix; None for plain floats."""
        ...


@dataclass(frozen=True)
class Question:
    """One prompt to be answered, rendered and tokenized for the source."""

    rid: str  #: record id: hash of prompt content, sample index, teacher identity and sampling
    messages: Sequence[Mapping[str, str]]
    ids: Sequence[int]  #: the rendered prompt's token ids, one BOS at most
    sampling: Mapping[str, float]  #: {} = greedy; else temperature, top_p, top_k, min_p
    seed: int


@dataclass(frozen=True)
class Answer:
    """What a teacher said."""

    rid: str
    ids: Sequence[int]  #: generated ids without the end-of-sequence token
    text: str
    finish: str  #: "stop" | "length" | "error"
    meta: Mapping[str, Any]


class Teacher(Protocol):
    """Who answers the task prompts."""

    def identity(self, source: Path) -> str:
        """What, with the prompt and the sampling, decides an answer; never a program version."""
        ...

    def answer(
        self, questions: Sequence[Question], done: frozenset[str], source: Path
    ) -> Iterator[Answer]:
        """Answers to all questions whose rid is not in ``done``, each as soon as it is finished.

        :param questions: *all* questions of the set, in order, so that batches do not depend on ``done``.
        """
        ...
