"""none: the narrowed weights stay as the fold left them."""

from __future__ import annotations

from dataclasses import dataclass

from prune import hookimpl


@dataclass
class NoneOptions:
    _target_: str = "prune_plugins.heal.none.NoHeal"


class NoHeal:
    """Asks nothing of the heal stage, which is then left out of the run."""

    idle = True


@hookimpl
def prune_heals() -> dict[str, type]:
    return {"none": NoneOptions}
