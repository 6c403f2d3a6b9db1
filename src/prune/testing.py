"""For plugin authors and our own tests: what each kind of plugin must hold.

A plugin's own tests subclass a contract and name the part::

    class TestFoo(CodecContract):
        codec = "foo"
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from .allocation import stops
from .parts import Learns, Matrix, ReadOut, Room, Workbench, build
from .tiny import VOCAB, WIDTH, tiny

if TYPE_CHECKING:
    import torch

    from .nn.windows import Text


class CodecContract:
    """What every codec must hold to."""

    codec: ClassVar[str]  #: its name
    options: ClassVar[dict[str, Any]] = {}
    error: ClassVar[float] = 0.02  #: relative, of a Gaussian matrix read back
    shapes: ClassVar[tuple[tuple[int, int], ...]] = ((8, 256), (16, 576), (5, 176))

    @pytest.fixture
    def built(self) -> Any:
        return build(_options("prune_codecs", self.codec, self.options))

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_what_is_written_is_what_was_declared(self, built: Any, dtype: str) -> None:
        from .nn.checkpoint import TORCH_DTYPE

        for matrix, weight in self._matrices(dtype):
            declared = built.parts(matrix)
            written = built.encode(matrix, weight)
            assert {n: tuple(t.shape) for n, t in written.items()} == {n: s for n, (_, s) in declared.items()}
            for name, (kind, _) in declared.items():
                written[name].to(TORCH_DTYPE[kind])
                assert name == matrix.name or name.startswith(matrix.name + "_")

    def test_decoding_is_close_and_finite(self, built: Any) -> None:
        for matrix, weight in self._matrices("float32"):
            back = built.decode(matrix.name, built.encode(matrix, weight))
            assert back.shape == weight.shape and back.isfinite().all()
            assert float((back - weight).norm() / weight.norm()) < self.error

    def test_zeros_stay_zeros(self, built: Any) -> None:
        for matrix, weight in self._matrices("float32"):
            back = built.decode(matrix.name, built.encode(matrix, weight * 0))
            assert float(back.abs().max()) == 0

    def test_it_is_deterministic(self, built: Any) -> None:
        import torch

        for matrix, weight in self._matrices("float32"):
            one, two = built.encode(matrix, weight), built.encode(matrix, weight.clone())
            assert all(torch.equal(one[n], two[n]) for n in one)

    def test_importing_it_does_not_import_torch(self) -> None:
        assert_light()

    def _matrices(self, dtype: str) -> list[tuple[Matrix, torch.Tensor]]:
        import torch

        kind = {"float32": "F32", "bfloat16": "BF16"}[dtype]
        generator = torch.Generator().manual_seed(0)
        name = "model.layers.0.mlp.up_proj.weight"
        return [
            (Matrix(name, s, kind), torch.randn(s, generator=generator).to(getattr(torch, dtype)))
            for s in self.shapes
        ]


class SelectorContract:
    """What every selector must hold to; one that learns does so on a tiny model first."""

    selector: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def built(self) -> Any:
        return build(_options("prune_selectors", self.selector, self.options))

    def test_the_order_is_a_permutation(self, built: Any, tmp_path: Path) -> None:
        assert sorted(_order(built, random_site(WIDTH, 8, 400), tmp_path)) == list(range(WIDTH))

    def test_it_is_deterministic(self, built: Any, tmp_path: Path) -> None:
        one, two = (_order(built, random_site(WIDTH, 8, 400), tmp_path / n) for n in ("one", "two"))
        assert one == two

    def test_dead_neurons_come_last(self, built: Any) -> None:
        if isinstance(built, Learns):
            pytest.skip("it judges by its own run of the model; the plan puts the dead last")
        site = random_site(WIDTH, 8, 400, dead=(3, 17, 20))
        assert set(built.order(site)[-3:].tolist()) == {3, 17, 20}

    def test_importing_it_does_not_import_torch(self) -> None:
        assert_light()


class AllocatorContract:
    """What every allocator must hold to."""

    allocator: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def built(self) -> Any:
        return build(_options("prune_allocators", self.allocator, self.options))

    def test_widths_keep_to_rooms_and_total(self, built: Any) -> None:
        rooms = [_room(1536, 384, 128, i in (0, 5)) for i in range(6)]
        for share in (0.55, 0.6, 0.75, 0.9, 1.0):
            total = int(share * 6 * 1536)
            widths = built.widths(rooms, total, 128)
            assert sum(widths) <= total
            for room, width in zip(rooms, widths, strict=True):
                assert width == room.full if room.protected else room.floor <= width <= room.full
                assert width % 128 == 0 or width == room.full

    def test_the_whole_total_keeps_everything(self, built: Any) -> None:
        rooms = [_room(176, 128, 128) for _ in range(3)]
        assert built.widths(rooms, 3 * 176, 128) == [176] * 3

    def test_too_little_is_refused(self, built: Any) -> None:
        with pytest.raises(ValueError):
            built.widths([_room(1536, 384, 128)] * 2, 700, 128)

    def test_a_forecast_needs_nothing_measured(self, built: Any) -> None:
        widths = built.widths([Room(1536, 384, False)] * 6, 6 * 1024, 128)
        assert sum(widths) <= 6 * 1024 and min(widths) >= 384


def _order(selector: Any, site: ReadOut, folder: Path) -> list[int]:
    """A selector's order, once it has learnt where it does."""
    if isinstance(selector, Learns):
        selector.learn(tiny_bench(folder))
    order: list[int] = selector.order(site).tolist()
    return order


def tiny_bench(folder: Path, **changed: Any) -> Workbench:
    """Two tiny layers, to keep 256 of 352 neurons, and random records; writes into ``folder``.

    :param changed: fields of the bench to set otherwise.
    """
    from .nn.model import LazyModel

    kept = folder / "kept"
    kept.mkdir(parents=True)
    bench = Workbench(
        model=LazyModel(tiny(folder / "model")),
        train=_random_texts((60, 50, 31) * 3, 0),
        val=_random_texts((40, 25), 1),
        window=2048,
        seed=0,
        budget=10**9,
        scratch=folder,
        kept=kept,
        progress=lambda *_, **__: None,
        notice=print,
        rooms=[Room(WIDTH, 48, False)] * 2,
        total=256,
        step=16,
    )
    return replace(bench, **changed)


def _random_texts(lengths: Sequence[int], seed: int) -> list[Text]:
    """Bytes, the first of each text a prompt."""
    from .nn.windows import Text

    draw = random.Random(seed)
    return [Text([draw.randrange(1, VOCAB) for _ in range(n)], 1, n) for n in lengths]


def random_site(width: int, hidden: int, tokens: int, dead: Sequence[int] = (), seed: int = 0) -> ReadOut:
    """A read-out with correlated inputs; ``dead`` neurons never fire."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=generator) / width**0.5 + torch.eye(width)
    a = torch.randn(tokens, width, generator=generator) @ mixing
    a[:, list(dead)] = 0
    return ReadOut(0, a.T @ a / tokens, torch.randn(hidden, width, generator=generator))


def assert_light() -> None:
    """Options of all plugins are known without torch, transformers or numpy being imported."""
    import subprocess
    import sys

    heavy = "{'torch', 'transformers', 'numpy', 'rich'}"
    code = f"import sys, prune.plugins as p; p.register_options(); print({heavy} & set(sys.modules) or '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip(), f"imported at start-up: {done.stdout}"


def _options(hook: str, name: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """A part's options as a run would hand them over."""
    from dataclasses import asdict

    from .plugins import offered

    known = {n: options for n, options, _ in offered(hook)}
    return asdict(known[name](**overrides))


def _room(full: int, floor: int, step: int, protected: bool = False) -> Room:
    """A layer as a plan knows it, its error and its cost falling with the width."""
    room = Room(full, floor, protected)
    known = [(k, (1 - k / full) ** 2) for k in stops(room, step)]
    return replace(room, rel=known, energy=1.0, cost=known)
