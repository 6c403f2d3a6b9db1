"""Runs a call in a child process of its own: a clean device context, memory given back, a kill contained.

The child is forked from a server that has torch imported and no device touched; it never outlives its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from multiprocessing.forkserver import ensure_running
from typing import Any

from . import errors
from .errors import PruneError, StageError

#: What takes long to import, absent ones are skipped; ``transformers`` alone is lazy and would load nothing.
PRELOAD = ["prune.cli", "torch", "transformers.modeling_layers", "prune.nn.model"]
INTERVAL = 0.1  #: seconds between two progress messages
#: Set before the server starts. PASSIVE: idle OpenMP threads that spin slow everything beside them.
ENVIRONMENT = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # the server stays free of CUDA
    "OMP_WAIT_POLICY": "PASSIVE",
    # glibc raises its mmap threshold to 32 MiB by itself: matrices below that then leave holes in the heap,
    # which grew by 35 MB a layer of a large model
    "MALLOC_MMAP_THRESHOLD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",  # a stage has a live line of its own
}

Send = Callable[[str, Any], None]  #: ``send(kind, payload)``, to the process that called


class Crash(Exception):
    """An exception that nobody foresaw, with what is needed to say whose it is.

    ``kind`` is its class, ``modules`` those its traceback passes through, ``text`` the traceback.
    """

    def __init__(
        self, kind: str, message: str, errno: int | None, modules: tuple[str, ...], text: str
    ) -> None:
        super().__init__(kind, message, errno, modules, text)
        self.kind, self.message, self.errno, self.modules, self.text = kind, message, errno, modules, text

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind

    @classmethod
    def of(cls, error: BaseException) -> Crash:
        frames = traceback.walk_tb(error.__traceback__)
        modules = tuple(dict.fromkeys(str(f.f_globals.get("__name__")) for f, _ in frames))
        text = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, str(error), getattr(error, "errno", None), modules, text)


def call(
    name: str,
    fn: Callable[..., Any],
    *args: Any,
    on_message: Callable[[str, Any], None] | None = None,
    isolated: bool = True,
    threads: int = 0,
    seed: int = 0,
) -> Any:
    """``fn(*args)``, with ``send`` as a last argument where ``on_message`` listens.

    :param name: what an error line calls it: ``stage fold``.
    :param threads: CPU threads of torch, 0 = its own choice.
    :raises PruneError: as ``fn`` raised it; :class:`StageError` where the child was killed.
    :raises Crash: for every other exception of ``fn``.
    """
    if not isolated:
        return _here(fn, args, on_message, threads, seed)
    context = _context()
    ours, theirs = context.Pipe()
    listening = on_message is not None
    child = context.Process(
        target=_serve, args=(theirs, dict(os.environ), fn, args, listening, threads, seed)
    )
    child.start()
    theirs.close()
    try:
        return _listen(name, child, ours, on_message)
    finally:  # also on Ctrl-C: all that a stage leaves is fit to be killed at any point
        child.kill()
        child.join()
        ours.close()


def _context() -> Any:
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    # the default, not only this context: a joblib worker's own default is unknown to the child
    multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context()
    context.set_forkserver_preload(PRELOAD)
    mask = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT}
    )  # Ctrl-C must not print the server's traceback
    ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return context


def _here(fn: Callable[..., Any], args: tuple[Any, ...], on_message: Any, threads: int, seed: int) -> Any:
    try:
        _prepare(threads, seed)
        return fn(*args, on_message) if on_message else fn(*args)
    except PruneError:
        raise
    except Exception as e:
        raise Crash.of(e) from e


def _listen(name: str, child: Any, pipe: Connection, on_message: Any) -> Any:
    while True:
        wait([pipe, child.sentinel])
        kind, payload = _next(pipe)
        if kind == "result":
            return payload
        if kind == "raised":
            raise _rebuilt(*payload)
        if kind == "gone":
            child.join()
            raise StageError(f"{name} {_death(child.exitcode)}; type the same command again to resume")
        on_message(kind, payload)


def _next(pipe: Connection) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = pipe.recv() if pipe.poll() else ("gone", None)
    except (EOFError, ConnectionResetError):
        return "gone", None
    return message


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed (out of memory?)"
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return f"ended without a result (exit code {code})"


def _serve(
    pipe: Connection, env: Mapping[str, str], fn: Any, args: Any, listening: bool, threads: int, seed: int
) -> None:
    """The child's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it too, and ends this process
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ.clear()  # the server's, not the caller's
    os.environ.update(env)
    try:
        _prepare(threads, seed)
        result = fn(*args, *([_throttled(pipe)] if listening else []))
        pipe.send(("result", result))
    except BaseException as e:
        pipe.send(("raised", _portable(e)))
    pipe.close()
    sys.stdout.flush()
    sys.stderr.flush()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _prepare(threads: int, seed: int) -> None:
    import random

    random.seed(seed)
    if find_spec("torch"):
        import numpy
        import torch

        numpy.random.seed(seed)
        torch.manual_seed(seed)
        if threads:
            torch.set_num_threads(threads)


def _throttled(pipe: Connection) -> Send:
    """Sends all but progress that comes too fast; the last of a count and a new figure always go."""
    last, figures = float("-inf"), set[str]()

    def send(kind: str, payload: Any) -> None:
        nonlocal last, figures
        if kind == "progress":
            done, total, metrics = payload
            now = time.monotonic()
            if now - last < INTERVAL and done < total and metrics.keys() <= figures:
                return
            last, figures = now, set(metrics)
        pipe.send((kind, payload))

    return send


def _portable(error: BaseException) -> tuple[str, str, tuple[Any, ...]]:
    """An exception as plain values: a class of ours by name, or the fields of a :class:`Crash`."""
    ours = next((c for c in type(error).__mro__ if c.__module__ == errors.__name__), None)
    return (
        (errors.__name__, ours.__name__, (str(error),)) if ours else (__name__, "Crash", Crash.of(error).args)
    )


def _rebuilt(module: str, name: str, args: tuple[Any, ...]) -> Exception:
    error = getattr(import_module(module), name)(*args)
    assert isinstance(error, Exception)
    return error
