"""What narrowing one layer alone costs in KL divergence to the source, measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from prune.parts import Workbench

from .divergence import divergence
from .layout import Site
from .narrow import folded
from .oneshot import OneShotFold
from .walk import Stream, push_all
from .windows import Text, batched, first


def sensitivity_costs(
    bench: Workbench,
    orders: Sequence[Tensor],
    stops: Sequence[Sequence[int]],
    shares: Sequence[float],
    tokens: int,
    ridge: float,
) -> list[Sequence[float]]:
    """The KL divergence to the source when a layer alone is narrowed, nats a counted token, at every stop.

    Each layer is folded by itself at the stops nearest to ``shares`` of its width, the rest is walked, and
    straight lines go between. FLOPs: half a forward pass over the tokens for each layer and share.
    """
    texts = first(bench.val, tokens)
    tried = [_nearest(widths, shares) for widths in stops]
    log = _Log(bench.kept / "sensitivity.jsonl")
    if any((i, w) not in log.found for i, widths in enumerate(tried) for w in widths):
        _measure(bench, texts, orders, tried, ridge, log)
    return [
        _between(widths, {w: log.found[i, w] for w in measured} | {widths[-1]: 0.0})
        for i, (widths, measured) in enumerate(zip(stops, tried, strict=True))
    ]


def _measure(
    bench: Workbench,
    texts: Sequence[Text],
    orders: Sequence[Tensor],
    tried: Sequence[Sequence[int]],
    ridge: float,
    log: _Log,
) -> None:
    """One layer at one width at a time; what the log holds already is not measured again."""
    model, fold = bench.model, OneShotFold(bench.grams)
    base = Stream(model, batched(texts, bench.window, 4096), bench.budget, bench.scratch)
    final = base.fork()
    push_all(final)
    counted = sum(t.stop - t.start for t in texts)
    total, done = sum(map(len, tried)), 0
    for site in model.sites:
        for width in tried[site.layer]:
            if (site.layer, width) not in log.found:
                keep = orders[site.layer][:width].sort().values
                kl = _one(base, final, texts, site, keep, fold, ridge)
                log.add(site.layer, width, kl / max(1, counted))
            done += 1
            bench.progress(done, total, layer=site.layer)
        with model.loaded(model.layer_names(site.layer)):
            for b in range(len(base.batches)):
                base.push(site.layer, b)
    base.close()
    final.close()


def _one(
    base: Stream,
    final: Stream,
    texts: Sequence[Text],
    site: Site,
    keep: Tensor,
    fold: OneShotFold,
    ridge: float,
) -> float:
    """The summed KL divergence when one site is folded to ``keep``; ``base`` stands before its layer."""
    model, other = base.model, base.fork()
    weight = model.read_out(site)
    refit, _, shift = fold.refit(site, weight, keep, [ridge], "on")
    for i in range(site.layer, len(model.layers)):
        with model.loaded(model.layer_names(i)):
            if i == site.layer:
                with folded(model, site, weight, keep, refit.correction, shift):
                    _push(other, i)
            else:
                _push(other, i)
    lost = sum(divergence(final, other, texts))
    other.close()
    return lost


def _push(stream: Stream, layer: int) -> None:
    for b in range(len(stream.batches)):
        stream.push(layer, b)


def _nearest(stops: Sequence[int], shares: Sequence[float]) -> list[int]:
    """The stops nearest to shares of the full width, the narrowest always, the full one never."""
    if len(stops) == 1:
        return []
    near = {min(stops[:-1], key=lambda w: abs(w - share * stops[-1])) for share in shares}
    return sorted(near | {stops[0]})


def _between(stops: Sequence[int], known: dict[int, float]) -> list[float]:
    """Straight lines through the known stops, the ends among them; never rising with the width."""
    import numpy as np

    widths = sorted(known)
    costs = np.maximum.accumulate([max(0.0, known[w]) for w in reversed(widths)])[::-1]
    return [float(c) for c in np.interp(stops, widths, costs)]


class _Log:
    """What was measured so far, a line each; a torn last line is measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[tuple[int, int], float] = {}
        text = path.read_text() if path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        for row in map(json.loads, whole.splitlines()):
            self.found[row["layer"], row["width"]] = row["kl"]

    def add(self, layer: int, width: int, kl: float) -> None:
        self.found[layer, width] = kl
        with self.path.open("a") as f:
            f.write(json.dumps({"layer": layer, "width": width, "kl": kl}) + "\n")
