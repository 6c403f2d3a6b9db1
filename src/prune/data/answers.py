"""The log of teacher answers: append-only, a checksummed line an answer, safe against a kill at any time."""

from __future__ import annotations

import fcntl
import json
import os
from hashlib import sha256
from io import FileIO
from pathlib import Path
from types import TracebackType

from prune.parts import Answer

from .canonical import spell


class AnswerLog:
    """Answers that were given so far, and an open end to append to.

    The file is locked while it is open: a second run with the same teacher and settings waits, then finds
    the answers of the first. A torn last line is cut off on opening; a damaged line elsewhere counts as not
    answered.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Answer] = {}  #: by record id
        self.damaged = 0  #: lines whose checksum is wrong

    def __enter__(self) -> AnswerLog:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: FileIO = self.path.open("a+b", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        _sync_folder(self.path.parent)
        self._load()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, *answers: Answer) -> None:
        """Write answers durably: they are on disk when this returns.

        :raises OSError: no space, or another fault of the disk; nothing that was written before is lost.
        """
        data = memoryview(b"".join(_line(answer) for answer in answers))
        while data:
            data = data[self._file.write(data) :]
        os.fsync(self._file.fileno())
        self.answers.update((answer.rid, answer) for answer in answers)

    def _load(self) -> None:
        whole = 0
        self._file.seek(0)
        for raw in _lines(self._file):
            whole += len(raw)
            answer = _parse(raw)
            if answer is None:
                self.damaged += 1
            else:
                self.answers.setdefault(answer.rid, answer)
        self._file.truncate(whole)


def _lines(file: FileIO) -> list[bytes]:
    """The complete lines of a file, each with its line end; a stray carriage return ends none."""
    return [line + b"\n" for line in file.read().split(b"\n")[:-1]]


def _line(answer: Answer) -> bytes:
    body = {
        "rid": answer.rid,
        "ids": list(answer.ids),
        "text": answer.text,
        "finish": answer.finish,
        "meta": dict(answer.meta),
    }
    return f"{_checksum(spell(body))} {spell(body)}\n".encode()


def _parse(raw: bytes) -> Answer | None:
    checksum, _, body = raw.decode("utf-8", "replace").rstrip("\n").partition(" ")
    if checksum != _checksum(body):
        return None
    try:
        return Answer(**json.loads(body))
    except (TypeError, ValueError, RecursionError):  # a checksum proves no shape
        return None


def _checksum(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:16]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
