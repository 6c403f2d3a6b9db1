"""What the fuzz tests share."""

import os

from hypothesis import settings
from hypothesis import strategies as st

from prune.explain import LIMIT, explain

MORE = int(os.environ.get("FUZZ", "1"))


def quick(examples):
    """The same examples every time; FUZZ=500 in the environment tries 500 times as many, drawn at random."""
    return settings(max_examples=examples * MORE, derandomize=MORE == 1, deadline=None)


#: Any JSON value, NaN and infinities included.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=10,
)


def is_one_line(error):
    """It is shown as one printable line within the limit."""
    shown = explain(error)
    assert shown and shown.isprintable() and len(shown) <= LIMIT
    return True
