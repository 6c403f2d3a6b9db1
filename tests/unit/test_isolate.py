import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prune import failure
from prune.errors import GateFailed, StageError
from prune.isolate import Crash, call


def add(a, b):
    return a + b


def ids(send):
    send("notice", "begun")
    for i in range(2000):
        send("progress", (i, 1999, {}))
    return os.getpid(), os.getppid(), os.environ.get("TOY_NEW"), str(Path.cwd())


def fail(how):
    if how == "ours":
        raise GateFailed("too high")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit":
        os._exit(7)
    raise OSError(errno.ENOSPC, "No space left on device", "x.safetensors")


def threads():
    import torch

    return torch.get_num_threads(), torch.initial_seed()


def test_a_result_comes_back_from_another_process():
    assert call("it", add, 2, 3) == 5


def test_messages_come_while_it_runs_and_progress_is_throttled(monkeypatch, tmp_path):
    monkeypatch.setenv("TOY_NEW", "yes")
    monkeypatch.chdir(tmp_path)
    seen = []
    pid, parent, env, _ = call("it", ids, on_message=lambda *m: seen.append(m))
    assert pid != os.getpid() and parent != os.getpid() and env == "yes"
    assert seen[0] == ("notice", "begun")
    progress = [payload for kind, payload in seen if kind == "progress"]
    assert progress[-1] == (1999, 1999, {}) and len(progress) < 50


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ("ours", GateFailed, "too high"),
        ("kill", StageError, r"^it was killed \(out of memory\?\); type the same command again"),
        ("segv", StageError, r"crashed \(SIGSEGV\)"),
        ("exit", StageError, r"without a result \(exit code 7\)"),
        ("full", Crash, "OSError.*No space"),
    ],
)
def test_how_it_ends_otherwise(how, error, says):
    with pytest.raises(error, match=says):
        call("it", fail, how)


@pytest.mark.parametrize("isolated", [True, False])
def test_an_unforeseen_exception_tells_where_it_came_from(isolated):
    with pytest.raises(Crash) as caught:
        call("it", fail, "full", isolated=isolated)
    crash = caught.value
    assert (crash.kind, crash.errno) == ("OSError", errno.ENOSPC)
    assert any(m.endswith("test_isolate") for m in crash.modules)
    assert "in fail" in crash.text


def test_threads_and_seed_are_set_in_the_child():
    assert call("it", threads, threads=1, seed=7) == (1, 7)


def test_what_fails_is_told_apart():
    def of(**more):
        fields = {"kind": "X", "message": "m", "errno": None, "modules": (), "text": ""} | more
        return failure.of("fold", Crash(**fields))

    assert "no space left" in str(of(kind="OSError", errno=errno.ENOSPC))
    assert "no space left" in str(of(kind="SafetensorError", message="Error: I/O error: (os error 28)"))
    assert "disk quota" in str(of(errno=errno.EDQUOT))
    assert "out of memory" in str(of(kind="OutOfMemoryError"))
    assert "out of memory" in str(
        of(kind="RuntimeError", message="DefaultCPUAllocator: can't allocate memory")
    )
    assert isinstance(of(), Crash) and str(of()) == "stage fold: X: m"


def hanging(environment, inputs, **more):
    """``prune`` with a stage that hangs, and the pid of that stage's process."""
    argv = ["source=m", "data=p.jsonl", "output=out", "stages=[take,cut,score]", "teacher=toy"]
    pid = inputs / "pid"
    done = subprocess.Popen(
        [sys.executable, "-c", "from prune.cli import main; main()", *argv],
        env=environment | {"TOY_FAIL": "cut:hang", "TOY_PID": str(pid)},
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **more,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert done.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    return done, int(pid.read_text())


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone_within(pid, seconds):
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.parametrize(
    ("sent", "group", "code"),
    [(signal.SIGINT, True, 130), (signal.SIGINT, False, 130), (signal.SIGTERM, False, 143)],
)
def test_d16_a_signal_ends_run_and_child(environment, inputs, sent, group, code):
    done, child = hanging(environment, inputs)
    (os.killpg if group else os.kill)(done.pid, sent)
    began = time.monotonic()
    _, err = done.communicate(timeout=20)
    assert done.returncode == code and time.monotonic() - began < 5
    assert gone_within(child, 1)
    assert err.splitlines()[-1].endswith("type the same command again to resume")
    assert "Traceback" not in err


def test_d16_the_child_dies_with_a_killed_run(environment, inputs):
    done, child = hanging(environment, inputs)
    done.kill()
    done.wait()
    assert gone_within(child, 2)
    done.stderr.close()


def test_d17_a_second_run_to_one_output_is_busy(environment, inputs, toy_run):
    done, _ = hanging(environment, inputs)
    began = time.monotonic()
    second = toy_run("cache=other")
    assert second.returncode == 6 and "another run is publishing" in second.stderr
    assert time.monotonic() - began < 10
    assert not (inputs / "other").exists()
    done.kill()
    done.communicate()
    assert toy_run().returncode == 0  # no lock needs a hand
