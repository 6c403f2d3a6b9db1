"""Width steps and parameter counts."""

import pytest

from prune.arithmetic import parse_count, width_step
from prune.errors import UsageError


@pytest.mark.parametrize(
    ("text", "want"),
    [("900M", 900_000_000), ("1.5B", 1_500_000_000), ("134515008", 134_515_008), (" 2.3b ", 2_300_000_000),
     ("12K", 12_000), ("1T", 10**12), ("0.000001K", 0)],
)  # fmt: skip
def test_counts(text, want):
    assert parse_count(text) == want


@pytest.mark.parametrize(
    "text", ["", "B", "-1B", "1,5B", "12GB", "1e9", "nan", "inf", "٣B", "9" * 400, "x" * 400]
)
def test_what_is_no_count(text):
    with pytest.raises(UsageError, match=r"^size=.*900M or 1\.5B$") as caught:
        parse_count(text)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("align", "group", "want"), [(128, None, 128), (128, 64, 128), (48, 64, 192), (1, 128, 128)]
)
def test_steps_suit_alignment_and_group(align, group, want):
    assert width_step(align, group) == want


@pytest.mark.parametrize("align", [0, -128])
def test_an_alignment_below_one(align):
    with pytest.raises(UsageError, match=f"plan.align={align}"):
        width_step(align, None)
