"""Runs the real product as a person would, and looks at what it says and what it leaves on disk."""

import hashlib
import os
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

LINE = 300  #: characters of an error line at most


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def error(self):
        """The one line that a refused run may print."""
        lines = self.err.splitlines()
        assert len(lines) == 1, f"one line on stderr, not {len(lines)}:\n{self.err}"
        assert lines[0].startswith("prune: ") and len(lines[0]) <= LINE, lines[0]
        return lines[0]


def script():
    """The installed console script."""
    return str(Path(sysconfig.get_path("scripts")) / "prune")


def environment(**more):
    """That of a person at a shell."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "200", **more}


def shell(folder, *argv, timeout=120, **how):
    """``prune`` in a process of its own, in ``folder``."""
    how = {"stdin": subprocess.DEVNULL, "env": environment(), **how}
    began = time.monotonic()
    done = subprocess.run(
        [script(), *argv], cwd=folder, capture_output=True, text=True, timeout=timeout, **how
    )
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


class InProcess:
    """``prune`` in this process, which has torch imported already: the same code from ``main`` on."""

    def __init__(self, capture, patch):
        self._capture, self._patch = capture, patch

    def __call__(self, *argv):
        from prune import cli, sweep

        self._patch.setattr(sys, "argv", ["prune", *argv, "isolate=false", "threads=1"])
        self._patch.setattr(sweep.Summary, "exit_code", 0)
        self._capture.readouterr()
        handler, began = signal.getsignal(signal.SIGTERM), time.monotonic()
        try:
            cli.main()
        except SystemExit as e:
            code = e.code
        finally:
            signal.signal(signal.SIGTERM, handler)
        seen = self._capture.readouterr()
        return Ended(code, seen.out, seen.err, time.monotonic() - began)


def tree(folder):
    """{relative name: sha256, or ``folder``} of everything below a folder."""
    kind = lambda p: hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "folder"  # noqa: E731
    return {p.relative_to(folder).as_posix(): kind(p) for p in sorted(folder.rglob("*"))}


def contents(folder):
    """{relative name: content} of every file below a folder."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def tensors(folder):
    """Every tensor of a model folder by its name on disk."""
    from safetensors.torch import load_file

    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        part = load_file(path)
        assert not found.keys() & part.keys()
        found |= part
    return found


def plain(folder):
    """The model as anybody loads it with transformers; no key may be missing, left over or misshapen."""
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True, output_loading_info=True
    )
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model.eval()


def logits(model, rows=3, length=24):
    """Logits of fixed random tokens, float32 [rows, length, V]."""
    import torch

    ids = torch.randint(1, 257, (rows, length), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        return model(input_ids=ids).logits.float()


def step(cache, stage):
    """The only finished step of a stage in a cache."""
    (found,) = [p for p in cache.glob(f"{stage}-*") if p.is_dir()]
    return found


#: A run over the toy stages of ``prune_toys``.
TOY_STAGES = ("stages=[take,cut,score]", "teacher=toy")

#: A whole run on the taught model, every stage of it.
RUN = (
    "source=task",
    "data=t.jsonl",
    "output=out",
    "ffn=0.75",
    "codec=q8",
    "teacher.max_tokens=24",
    "threads=1",
)
STAGES = ("prepare", "illuminate", "plan", "fold", "quant", "eval")


def did(ended):
    """{stage: ``cached`` or seconds} as a run tells it."""
    found = {}
    for words in map(str.split, ended.err.splitlines()):
        if words[0] in STAGES and (words[1:] == ["cached"] or words[2:] == ["s"]):
            found[words[0]] = words[1]
    return found


def nll(folder, records):
    """Nats a generated token, in plain transformers, one record at a time."""
    import torch

    model, total, count = plain(folder), 0.0, 0
    for record in records:
        ids = torch.tensor([list(record.ids)])
        labels = ids.clone()
        labels[:, : record.n_prompt] = -100
        counted = len(record.ids) - record.n_prompt
        with torch.inference_mode():
            total += counted * float(model(input_ids=ids, labels=labels).loss)
        count += counted
    return total / count
