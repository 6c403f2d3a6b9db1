"""The streaming walk against a plain forward pass over the same windows, everything resident.

    python tests/bench/walk.py MODEL [windows] [tokens]

Prints seconds of each (least of three, taken alternately) and their ratio; then illuminate's Gram on top.
"""

import sys
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
    folder, count, length = Path(sys.argv[1]), int((sys.argv + [0, 8])[2] or 8), int((sys.argv + [0, 0, 512])[3] or 512)
    lazy = LazyModel(folder)
    model = lazy.pin()
    generator = torch.Generator().manual_seed(0)
    vocab = lazy.config.vocab_size
    windows = [w for i in range(count) for w in cut(i, torch.randint(0, vocab, (length,), generator=generator).tolist(), 2048)]
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
        print(f"{name:14s} {seconds:7.2f} s  {seconds / best['plain forward']:.2f} x  {count * length / seconds:,.0f} tokens/s")


if __name__ == "__main__":
    main()
