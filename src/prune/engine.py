"""Runs a configuration: each step once per key, its result kept in the cache, the last one published."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from . import cache, config, explain, failure, gating, isolate, locate, locks, publish, screen
from .errors import StageError, UsageError
from .identity import Hashes
from .run import Run
from .stage import Job, Stage
from .wire import Step, Wiring, wire

__all__ = ["Run", "Step", "plan", "run"]

_renewed: set[Path] = (
    set()
)  # what this process has recomputed: redo and fresh do it once, for all jobs of a sweep


def plan(cfg: DictConfig) -> list[Step]:
    """The steps of a run with their cache folders; reads the inputs, writes nothing."""
    plain = config.check(cfg)
    return wire(plain, _hashes(plain)).steps


def run(cfg: DictConfig) -> dict[str, Any]:
    """Do what ``cfg`` asks for; the facts of the last step, with ``output`` where one was published.

    :raises PruneError: with the exit code that tells what went wrong.
    """
    plain = config.check(cfg)
    if plain["plan_only"]:
        screen.show(plain)
        return {}
    output = locate.absolute(plain["output"]) if config.publishes(plain) else None
    with ExitStack() as held:
        if output is not None:
            held.enter_context(locks.claim(output))
        hashes = _hashes(plain)
        wiring = wire(plain, hashes)
        if plain["check"]:
            screen.show(plain)
            return {}
        return _Execution(plain, wiring, hashes, output).go()


def _hashes(cfg: Mapping[str, Any]) -> Hashes:
    return Hashes(locate.absolute(cfg["cache"]) / "hashes.json")


class _Execution:
    """One run that nothing speaks against so far."""

    def __init__(self, cfg: dict[str, Any], wiring: Wiring, hashes: Hashes, output: Path | None) -> None:
        self.cfg, self.wiring, self.hashes, self.output = cfg, wiring, hashes, output
        self.forced = _forced(cfg, wiring)
        self.standing = output is not None and publish.holds(output, wiring, hashes)
        self.last: dict[str, Any] = {}

    def go(self) -> dict[str, Any]:
        """Refuse what can be refused, then run."""
        if self.output is not None and not self.standing:
            self._refuse(self.output)
        if any(not self._found(s) for s in self.wiring.steps) and (self.forced or not self.standing):
            screen.refuse(screen.inspect(self.cfg)[1])
        self.run = self._begin()
        self.run.tell("prune_run_start")
        try:
            outcome = self._all()
        except BaseException as e:
            code = explain.exit_code(e)
            self._end({"exit_code": code, "error": explain.explain(e)})
            raise
        self._end(outcome)
        if self.run.faults:
            name, why = next(iter(self.run.faults.items()))
            raise StageError(f"observer {name!r} failed in {why}; the result is complete and kept")
        return outcome

    def _refuse(self, output: Path) -> None:
        publish.refuse_overlap(output, self.wiring, locate.absolute(self.cfg["cache"]))
        publish.refuse_existing(output, self.cfg["overwrite"])
        rejected = publish.rejected(output)
        if self.cfg["write_on_fail"] and cache.read(rejected) is None:  # one of ours may be replaced
            publish.refuse_existing(rejected, self.cfg["overwrite"])

    def _begin(self) -> Run:
        try:
            self.hashes.save()
            return Run(self.cfg, self.wiring)
        except OSError as e:
            raise UsageError(f"cache={self.cfg['cache']}: cannot write there: {e.strerror}") from e

    def _end(self, outcome: Mapping[str, Any]) -> None:
        self.run.tell("prune_run_done", outcome=outcome)
        self.hashes.save()

    def _all(self) -> dict[str, Any]:
        for step in self.wiring.steps:
            if self.standing and not self.forced and not self._found(step):
                continue  # the cache was cleared, the output is what it would make again
            self._step(step)
        if self.output is None:
            return {"exit_code": 0, **self.last}
        if self.standing:
            self.last = dict((cache.read(self.output) or {}).get("facts", {}))
        else:
            self._publish(self.output)
        return {"exit_code": 0, **self.last, "output": str(self.output), "up_to_date": self.standing}

    def _publish(self, output: Path) -> None:
        try:
            gating.judge(self.run, self.wiring, output, self.hashes)
            publish.write(output, self.wiring, self.last, self.hashes)
        except OSError as e:
            raise failure.of("publish", e) from e

    def _found(self, step: Step) -> dict[str, Any] | None:
        """The manifest of a step that is complete and is not to be recomputed."""
        manifest = None if step.dir in self.forced else cache.read(step.dir)
        return manifest if manifest and cache.intact(step.dir, manifest, self.hashes) else None

    def _step(self, step: Step) -> None:
        began = time.monotonic()
        with locks.lock(step.dir, lambda: self._notice(step, "another run is at this step: waiting for it")):
            manifest = self._found(step)
            cached = manifest is not None
            if manifest is None:
                if step.dir.exists() and step.dir not in self.forced:
                    self._notice(step, "its cached result is damaged: computed again")
                self.run.tell("prune_stage_start", step=step)
                manifest = self._compute(step)
        self.last = dict(manifest["facts"])
        self.run.facts[step.name] = self.last
        self.run.tell("prune_stage_done", step=step, seconds=time.monotonic() - began, cached=cached)

    def _notice(self, step: Step, text: str) -> None:
        self.run.tell("prune_notice", step=step, text=text)

    def _compute(self, step: Step) -> dict[str, Any]:
        """Run a step in a scratch folder that becomes its place in the cache.

        :raises PruneError: where the stage failed.
        """
        try:
            manifest = cache.commit(
                step.dir, lambda scratch: {**step.own, "facts": self._facts(step, scratch)}
            )
        except Exception as e:
            with suppress(OSError):
                _keep(step).rmdir()  # where there is nothing to go on from
            raise failure.of(step.name, e) from e
        if step.stage.keeps is None:
            shutil.rmtree(_keep(step), ignore_errors=True)
        cache.learn(step.dir, manifest, self.hashes)
        self.hashes.save()
        self.forced.discard(step.dir)
        self.standing = False
        _renewed.add(step.dir)
        return manifest

    def _facts(self, step: Step, scratch: Path) -> dict[str, Any]:
        keep = _keep(step)
        keep.mkdir(exist_ok=True)
        job = {
            "options": step.options,
            "inputs": step.inputs,
            "versions": step.versions,
            "out": scratch,
            "keep": keep,
            "keys": step.own["inputs"],
        }
        facts: dict[str, Any] = isolate.call(
            f"stage {step.name}",
            _work,
            step.stage,
            job,
            on_message=lambda kind, payload: self._message(step, kind, payload),
            isolated=self.cfg["isolate"],
            threads=self.cfg["threads"],
            seed=int(step.options.get("seed", 0)),
        )
        absent = [a for a in step.stage.writes if not (scratch / a).exists()]
        if absent:
            raise StageError(f"stage {step.name}: left no {absent[0]!r}, which it says it writes")
        return facts

    def _message(self, step: Step, kind: str, payload: Any) -> None:
        if kind == "notice":
            self._notice(step, str(payload))
        else:
            done, total, metrics = payload
            self.run.tell("prune_progress", step=step, done=done, total=total, metrics=metrics)


def _keep(step: Step) -> Path:
    """Where a step puts what a run after an interruption goes on from."""
    return step.dir.with_name(step.stage.keeps or f".{step.dir.name}.kept")


def _forced(cfg: Mapping[str, Any], wiring: Wiring) -> set[Path]:
    """The steps that ``redo`` or ``fresh`` wants recomputed."""
    order = cfg["stages"]
    first = 0 if cfg["fresh"] else order.index(cfg["redo"]) if cfg["redo"] else len(order)
    return {s.dir for s in wiring.steps if order.index(s.name) >= first} - _renewed


def _work(stage: Stage, job: Mapping[str, Any], send: isolate.Send) -> dict[str, Any]:
    """In the child: run the stage; its facts, once they are known to be JSON."""

    def progress(done: float, total: float, **metrics: Any) -> None:
        send("progress", (done, total, metrics))

    facts = dict(stage.run(Job(**job, progress=progress, notice=lambda text: send("notice", text))) or {})
    try:
        json.dumps(facts)
    except (TypeError, ValueError) as e:
        raise StageError(f"stage {type(stage).__name__.lower()}: its facts are no JSON: {e}") from e
    sys.stdout.flush()
    return facts
