"""prepare: the teacher answers the prompts once; the answers become records in train, val and test."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune.errors import UsageError
from prune.parts import Answer, Teacher, build
from prune.stage import Job, Stage

if TYPE_CHECKING:
    from prune.data.questions import Asked


class Prepare(Stage):
    """Prompts to finalized teacher data, resumed to the single answer; a finalized set is copied."""

    uses = ("teacher", "seed", "device")
    files = ("teacher.model",)
    reads = ("source", "data")
    writes = ("answers",)
    keeps = "answers"

    def run(self, job: Job) -> dict[str, Any]:
        from prune.data.records import is_finalized

        data = job.inputs["data"]
        if data.is_dir() and not is_finalized(data):
            raise UsageError(
                f"data={data}: a folder without manifest.json; give a .jsonl of prompts or a finalized set"
            )
        manifest = _adopt(job) if data.is_dir() else _collect(job)
        for warning in manifest["warnings"]:
            job.notice(warning)
        return _facts(manifest)


def _adopt(job: Job) -> dict[str, Any]:
    """Copy a finalized set whose hashes, counts and tokenizer fit."""
    from prune.data.records import MANIFEST, REJECTED, SHARDS, validate
    from prune.data.render import load_tokenizer, tokenizer_hash

    data, folder = job.inputs["data"], job.out / "answers"
    manifest = validate(data, tokenizer_hash(load_tokenizer(job.inputs["source"])))
    (folder / "records").mkdir(parents=True)
    for name in (MANIFEST, REJECTED, *SHARDS.values()):
        shutil.copyfile(data / name, folder / name)
    return manifest


def _collect(job: Job) -> dict[str, Any]:
    from prune.data import records, splits
    from prune.data.finalize import judge, refuse_waste
    from prune.data.prompts import read_prompts
    from prune.data.questions import ask, context_of
    from prune.data.render import Renderer, load_tokenizer, tokenizer_hash

    source = job.inputs["source"]
    teacher: Teacher = build(job.options["teacher"])
    file = read_prompts(job.inputs["data"])
    split = splits.assign(file.prompts)
    renderer = Renderer(load_tokenizer(source), teacher.think)
    identity = teacher.identity(source)
    asked = ask(file.prompts, teacher, identity, renderer, source, job.options["seed"])
    answers = _answers(job, teacher, identity, asked)
    context = context_of(source)
    judged = [
        judge(a, answers.get(a.question.rid), split[a.prompt.prompt_id], renderer, context) for a in asked
    ]
    kept = [r for r in judged if isinstance(r, records.Record)]
    rejected = [r for r in judged if isinstance(r, records.Rejected)]
    refuse_waste(kept, rejected)
    weak = splits.weakness(len({r.prompt_id for r in kept if r.split == "test"}))
    facts = {
        "teacher": {
            "name": teacher.name,
            "identity": identity,
            "sampling": teacher.sampling,
            "samples": teacher.samples,
            "max_tokens": teacher.max_tokens,
            "think": teacher.think,
        },
        "template": renderer.template_hash,
        "tokenizer": tokenizer_hash(renderer.tokenizer),
        "salt": splits.SALT,
        "counts": file.counts,
        "rejected": _counted([r.reason for r in rejected]),
        "warnings": [weak] if weak else [],
    }
    return records.write(job.out / "answers", kept, rejected, facts)


def _answers(job: Job, teacher: Teacher, identity: str, asked: Sequence[Asked]) -> Mapping[str, Answer]:
    """By record id: what the log holds, and what the teacher says to the rest; each is logged as it comes."""
    from prune.data.answers import AnswerLog

    questions = [a.question for a in asked if a.fits]
    with AnswerLog(_log_path(job.keep, identity)) as log:
        if log.damaged:
            job.notice(f"{log.damaged} damaged lines of the answer log are asked again")
        done = frozenset(q.rid for q in questions) & log.answers.keys()
        began, count, tokens = time.monotonic(), len(done), 0
        job.progress(count, len(questions))
        if count < len(questions):
            for answer in teacher.answer(questions, done, job.inputs["source"], job.options["device"]):
                if answer.finish != "error":
                    log.append(answer)
                count, tokens = count + 1, tokens + len(answer.ids)
                speed = tokens / max(time.monotonic() - began, 1e-9)
                job.progress(count, len(questions), tokens=tokens, tokens_per_second=speed)
        return dict(log.answers)


def _log_path(keep: Path, identity: str) -> Path:
    return keep / f"{identity[:32]}.jsonl"


def _counted(reasons: Sequence[str]) -> dict[str, int]:
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def _facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    splits = manifest["splits"]
    tokens = ("prompt_tokens", "think_tokens", "answer_tokens")
    return {
        "records": {s: n["records"] for s, n in splits.items()},
        "tokens": {s: sum(n[t] for t in tokens) for s, n in splits.items()},
        "rejected": manifest["rejected"],
        "counts": manifest["counts"],
        "warnings": manifest["warnings"],
        "teacher": manifest["teacher"],
    }
