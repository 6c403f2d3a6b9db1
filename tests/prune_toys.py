"""A third party's plugin for tests: three quick stages, which fail as ``TOY_FAIL=stage:how`` says."""

import errno
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from prune import hookimpl, screen
from prune.stage import Stage

screen.inspect = lambda cfg: ("toys are sound", [])  # toys' models are no models


class Toy(Stage):
    reads = ("weights",)
    writes = ("weights",)

    def run(self, job):
        name = type(self).__name__.lower()
        job.progress(0, 2, tokens_per_s=100.0)
        _fail(name)
        with (Path(job.keep) / "ran").open("a") as f:
            f.write(f"{name} {os.getpid()}\n")
        _write(name, job)
        job.progress(2, 2, tokens_per_s=100.0)
        job.notice(f"{name} is finished")
        return {"nll": 0.3, "bytes": 12}


def _write(name, job):
    for artifact in {"take": ["weights", "answers"], "cut": ["weights"]}.get(name, []):
        (job.out / artifact).mkdir()
        (job.out / artifact / "model.safetensors").write_text(f"{name} {dict(job.options)}")


def _fail(name):
    stage, _, how = os.environ.get("TOY_FAIL", "").partition(":")
    if stage != name:
        return
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(0)
    if how == "hang":
        (Path(os.environ["TOY_PID"])).write_text(str(os.getpid()))
        time.sleep(600)
    raise {
        "full": OSError(errno.ENOSPC, "No space left on device"),
        "memory": MemoryError("42 GB"),
        "value": ValueError("a bad value"),
        "system": SystemExit(0),
    }[how]


class Take(Toy):
    reads = ("source", "data")
    writes = ("weights", "answers")


class Cut(Toy):
    uses = ("loss_on", "codec", "seed", "threads")
    tunes = ("threads",)
    reads = ("weights", "answers")
    sees = ("weights",)

    def idle(self, options, inputs):
        return options["loss_on"] == "all"


class Score(Toy):
    uses = ("eval.prompts", "eval.general")
    files = ("eval.general",)
    reads = ("weights",)
    writes = ("report",)

    def run(self, job):
        facts = super().run(job)
        (job.out / "report").mkdir()
        (job.out / "report" / "report.json").write_text('{"nll": 0.3}')
        passed = os.environ.get("TOY_GATE") != "refuse"
        return {**facts, "passed": passed, "failed": [] if passed else ["nll_ratio: 2.0 is above 1.35"]}


def _options(cls):
    @dataclass
    class Options:
        _target_: str = f"prune_toys.{cls.__name__}"

    return Options


@hookimpl
def prune_stages():
    return {cls.__name__.lower(): _options(cls) for cls in (Take, Cut, Score)}


@dataclass
class ToyOptions:
    _target_: str = "prune_toys.Part"
    level: int = 1


class Part:
    def __init__(self, level):
        self.level = level


@hookimpl
def prune_teachers():
    return {"toy": ToyOptions}


@hookimpl
def prune_codecs():
    return {"toy": ToyOptions}
