"""Splits by prompt: every sample of a prompt lands in one of train, val and test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from prune.errors import UsageError

from .fields import SPLITS
from .prompts import Prompt

MINIMUM = 3  #: prompts that a set needs: one a split
SALT = "prune"  #: fixed, so that a prompt stays in its split from one file to the next
WEAK = 30  #: test prompts under which a 95 % interval is too wide to see a small loss


def assign(prompts: Sequence[Prompt], salt: str = SALT) -> dict[str, str]:
    """{prompt id: split}: 80 % train, 10 % val, 10 % test, by the hash of each prompt alone.

    The prompts' own ``split`` wins. A val or test split with fewer than :func:`least` prompts then takes free
    prompts from train, those next to its border first.

    :raises UsageError: fewer than :data:`MINIMUM` prompts, or a split left empty by the ``split`` fields.
    """
    if len(prompts) < MINIMUM:
        raise UsageError(f"data: need at least {MINIMUM} prompts (train/val/test), got {len(prompts)}")
    place = {p.prompt_id: position(p.prompt_id, salt) for p in prompts}
    split = {p.prompt_id: p.split or _by_hash(place[p.prompt_id]) for p in prompts}
    free = sorted((p.prompt_id for p in prompts if p.split is None), key=lambda i: (place[i], i))
    _repair(split, free, least(len(prompts)))
    for name in SPLITS:
        if name not in split.values():
            raise UsageError(f"data: no prompt is left for {name}; too many are fixed by their split field")
    return split


def least(prompts: int) -> int:
    """How many prompts val and test get at least: one in fifteen, rounded up."""
    return -(-prompts // 15)


def position(prompt_id: str, salt: str = SALT) -> float:
    """Where a prompt falls in [0, 1)."""
    return int.from_bytes(sha256(f"{salt}\0{prompt_id}".encode()).digest()[:6], "big") / 2**48


def weakness(test_prompts: int) -> str | None:
    """What to tell the user about a small test split, else None."""
    if test_prompts >= WEAK:
        return None
    return f"weak evidence: {test_prompts} test prompts hide small losses; give {10 * WEAK} prompts or more"


def _by_hash(place: float) -> str:
    return "train" if place < 0.8 else "val" if place < 0.9 else "test"


def _repair(split: dict[str, str], free: Sequence[str], floor: int) -> None:
    """Moves free prompts so that every split has ``floor`` of them, as far as there are donors."""
    for needy in ("test", "val", "train"):
        for donor in ("train", "val", "test"):
            count = Counter(split.values())
            spare = [i for i in reversed(free) if split[i] == donor and donor != needy]
            for moved in spare[: max(0, min(floor - count[needy], count[donor] - floor))]:
                split[moved] = needy
