"""The streaming walk against a plain forward pass over the same windows, everything resident.

    python tests/bench/walk.py MODEL --windows 8 --tokens 512

Prints seconds of each (least of three, taken alternately) and their ratio; then illuminate's Gram on top.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from prune.nn.gram import layer_gram
from prune.nn.model import LazyModel
from prune.nn.walk import Stream, push_all
from prune.nn.windows import batches, cut


def plain(model, groups):
    with torch.inference_mode():
        for batch in groups:
            model.base_model(input_ids=batch.ids, use_cache=False)


def walked(lazy, groups, scratch):
    stream = Stream(lazy, groups, 1 << 40, scratch)
    push_all(stream)


def illuminated(lazy, groups, scratch):
    stream = Stream(lazy, groups, 1 << 40, scratch)
    for i, _ in stream.layers():
        layer_gram(stream, i, range(len(groups))).finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512, help="of a window")
    options = parser.parse_args()
    count, length = options.windows, options.tokens
    lazy = LazyModel(options.model)
    model = lazy.pin()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, lazy.config.vocab_size, (count, length), generator=generator).tolist()
    windows = [w for i, row in enumerate(ids) for w in cut(i, row, 2048)]
    groups = batches(windows, 4096)
    best = {}
    with tempfile.TemporaryDirectory() as scratch:
        runs = {
            "plain forward": lambda: plain(model, groups),
            "walk": lambda: walked(lazy, groups, Path(scratch)),
            "walk + Gram": lambda: illuminated(lazy, groups, Path(scratch)),
        }
        for _ in range(3):
            for name, run in runs.items():
                begin = time.perf_counter()
                run()
                best[name] = min(best.get(name, 1e9), time.perf_counter() - begin)
    for name, seconds in best.items():
        ratio = seconds / best["plain forward"]
        print(f"{name:14s} {seconds:7.2f} s  {ratio:.2f} x  {count * length / seconds:,.0f} tokens/s")


if __name__ == "__main__":
    main()
