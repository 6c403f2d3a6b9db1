"""From what a run measured to its report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .schema import EXPERTS
from .tables import site

if TYPE_CHECKING:
    from prune.data.records import Record
    from prune.nn.bootstrap import Scores
    from prune.nn.measure import Measured, Questions


@dataclass
class Evidence:
    """What eval gathered; ``measured`` holds one entry a candidate, the source first."""

    source_name: str
    identity: str  #: key of the source's content
    origin: Mapping[str, Any] | None  #: the quantized file that the source was made of
    layout: str
    dtype: str
    data_name: str
    manifest: Mapping[str, Any]  #: of the teacher data
    plan: Mapping[str, Any] | None
    folding: Mapping[str, Any] | None
    codec: Mapping[str, Any]
    encoded: int  #: parameters that the codec stores
    records: Sequence[Record]
    asked: Sequence[Record]  #: those that each candidate answers
    max_tokens: int
    tokenizer: Any
    roles: Mapping[str, str]
    measured: dict[str, Measured] = field(default_factory=dict)

    def questions(self, loss_on: str, general: Sequence[int], source: Path) -> Questions:
        """What every candidate is asked."""
        from prune.data.render import Renderer
        from prune.data.stops import stop_ids
        from prune.nn.measure import Questions
        from prune.nn.windows import Text

        return Questions(
            texts=[Text(r.ids, *r.span(loss_on)) for r in self.records],
            general=[Text(general, 1, len(general))] if general else [],
            prompts=[r.ids[: r.n_prompt] for r in self.asked],
            max_tokens=self.max_tokens,
            stops=stop_ids(source, Renderer(self.tokenizer)),
        )

    def scores(self, name: str) -> Scores:
        """The per-record losses of a candidate, as the bootstrap takes them."""
        from prune.nn.bootstrap import Scores

        found = self.measured[name].scores
        return Scores([s.nll for s in found], [s.tokens for s in found], [r.prompt_id for r in self.records])

    @property
    def final(self) -> str:
        """The name of the candidate that the gates judge."""
        return next(n for n, role in self.roles.items() if role == "final")


def report(evidence: Evidence, limits: Mapping[str, Any], seed: int, names: Sequence[str]) -> dict[str, Any]:
    """What ``report.json`` holds.

    :param limits: of the gates.
    :param names: source, data and output as the user typed them.
    """
    from prune import __version__, gates

    from .commands import next_commands

    found: dict[str, Any] = {
        "prune": __version__,
        "source": {
            "name": evidence.source_name,
            "identity": evidence.identity,
            "origin": evidence.origin,
            "layout": evidence.layout,
            "dtype": evidence.dtype,
        },
        "data": _data(evidence),
        "target": _target(evidence),
        **_plan(evidence.plan, evidence.folding),
        "codec": evidence.codec,
        "candidates": _candidates(evidence, seed),
        "samples": _samples(evidence),
    }
    results = gates.judge(found, limits)
    found |= {"gates": [r.as_dict() for r in results], "passed": gates.passed(results)}
    return found | {"next": next_commands(found, names[0], names[1], names[2] or "OUT")}


def command(evidence: Evidence, names: Sequence[str]) -> str:
    """The line that makes this model again."""
    asked = evidence.plan["totals"]["asked"] if evidence.plan else "recipe=quant-only"
    words = [
        f"source={names[0]}",
        f"data={names[1]}",
        f"output={names[2]}",
        asked,
        f"codec={evidence.codec['name']}",
    ]
    return " ".join(["prune", *map(shlex.quote, words)])


def facts(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the step's manifest and a sweep's table say of a report."""
    final = next(c for c in found["candidates"] if c["role"] == "final")
    source = next(c for c in found["candidates"] if c["role"] == "source")
    return {
        "passed": found["passed"],
        "failed": [_failure(g) for g in found["gates"] if g["passed"] is False],
        "nll": final["nll"],
        "nll_source": source["nll"],
        "bytes": final["bytes"],
        "params": final["params"],
        "neurons": found["target"]["neurons_after"],
    }


def _failure(gate: Mapping[str, Any]) -> str:
    value = "not measured" if gate["value"] is None else f"{gate['value']:.4g}"
    return f"{gate['gate']} {value}, limit {gate['limit']:.4g} ({gate['why']})"


def _data(evidence: Evidence) -> dict[str, Any]:
    splits, teacher = evidence.manifest["splits"], evidence.manifest["teacher"]
    kinds = ("prompt_tokens", "think_tokens", "answer_tokens")
    return {
        "name": evidence.data_name,
        "records": {s: n["records"] for s, n in splits.items()},
        "tokens": {s: sum(n[k] for k in kinds) for s, n in splits.items()},
        "counts": evidence.manifest["counts"],
        "rejected": evidence.manifest["rejected"],
        "warnings": evidence.manifest["warnings"],
        "teacher": {k: teacher[k] for k in ("name", "sampling", "max_tokens")},
    }


def _target(evidence: Evidence) -> dict[str, Any]:
    """What was asked, and what came out of it."""
    source = next(iter(evidence.measured.values())).parameters
    plain: dict[str, Any] = {
        "asked": "", "shared_by": "", "loader": "transformers",
        "neurons_before": 1, "neurons_after": 1, "params_after": source,
    }  # fmt: skip
    totals = evidence.plan["totals"] if evidence.plan else plain
    after = totals["params_after"]
    return {
        **{k: totals[k] for k in plain},
        **{k: totals[k] for k in EXPERTS if k in totals},
        "params_before": source,
        "share_pruned": 1 - after / source,
        "share_quantized": evidence.encoded / evidence.measured[evidence.final].parameters,
    }


def _plan(plan: Mapping[str, Any] | None, folding: Mapping[str, Any] | None) -> dict[str, Any]:
    """``plan``, ``curves`` and ``fold``, as far as there are any."""
    if plan is None:
        return {}
    rows = folding["layers"] if folding else []
    errors = {site(row): row["error"] for row in rows}
    layers = [{**row, "rel_val": errors.get(site(row))} for row in plan["layers"]]
    return {
        "plan": {"layers": layers, "warnings": plan["warnings"]},
        "curves": plan["curves"],
        **{k: plan[k] for k in ("search", "learning") if k in plan},
        **({"fold": {"layers": rows}} if rows else {}),
    }


def _candidates(evidence: Evidence, seed: int) -> list[dict[str, Any]]:
    from prune.nn.bootstrap import delta_interval, interval

    names = list(evidence.measured)
    rows = [_candidate(evidence, name) for name in names]
    first = evidence.scores(names[0])
    for row in rows[1:]:
        row["delta"] = delta_interval(evidence.scores(row["name"]), first, seed=seed).as_dict()
        if (kl := evidence.measured[row["name"]].kl) is not None:
            row["kl"] = interval(replace(first, nll=kl), seed=seed).as_dict()
    return rows


def _candidate(evidence: Evidence, name: str) -> dict[str, Any]:
    from prune.nn.text_stats import generation_stats

    found = evidence.measured[name]
    nll = evidence.scores(name).mean
    general = sum(s.nll for s in found.general) / max(1, sum(s.tokens for s in found.general))
    expected = [len(r.ids) - r.n_prompt - 1 for r in evidence.asked]  # without the end-of-turn token
    said = (
        generation_stats(found.answers, found.stopped, expected, evidence.max_tokens)
        if found.answers
        else None
    )
    return {
        "name": name,
        "role": evidence.roles[name],
        "bytes": found.nbytes,
        "params": found.parameters,
        "nll": nll,
        "delta": None,
        "kl": None,
        "perplexity": _exp(nll),
        "records": len(found.scores),
        "tokens": sum(s.tokens for s in found.scores),
        "general_perplexity": _exp(general) if found.general else None,
        "generation": said,
    }


def _samples(evidence: Evidence, most: int = 8) -> list[dict[str, Any]]:
    """Side-by-side answers of the teacher, the source, the final model and what they are compared with."""
    shown = [n for n, role in evidence.roles.items() if role != "step" and evidence.measured[n].answers]

    def text(ids: Sequence[int]) -> str:
        return str(evidence.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    return [
        {
            "prompt": record.messages[-1]["content"],
            "teacher": text(record.ids[record.n_prompt :]),
            "answers": {n: text(evidence.measured[n].answers[i]) for n in shown},
        }
        for i, record in enumerate(evidence.asked[:most])
    ]


def _exp(nll: float) -> float:
    """Perplexity, infinite rather than an overflow."""
    return math.exp(nll) if nll < 700 else math.inf
