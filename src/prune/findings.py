"""What a check found: a reason not to start, a reason to refuse the output, or a warning."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """``where`` names the option, file or gate; ``what`` says what is wrong and what to do."""

    where: str
    what: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
