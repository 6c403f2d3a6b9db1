"""What a report's numbers rest on, and how far they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from . import words
from .schema import with_role

Report = Mapping[str, Any]

#: Counts of the prompts' file that tell of something unused, in words.
_UNUSED = {
    "duplicates": "duplicate prompts",
    "assistant_turns_dropped": "assistant turns at the end of a prompt (the teacher answers anew)",
    "ignored_field": "unknown fields {!r}",
}

#: Below about this many records a percentile interval over prompts is itself a guess.
FEW_RECORDS = 30


def evidence(report: Report) -> list[str]:
    """Sentences that say what the interval means here and where the evidence is thin."""
    return [*_interval(report), *_measured(report), *_unpruned(report)]


def _measured(report: Report) -> Iterator[str]:
    final = with_role(report, "final")
    if final is None:
        yield "No final model was scored."
        return
    records, tokens = final["records"], final["tokens"]
    yield f"Measured on {records} held-out answers ({words.count(tokens)} tokens) that no other stage reads."
    if records < FEW_RECORDS:
        yield f"Weak evidence: {records} test records are few. Give more prompts before relying on this."


def _interval(report: Report) -> Iterator[str]:
    delta = (with_role(report, "final") or {}).get("delta")
    if delta is None:
        yield "The difference to the source was not measured."
    elif delta["low"] is None:
        yield f"There is no 95 % interval: {delta.get('why', words.NOT_MEASURED)}."
    else:
        yield _reading(float(delta["low"]), float(delta["high"]))
        yield (
            "The interval is a paired bootstrap over prompts: both models score the same answers, and of "
            "20 such test sets about 19 would give an interval that holds the true difference."
        )


def _reading(low: float, high: float) -> str:
    if low <= 0 <= high:
        return "These prompts show no difference between final model and source: the 95 % interval holds 0."
    if low > 0:
        return (
            "The final model is measurably worse on these answers than the source: the interval is above 0."
        )
    if high < 0:
        return "The final model predicts these answers better than the source: the interval is below 0."
    return "The interval is not finite: nothing follows from it."


def _unpruned(report: Report) -> Iterator[str]:
    if not report.get("plan", {}).get("layers"):
        yield "Nothing was pruned in this run."


def facts(report: Report) -> list[tuple[str, str]]:
    """(name, text) of what went in and what was done."""
    return [*_inputs(report), *_work(report)]


def _inputs(report: Report) -> Iterator[tuple[str, str]]:
    source, data, teacher = report["source"], report["data"], report["data"]["teacher"]
    yield (
        "Source",
        f"{source['name']} ({source['layout']}, {source['dtype']}, identity {source['identity'][:12]})",
    )
    if origin := source.get("origin"):
        bits = words.significant(origin["bits_per_weight"], 2)
        yield "Made from", f"{origin['file']}, {bits} bits a weight: what that lost is lost here too"
    counts = (
        f"{words.count(n)} {split} ({words.count(data['tokens'].get(split, 0))} tokens)"
        for split, n in data["records"].items()
    )
    yield "Data", f"{data['name']}: {', '.join(counts)}"
    yield "Left out", ", ".join(_left_out(data)) or "nothing"
    yield (
        "Teacher",
        f"{teacher['name']}, {teacher['sampling']}, at most {teacher['max_tokens']} tokens an answer",
    )


def _left_out(data: Mapping[str, Any]) -> Iterator[str]:
    """Answers that were unusable, and what of the prompts' file went no further."""
    yield from (f"{words.count(n)} {reason}" for reason, n in data["rejected"].items() if n)
    for name, n in data["counts"].items():
        kind, _, field = name.partition(".")
        if n and kind in _UNUSED:
            yield f"{words.count(n)} {_UNUSED[kind].format(field)}"


def _work(report: Report) -> Iterator[tuple[str, str]]:
    target, codec = report["target"], report["codec"]
    kept, whole = words.count(target["neurons_after"]), words.count(target["neurons_before"])
    sharer = f", shared out by {target['shared_by']}" if target.get("shared_by") else ""
    yield "Target", f"{target['asked'] or 'none'}: {kept} of {whole} FFN neurons kept{sharer}"
    if "experts_after" in target:
        picks = words.percent(target["picks_kept"])
        yield (
            "Experts",
            f"{words.count(target['experts_after'])} of {words.count(target['experts_before'])} kept; "
            f"they had {picks} or more of a layer's picks",
        )
    if search := report.get("search"):
        yield (
            "Search",
            f"{len(search['trials'])} folds tried, bound {words.fixed(search['bound'])} nats on val",
        )
    pruned, quantized = words.percent(target["share_pruned"]), words.percent(target["share_quantized"])
    yield "Parameters", f"{pruned} of the source's pruned, {quantized} of the output's quantized"
    if report.get("fold"):
        choices = Counter(row["choice"] for row in report["fold"]["layers"])
        kind = "blocks" if "experts_after" in target else "layers"
        yield "Refit", f"{kind}: " + ", ".join(f"{n} {name}" for name, n in choices.most_common())
    notes = "".join(f"; {note}" for note in codec.get("notes", ()))
    yield "Codec", f"{codec['name']}, {words.significant(codec['bits_per_weight'], 4)} bits a weight{notes}"
    yield "Program", f"prune {report['prune']}"
