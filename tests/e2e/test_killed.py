"""``kill -9`` in any stage, then the same command: the same bytes as undisturbed, and nothing asked twice."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from product import RUN, STAGES, environment, script, shell, tree

WAIT = 60.0


def start(folder):
    """The run in a session of its own."""
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [script(), *RUN], cwd=folder, env=environment(), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def until(what, run=None):
    """The first true value of ``what()``; the run must not end before."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if found := what():
            return found
        assert run is None or run.poll() is None, "the run has ended"
        time.sleep(0.005)
    raise AssertionError("nothing happened")


def session(leader):
    """{pid: parent} of the live processes of a session."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, parent, _, owner = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(owner) == leader and state != "Z":
                found[int(entry.name)] = int(parent)
    return found


def worker(leader):
    """The process that a stage runs in: forked by the server, which the run has started."""
    processes = session(leader)
    return next((p for p, parent in processes.items() if processes.get(parent) == leader), None)


def kill_run(run):
    """The program itself; its children must end without it."""
    run.kill()
    run.wait()
    until(lambda: not session(run.pid))


def kill_stage(run):
    """The process of the stage alone; the program says what happened, and that it can be resumed."""
    os.kill(until(lambda: worker(run.pid), run), signal.SIGKILL)
    assert run.wait(WAIT) == 3


def test_killed_in_each_stage_it_ends_as_if_it_were_not(place, undisturbed):
    folder = place("killed")
    cache = folder / ".prune"
    for stage, kill in zip(STAGES, [kill_run, kill_stage] * 3, strict=True):
        run = start(folder)
        until(lambda stage=stage: list(cache.glob(f".{stage}-*.part")), run)
        kill(run)
        assert not (folder / "out").exists()
        assert not [p for p in cache.glob(f"{stage}-*") if p.is_dir()]
        if kill is kill_stage:
            said = (folder / "log").read_text().splitlines()[-1]
            assert f"stage {stage}" in said and "same command again" in said
    ended = shell(folder, *RUN)
    assert ended.code == 0, ended.err
    assert tree(folder / "out") == tree(undisturbed / "out")
    assert not list(cache.glob(".*.part")) and not list(folder.glob(".out*"))
    answers = [p.read_text().splitlines() for p in (cache / "answers").rglob("*.jsonl")]
    assert [len(lines) for lines in answers] == [60]
