"""Finalized teacher data: a folder of records by split, with a manifest that holds every count and hash."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prune.errors import UsageError
from prune.identity import sha256

from .canonical import spell
from .fields import SPLITS

KIND, VERSION = "prune teacher data", 1
LOSSES = ("answer", "generated", "all")
MANIFEST, REJECTED = "manifest.json", "rejected.jsonl"
SHARDS = {split: f"records/{split}.jsonl" for split in SPLITS}


@dataclass(frozen=True)
class Record:
    """One answered prompt: ``ids`` = prompt, reasoning with its marks, answer with its end-of-turn token."""

    rid: str
    prompt_id: str
    sample: int
    split: str
    category: str | None
    messages: Sequence[Mapping[str, str]]  #: of the prompt; the answer's text is ``meta["answer"]``
    ids: Sequence[int]
    n_prompt: int
    n_think: int
    n_answer: int
    finish: str
    meta: Mapping[str, Any]

    def span(self, loss_on: str) -> tuple[int, int]:
        """[start, stop) of the tokens that the loss counts; they are targets, predicted from those before.

        :param loss_on: ``answer``, ``generated`` (reasoning and answer), ``all`` (all tokens but the first).
        """
        starts = {"answer": self.n_prompt + self.n_think, "generated": self.n_prompt, "all": 1}
        return max(1, starts[loss_on]), len(self.ids)


@dataclass(frozen=True)
class Rejected:
    """A question without a usable answer, and why: ``truncated``, ``empty``, ``failed`` …"""

    rid: str
    prompt_id: str
    sample: int
    split: str
    reason: str
    text: str


def write(
    folder: Path, records: Sequence[Record], rejected: Sequence[Rejected], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a finalized set and return its manifest; equal arguments give equal bytes.

    :param facts: what else the manifest states: teacher, template and tokenizer, salt, counts, warnings.
    """
    (folder / "records").mkdir(parents=True, exist_ok=True)
    for split, name in SHARDS.items():
        _write_lines(folder / name, (asdict(r) for r in records if r.split == split))
    _write_lines(folder / REJECTED, map(asdict, rejected))
    manifest = {
        "kind": KIND,
        "version": VERSION,
        **facts,
        "splits": {split: totals([r for r in records if r.split == split]) for split in SPLITS},
        "prompts": {s: list(dict.fromkeys(r.prompt_id for r in records if r.split == s)) for s in SPLITS},
        "sha256": {name: sha256(folder / name) for name in (*SHARDS.values(), REJECTED)},
    }
    (folder / MANIFEST).write_text(
        json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return manifest


def totals(records: Sequence[Record]) -> dict[str, int]:
    """Counts of one split."""
    return {
        "records": len(records),
        "prompts": len({r.prompt_id for r in records}),
        "prompt_tokens": sum(r.n_prompt for r in records),
        "think_tokens": sum(r.n_think for r in records),
        "answer_tokens": sum(r.n_answer for r in records),
    }


def is_finalized(path: Path) -> bool:
    """Whether a path is a folder of finalized teacher data."""
    return (path / MANIFEST).is_file()


def read(folder: Path, split: str) -> list[Record]:
    """The records of one split in their order.

    :raises UsageError: the shard is missing or a line of it is no record.
    """
    name = SHARDS[split]
    found = []
    for number, line in enumerate(_read_lines(folder, name), 1):
        try:
            record = Record(**json.loads(line))
            sound = (
                record.n_prompt + record.n_think + record.n_answer == len(record.ids) and record.n_prompt > 0
            )
        except (ValueError, TypeError):
            sound = False
        if not sound or record.split != split:
            raise UsageError(f"data: {name}:{number}: not a record of split {split}; make the set again")
        found.append(record)
    return found


def read_manifest(folder: Path) -> dict[str, Any]:
    """:raises UsageError: there is none of this kind and version."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known = manifest["kind"] == KIND and manifest["version"] == VERSION
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise UsageError(
            f"data: {folder / MANIFEST} is no manifest of teacher data (version {VERSION}); give prompts"
        )
    return dict(manifest)


def validate(folder: Path, tokenizer: str | None = None) -> dict[str, Any]:
    """The manifest of a set whose every hash and count holds.

    :param tokenizer: hash of the source's tokenizer, which must be the set's.
    :raises UsageError: names the file that does not fit, or both tokenizer hashes.
    """
    manifest = read_manifest(folder)
    if tokenizer and manifest.get("tokenizer") != tokenizer:
        theirs = str(manifest.get("tokenizer"))[:16]
        raise UsageError(
            f"data: made with another tokenizer (hash {theirs}) than the source's (hash {tokenizer[:16]}); "
            "let this source answer the prompts again"
        )
    for name in (*SHARDS.values(), REJECTED):
        if not (folder / name).is_file() or sha256(folder / name) != manifest.get("sha256", {}).get(name):
            raise UsageError(
                f"data: {folder / name} is missing or changed since the set was made; make it again"
            )
    _check_counts(folder, manifest)
    return manifest


def _check_counts(folder: Path, manifest: Mapping[str, Any]) -> None:
    home: dict[str, str] = {}
    for split in SPLITS:
        records = read(folder, split)
        if not records or manifest.get("splits", {}).get(split) != totals(records):
            raise UsageError(
                f"data: {SHARDS[split]} does not hold what the manifest counts; make the set again"
            )
        for record in records:
            if home.setdefault(record.prompt_id, split) != split:
                raise UsageError(
                    f"data: a prompt of {SHARDS[split]} is in {SHARDS[home[record.prompt_id]]} too"
                )


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(spell(row) + "\n" for row in rows)


def _read_lines(folder: Path, name: str) -> Iterator[str]:
    try:
        with (folder / name).open(encoding="utf-8", newline="\n") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"data: cannot read {folder / name}: {error}"[:300]) from None
