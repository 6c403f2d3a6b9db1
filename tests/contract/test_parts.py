"""The default parts under the contracts that plugin authors get."""

from prune.testing import AllocatorContract, CodecContract, SelectorContract


class TestF16(CodecContract):
    codec = "f16"
    error = 1e-3


class TestNone(CodecContract):
    codec = "none"
    error = 1e-7


class TestQ8(CodecContract):
    codec = "q8"
    error = 0.01


class TestImportance(SelectorContract):
    selector = "importance"


class TestGreedy(SelectorContract):
    selector = "greedy"


class TestObs(SelectorContract):
    selector = "obs"


class TestDtgma(SelectorContract):
    selector = "dtgma"
    options = {"steps": 2, "tokens": 64, "every": 1, "val_tokens": 40}  # noqa: RUF012


class TestUniform(AllocatorContract):
    allocator = "uniform"


class TestUniformSpread(AllocatorContract):
    allocator = "uniform"
    options = {"spread": True}  # noqa: RUF012

    def test_it_comes_within_a_step_of_the_total(self, built):
        from prune.parts import Room

        rooms = [Room(1536, 384, False)] * 30
        widths = built.widths(rooms, int(0.6 * 30 * 1536), 128)
        assert 0 <= int(0.6 * 30 * 1536) - sum(widths) < 128 and max(widths) - min(widths) == 128
        wide = [i for i, w in enumerate(widths) if w == max(widths)]
        assert wide != list(range(len(wide))), "the wider layers are spread, not all at one end"


class TestCurve(AllocatorContract):
    allocator = "curve"


class TestAbs(AllocatorContract):
    allocator = "abs"


class TestFisher(AllocatorContract):
    allocator = "fisher"


class TestSensitivity(AllocatorContract):
    allocator = "sensitivity"
