"""eval: what the smaller model costs, on answers that nothing else has read; the only reader of ``test``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune.errors import UsageError
from prune.parts import build
from prune.stage import Job, Stage

if TYPE_CHECKING:
    from prune.nn.measure import Measured
    from prune.report.assemble import Evidence

NAMES = ("source", "data", "output")  #: as the user typed them: the report proposes commands to type next


class Eval(Stage):
    """Scores every version of the weights, judges the last one, writes the report."""

    uses = (*NAMES, "eval", "loss_on", "codec", "dtype", "device", "seed", "stream", "threads")
    tunes = ("stream", "threads")
    files = ("eval.general", "eval.compare")
    reads = ("source", "answers", "weights")
    sees = ("weights", "plan", "folding", "origin")
    writes = ("report",)

    def run(self, job: Job) -> dict[str, Any]:
        from prune import report as reports
        from prune.report import assemble

        evidence = _gather(job)
        names = [str(job.options[n] or "") for n in NAMES]
        report = assemble.report(evidence, job.options["eval"]["gates"], job.options["seed"], names)
        folder = job.out / "report"
        folder.mkdir()
        reports.write(report, folder)
        command = assemble.command(evidence, names)
        (folder / "README.md").write_text(reports.model_card(report, command), encoding="utf-8")
        return assemble.facts(report)


def candidates(job: Job) -> list[tuple[str, str, Path]]:
    """(name, role, folder) of all that is scored: each version of the weights, then what to compare with."""
    versions = list(job.versions["weights"].items())
    source, steps, final = versions[0], versions[1:-1], versions[-1]
    found = [(source[0], "source", source[1]), *((n, "step", p) for n, p in steps)]
    found.append((final[0] if len(versions) > 1 else "output", "final", final[1]))
    return [*found, *((Path(p).name, "compare", Path(p)) for p in job.options["eval"]["compare"])]


def _gather(job: Job) -> Evidence:
    """Everything that the report says, measured."""
    from prune.data.records import read, read_manifest
    from prune.data.render import load_tokenizer
    from prune.nn.forecast import stored_share
    from prune.nn.model import LazyModel
    from prune.plugins import choice
    from prune.report.assemble import Evidence

    records = read(job.inputs["answers"], "test")
    if not records:
        raise UsageError(
            "eval: the teacher data has no test record, so nothing can be proved; give more prompts"
        )
    codec = build(job.options["codec"])
    source = LazyModel(job.inputs["source"])
    encoded, bits, notes = stored_share(LazyModel(job.inputs["weights"], decode=codec.decode), codec)
    chosen = choice("codec", job.options["codec"]["_target_"])
    evidence = Evidence(
        source_name=_name(job),
        identity=job.keys["source"],
        origin=_json(job, "origin"),
        layout=str(source.config.model_type),
        dtype=", ".join(sorted({e.dtype for e in source.checkpoint.entries.values()})),
        data_name=Path(str(job.options["data"])).name,
        manifest=read_manifest(job.inputs["answers"]),
        plan=_json(job, "plan", "plan.json"),
        folding=_json(job, "folding"),
        codec={"name": chosen["name"], "bits_per_weight": bits, "notes": notes},
        encoded=encoded,
        records=records,
        asked=records[: job.options["eval"]["prompts"]],
        max_tokens=job.options["eval"]["max_tokens"],
        tokenizer=load_tokenizer(job.inputs["source"]),
        roles={name: role for name, role, _ in candidates(job)},
    )
    evidence.measured.update(_measure(job, evidence, codec))
    return evidence


def _measure(job: Job, evidence: Evidence, codec: Any) -> dict[str, Measured]:
    from prune.arithmetic import parse_bytes
    from prune.nn.measure import Examiner
    from prune.nn.open import open_model

    questions = evidence.questions(
        job.options["loss_on"], _general(evidence.tokenizer, job), job.inputs["source"]
    )
    examiner = Examiner(questions, parse_bytes(job.options["stream"]["states"]), job.out)
    every = candidates(job)
    found: dict[str, Measured] = {}
    for i, (name, role, path) in enumerate(every):
        packed = role == "final" and not codec.idle
        model = open_model(path, job.options, codec.decode if packed else None)
        found[name] = examiner.measure(model, _share_of(job, i, len(every), name))
        rate = found[name].tokens_per_second
        job.progress(i + 1, len(every), candidate=name, **({"tokens_per_s": rate} if rate else {}))
        del model
    examiner.close()
    return found


def _share_of(job: Job, index: int, count: int, name: str) -> Callable[[float], None]:
    return lambda share: job.progress(index + share, count, candidate=name)


def _general(tokenizer: Any, job: Job) -> list[int]:
    """General text as one run of tokens, cut to ``eval.general_tokens``."""
    options = job.options["eval"]
    if options["general"] is None:
        return []
    from prune.data.text import read_text

    ids: list[int] = tokenizer(read_text(Path(options["general"]))).input_ids
    return ids[: options["general_tokens"]]


def _name(job: Job) -> str:
    """The source as people know it: a hub id as given, else the name of the folder or file."""
    given = str(job.options["source"]).rstrip("/")
    return given if "://" not in given and not Path(given).exists() else Path(given).stem


def _json(job: Job, artifact: str, inner: str = "") -> Mapping[str, Any] | None:
    """The latest version of an artifact that this run may not have."""
    versions = list(job.versions[artifact].values())
    found: Mapping[str, Any] | None = json.loads((versions[-1] / inner).read_text()) if versions else None
    return found
