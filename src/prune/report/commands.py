"""What to type next, given how a run came out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from .schema import with_role
from .words import number

Report = Mapping[str, Any]

#: There is room for more where even the interval's upper bound uses less than this share of what is allowed.
ROOM = 0.5
#: A step of the kept FFN fraction that is worth another run, and the narrowest that is proposed.
STEP, NARROWEST = 0.1, 0.25


def next_commands(report: Report, source: str, data: str, output: str = "OUT") -> list[str]:
    """Shell lines, the most useful first; none where too little was measured to advise.

    :param source: the run's ``source``, as the user typed it.
    :param data: the run's ``data``.
    :param output: the run's ``output``.
    """
    base = {"source": source, "data": data}
    if report["passed"]:
        more = [_command(base, change, output) for change in _smaller(report)]
        return [_load(report, output), *more]
    if any(g["passed"] is False and g["value"] is None for g in report["gates"]):
        return []
    look = {**_same(report), "write_on_fail": "true"}
    return [_command(base, change, output) for change in (*_gentler(report), look)]


def _load(report: Report, output: str) -> str:
    """Plain transformers is all that most outputs need."""
    folder = json.dumps(output)
    if report["target"]["loader"] == "prune":
        imports = "from transformers import AutoTokenizer, pipeline; from prune.nn.model import load"
        what = f"load({folder}), tokenizer=AutoTokenizer.from_pretrained({folder})"
    else:
        imports, what = "from transformers import pipeline", folder
    code = f'{imports}; print(pipeline("text-generation", {what})("Hello"))'
    return f"python -c {shlex.quote(code)}"


def _command(base: Mapping[str, str], change: Mapping[str, str], output: str) -> str:
    where = output if "write_on_fail" in change else f"{output}-{'-'.join(change.values())}"
    words = {**base, **change, "output": where}
    return " ".join(["prune", *(shlex.quote(f"{key}={value}") for key, value in words.items())])


def _same(report: Report) -> dict[str, str]:
    asked, codec = str(report["target"]["asked"]), str(report["codec"]["name"])
    key, _, value = asked.partition("=")
    return {**({key: value} if asked else {"recipe": "quant-only"}), "codec": codec}


def _smaller(report: Report) -> list[dict[str, str]]:
    """Narrower, where the loss leaves room for it."""
    high = number(((with_role(report, "final") or {}).get("delta") or {}).get("high"))
    limit = next((number(g["limit"]) for g in report["gates"] if g["gate"] == "nll_rise"), None)
    width = _kept(report) - STEP
    if high is None or limit is None or high > ROOM * limit or width < NARROWEST:
        return []
    return [{"ffn": f"{width:.2g}", "codec": str(report["codec"]["name"])}]


def _gentler(report: Report) -> list[dict[str, str]]:
    """More bits where the codec cost the most, else wider."""
    bits, kept = float(report["codec"]["bits_per_weight"]), _kept(report)
    pruned, stored = _losses(report)
    if stored > pruned and bits < 16:
        return [{**_same(report), "codec": "q8" if bits < 8 else "f16"}]
    return (
        [{"ffn": f"{min(1.0, kept + STEP):.2g}", "codec": str(report["codec"]["name"])}] if kept < 1 else []
    )


def _losses(report: Report) -> tuple[float, float]:
    """(NLL lost up to the last step before the final model, NLL lost by storing it)."""
    scored = [c for c in report["candidates"] if c["role"] in {"source", "step"}]
    final = with_role(report, "final")
    if not scored or final is None:
        return 0.0, 0.0
    first, last = float(scored[0]["nll"]), float(scored[-1]["nll"])
    return last - first, float(final["nll"]) - last


def _kept(report: Report) -> float:
    return float(report["target"]["neurons_after"] / report["target"]["neurons_before"])
