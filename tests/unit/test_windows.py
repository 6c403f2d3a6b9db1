"""Windows and batches: every token counts exactly once, no batch exceeds its budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prune.nn.windows import batches, cut

QUICK = settings(max_examples=200, derandomize=True, deadline=None)


@QUICK
@given(length=st.integers(1, 400), size=st.integers(1, 64))
def test_each_token_counts_once_with_what_came_before(length, size):
    ids = list(range(1000, 1000 + length))
    windows = cut(3, ids, size)
    counted = [i for w in windows for i in w.ids[w.start :]]
    assert counted == ids and sum(w.counted for w in windows) == length
    for window in windows:
        assert window.record == 3 and len(window.ids) <= size
        assert list(window.ids) == ids[window.offset : window.offset + len(window.ids)]
        assert window.start == 0 if window.offset == 0 else window.start >= min(size // 2, 1)


@pytest.mark.parametrize(
    ("length", "size", "want"), [(8, 8, [(0, 0)]), (9, 8, [(0, 0), (4, 4)]), (4, 8, [(0, 0)])]
)
def test_half_of_a_window_is_context(length, size, want):
    assert [(w.offset, w.start) for w in cut(0, range(length), size)] == want


def test_an_empty_record_counts_nothing():
    assert sum(w.counted for w in cut(0, [], 8)) == 0


@QUICK
@given(lengths=st.lists(st.integers(1, 90), max_size=30), tokens=st.integers(1, 200), size=st.integers(2, 64))
def test_batches_hold_every_window_once_within_the_budget(lengths, tokens, size):
    windows = [w for r, n in enumerate(lengths) for w in cut(r, range(1, n + 1), size)]
    found = batches(windows, tokens)
    assert sorted((w.record, w.offset) for b in found for w in b.windows) == [
        (w.record, w.offset) for w in windows
    ]
    assert sum(int(b.counted.sum()) for b in found) == sum(lengths)
    for batch in found:
        assert batch.ids.numel() <= tokens or len(batch.windows) == 1
        for row, window in enumerate(batch.windows):
            n = len(window.ids)
            assert batch.ids[row, :n].tolist() == list(window.ids) and not batch.ids[row, n:].any()
            assert batch.counted[row].nonzero().flatten().tolist() == list(range(window.start, n))
    longest = [len(b.windows[0].ids) for b in found]
    assert longest == sorted(longest, reverse=True)


def test_the_same_windows_in_another_order_make_the_same_batches():
    windows = [w for r, n in enumerate((9, 30, 4, 9)) for w in cut(r, range(n), 8)]
    assert [b.windows for b in batches(windows, 20)] == [b.windows for b in batches(windows[::-1], 20)]
