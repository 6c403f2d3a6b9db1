"""Selectors and modes of the fold next to published ways of narrowing, at equal parameters.

    python tests/bench/fold.py MODEL DATA OUT --widths 0.5,0.25,0.75 --tokens 20480

MODEL is a model folder of the Llama kind; DATA prompts or a finalized set, as ``prune data=`` takes it. No
codec, no heal, no finetuning. NLL and KL to the source are in nats per answer token of the test records, with
95 % intervals from a bootstrap over records. All that is made lies in OUT; a cell with a line in
OUT/results.jsonl is not computed again.
It wants ``pip install psutil torch-pruning``.
"""

import argparse
import itertools
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import psutil
from peers import PEERS
from streaming import watch

from prune.nn.bootstrap import Scores, delta_interval

BASE = "importance, oneshot"  #: what the others are compared with
HEAD = ("", "parameters", "NLL", "rise (95 %)", "KL (95 %)", f"KL / {BASE}", "illuminate s", "s", "peak GB")


class Bench:
    """The cells of one model and one set of answers, each computed once."""

    def __init__(self, asked):
        self.asked, self.out = asked, asked.out
        self.out.mkdir(parents=True, exist_ok=True)
        self._results = self.out / "results.jsonl"
        lines = self._results.read_text().splitlines() if self._results.exists() else []
        self.known = {line["cell"]: line for line in map(json.loads, lines)}
        self.full = json.loads((asked.model / "config.json").read_text())["intermediate_size"]

    def once(self, cell, compute, *arguments):
        """A cell's line: the one on disk, or computed and written."""
        if cell not in self.known:
            print(cell, flush=True)
            self.known[cell] = {"cell": cell, **compute(*arguments)}
            with self._results.open("a") as file:
                file.write(json.dumps(self.known[cell]) + "\n")
        return self.known[cell]

    def stage(self, until, *choices):
        """Run ``prune`` up to a stage; its folder, the seconds it took when it ran, its peak memory."""
        cache, asked = self.out / ".prune", self.asked
        command = ["prune", f"source={asked.model}", f"data={asked.data}", f"cache={cache}", f"until={until}"]
        calibrated = [f"illuminate.tokens={asked.tokens}", f"plan.align={asked.align}", "codec=none"]
        with (self.out / "log.txt").open("a") as log:
            process = subprocess.Popen(
                [*command, *calibrated, *(choices or ["ffn=1.0"]), *asked.set], stdout=log, stderr=log
            )
            peaks = {}
            watcher = threading.Thread(target=watch, args=(psutil.Process(process.pid), peaks, cache))
            watcher.start()
            if process.wait():
                sys.exit(f"prune until={until} failed: see {log.name}")
            watcher.join()
        folder, seconds = _told(cache / "runs", until)
        return {"folder": str(cache / folder), "seconds": seconds, "peak": peaks.get(until)}

    def compare(self, *how):
        """Run compare.py, which prints the line."""
        answers = Path(self.once("prepare", self.stage, "prepare")["folder"]) / "answers"
        paths = [self.asked.model, answers, self.out / "source.safetensors"]
        command = [sys.executable, Path(__file__).with_name("compare.py"), *paths, *how]
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    def fold(self, width, selector, mode):
        """Plan and fold by ``prune``, then compare."""
        illuminate = self.once("illuminate", self.stage, "illuminate")
        choices = (f"ffn={self.neurons(width)}", f"selector={selector}")
        plan = self.once(f"{width} {selector}, plan", self.stage, "plan", *choices)
        fold = self.stage("fold", *choices, f"fold.mode={mode}")
        found = self.compare("--folder", Path(fold["folder"]) / "weights")
        peaks = [s["peak"] for s in (illuminate, plan, fold) if s["peak"]]
        cost = {"seconds": plan["seconds"] + fold["seconds"], "peak": max(peaks, default=None)}
        return {**found, **cost, "illuminate": illuminate["seconds"]}

    def peer(self, width, name):
        return self.compare("--peer", name, "--neurons", self.neurons(width), "--tokens", self.asked.tokens)

    def neurons(self, width):
        return int(width * self.full / self.asked.align + 1e-9) * self.asked.align

    def table(self, width):
        """The cells of one width as Markdown, the lowest KL first."""
        cells = [(*cell.partition(" ")[::2], row) for cell, row in self.known.items()]
        rows = {name: row for at, name, row in cells if at == width and "kl" in row}
        ordered = sorted(rows, key=lambda name: sum(rows[name]["kl"]))
        lines = [_row(name, rows[name], self.known["source"], rows.get(BASE)) for name in ordered]
        source = ("the source", *_figures(self.known["source"]), *[""] * 6)
        return "\n".join(f"| {' | '.join(line)} |" for line in (HEAD, ["---"] * len(HEAD), source, *lines))


def _told(runs, stage):
    """A stage's folder in the newest run, and its seconds in whichever run computed it."""
    journals = sorted(runs.glob("*/JOURNAL.md"), key=lambda p: p.stat().st_mtime)
    folder = re.search(rf"\*\*{stage}\*\* .*\(`(\S+)`\)", journals[-1].read_text()).group(1)
    pattern = re.compile(rf"\*\*{stage}\*\* ([\d.]+) s \(`{folder}`\)")
    return folder, float(next(m for j in journals if (m := pattern.search(j.read_text()))).group(1))


def _figures(row):
    nll = sum(row["nll"]) / sum(row["tokens"])
    return f"{row['parameters'] / 1e6:.1f} M", f"{nll:.4f}"


def _row(name, row, source, base):
    records = range(len(row["tokens"]))
    scores = {key: Scores(row[key], row["tokens"], list(map(str, records))) for key in ("nll", "kl")}
    was = {"nll": source["nll"], "kl": [0.0 for _ in records]}
    rise, kl = (
        delta_interval(scores[key], Scores(was[key], row["tokens"], scores[key].prompts)) for key in was
    )
    shares = f"{kl.mean * sum(base['tokens']) / sum(base['kl']):.2f}" if base else ""
    times = [f"{row['illuminate']:.0f}" if "illuminate" in row else "", f"{row['seconds']:.0f}"]
    peak = f"{row['peak']:.1f}" if row["peak"] else ""
    return (name, *_figures(row), _interval(rise), _interval(kl), shares, *times, peak)


def _interval(found):
    return f"{found.mean:.4f} ({found.low:.4f} to {found.high:.4f})"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    listed = lambda text: [part for part in text.split(",") if part]  # noqa: E731
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--widths", type=listed, default=["0.75", "0.5", "0.25"], help="fractions of the FFN")
    parser.add_argument("--selectors", type=listed, default=["importance", "greedy", "obs"])
    parser.add_argument("--modes", type=listed, default=["oneshot", "sequential"])
    parser.add_argument("--peers", type=listed, default=["all"], help=", ".join(PEERS))
    parser.add_argument("--tokens", type=int, default=20480, help="that calibrate")
    parser.add_argument("--align", type=int, default=64, help="widths are multiples of it")
    parser.add_argument("--set", nargs="*", default=[], help="options of prune, as teacher.batch=64")
    parser.add_argument("--print", action="store_true", help="the tables of what is done, nothing more")
    asked = parser.parse_args()
    asked.peers = list(PEERS) if asked.peers == ["all"] else asked.peers
    return asked


def main():
    bench = Bench(arguments())
    asked = bench.asked
    if not asked.print:
        bench.once("source", bench.compare, "--folder", asked.model)
        for width in asked.widths:
            for name in asked.peers:
                bench.once(f"{width} {name}", bench.peer, float(width), name)
            for mode, selector in itertools.product(asked.modes, asked.selectors):
                bench.once(f"{width} {selector}, {mode}", bench.fold, float(width), selector, mode)
    for width in asked.widths:
        print(f"\nwidth {width}\n\n{bench.table(width)}")


if __name__ == "__main__":
    main()
