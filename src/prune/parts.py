"""What the parts that plugins offer must be able to do (types only), and how one is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from .nn.model import LazyModel
    from .nn.windows import Text


def build(node: Mapping[str, Any]) -> Any:
    """The part that a config node describes: ``_target_`` called with the other keys.

    :raises UsageError: where it refuses one of them (a ``ValueError`` of its ``__init__``).
    """
    module, _, name = str(node["_target_"]).rpartition(".")
    try:
        return getattr(import_module(module), name)(**{k: v for k, v in node.items() if k != "_target_"})
    except ValueError as e:
        raise UsageError(str(e)) from None


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
class Workbench:
    """The source and the calibration windows, for a part that runs the model before it decides."""

    model: LazyModel
    train: Sequence[Text]  #: records to learn from; the span that ``loss_on`` counts
    val: Sequence[Text]  #: records to judge by
    window: int  #: tokens a window
    seed: int
    budget: int  #: bytes of hidden states in memory; more goes to files in ``scratch``
    scratch: Path
    kept: Path  #: folder of this very measurement that outlives an interruption
    progress: Callable[..., None]  #: ``progress(done, total, **figures)``
    notice: Callable[[str], None]
    grams: Path = Path()  #: illuminate's Gram matrices
    rooms: Sequence[Room] = ()  #: what each layer may become
    total: int | None = None  #: neurons in all that the target leaves; None where a search is to find it
    step: int = 1  #: widths are multiples of it
    same_width: bool = False  #: whether the layers must stay equally wide, for the file's sake


@runtime_checkable
class Learns(Protocol):
    """A selector that looks at the whole model first: ``learn`` is called once, before any ``order``."""

    history: Sequence[Mapping[str, Any]]  #: its curve: ``step``, ``nll``, ``val_nll`` and other figures

    def learn(self, bench: Workbench) -> None:
        """Train, measure; go on from what it left in ``bench.kept``."""
        ...


@runtime_checkable
class Shares(Protocol):
    """A selector that also decides how many neurons each layer keeps: the allocator is not asked."""

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """As :meth:`Allocator.widths`."""
        ...


@dataclass(frozen=True)
class Room:
    """What an allocator may do with one layer."""

    full: int  #: F, the source's width
    floor: int  #: least width allowed (a multiple of ``step``, or F)
    protected: bool  #: stays at ``full``
    rel: Sequence[tuple[int, float]] = ()  #: (width, relative refit error) at multiples of ``step``
    energy: float = 0.0  #: tr(W Σ Wᵀ)
    cost: Sequence[tuple[int, float]] = ()  #: (width, what it costs) at the same stops, of a :class:`Prices`


class Allocator(Protocol):
    """How wide each layer stays."""

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """One width a layer, multiples of ``step`` (or full), their sum near and not above ``total``.

        Rooms carry no ``rel`` and no ``cost`` where the widths are only forecast.

        :raises ValueError: where no such widths exist.
        """
        ...


@runtime_checkable
class Prices(Protocol):
    """An allocator that measures on the model what a width costs."""

    def price(
        self, bench: Workbench, orders: Sequence[Tensor], stops: Sequence[Sequence[int]]
    ) -> list[Sequence[float]]:
        """The cost of every stop of every layer, 0 at full width and never less at a narrower one.

        :param orders: the selector's, int64 [F] a layer.
        :param stops: the widths that a layer may have, ascending, the full one last.
        """
        ...


@dataclass(frozen=True)
class Matrix:
    """A weight matrix of a decoder layer, as it is stored before a codec sees it."""

    name: str  #: its parameter name, ``….weight``
    shape: tuple[int, int]  #: [rows, columns]; a row is an output, except where ``transposed``
    dtype: str  #: safetensors name
    transposed: bool = False  #: GPT-2's Conv1D keeps [in, out]
    module: str = ""  #: what transformers calls the module, where not as the file does


class Codec(Protocol):
    """How weights are stored."""

    idle: bool  #: True where the folder stays exactly as it is
    group: int | None  #: weights of a row that share a scale: FFN widths are multiples of it
    floats: str | None  #: safetensors dtype for every float tensor that is no matrix; None leaves them

    def parts(self, matrix: Matrix) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The tensors replacing a matrix, {name: (safetensors dtype, shape)}: itself, or ``<name>_<part>``.

        :raises ValueError: where the codec cannot store it; asked before any work.
        """
        ...

    def encode(self, matrix: Matrix, weight: Tensor) -> dict[str, Tensor]:
        """The tensors of :meth:`parts` for a weight of any float dtype, [rows, columns].

        :raises ValueError: where its values do not fit.
        """
        ...

    def decode(self, name: str, stored: Mapping[str, Tensor]) -> Tensor:
        """float32 [rows, columns] of the parameter ``name`` from its ``<name>_<part>`` tensors."""
        ...

    def config(self, matrices: Sequence[Matrix]) -> dict[str, Any]:
        """Keys to set in config.json of a model whose ``matrices`` were encoded (``quantization_config``)."""
        ...

    def note(self, matrix: Matrix) -> str | None:
        """A fallback that a person should see in the plan (another group size), or None."""
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

    name: str  #: for the report
    max_tokens: int  #: longest answer
    samples: int  #: answers a prompt
    sampling: str  #: auto, greedy, file, or settings as ``temperature=0.7,top_p=0.9``
    think: bool  #: whether it may reason before it answers

    def identity(self, source: Path) -> str:
        """What, with the prompt, the sampling and ``max_tokens``, decides an answer; never a program version.

        :raises UsageError: where it cannot answer for this source.
        """
        ...

    def recommended(self, source: Path) -> Mapping[str, float]:
        """The sampling that it advises itself, for ``auto``; {} = greedy."""
        ...

    def answer(
        self, questions: Sequence[Question], done: frozenset[str], source: Path, device: str
    ) -> Iterator[Answer]:
        """Answers to all questions whose rid is not in ``done``, each as soon as it is finished.

        :param questions: *all* questions of the set, in order, so that batches do not depend on ``done``.
        """
        ...
