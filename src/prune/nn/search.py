"""The inverse question: the narrowest fold whose val NLL rises by no more than a bound."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from prune.arithmetic import parse_rise
from prune.parts import Workbench

from .folding import Evidence, fold
from .layout import Site
from .nll import mean, score
from .open import open_model
from .planning import Planner


class Search:
    """Bisects over the totals of a plan; each trial folds the whole model and scores val.

    :param orders: the selector's, int64 [F] a layer.
    :param options: the plan's: ``target``, and what a fold and its opening take.
    """

    def __init__(
        self,
        bench: Workbench,
        planner: Planner,
        orders: Sequence[Tensor],
        evidence: Evidence,
        options: Mapping[str, Any],
    ) -> None:
        self.bench, self.planner, self.orders = bench, planner, orders
        self.evidence, self.options = evidence, options
        self._log = bench.kept / "trials.json"
        self._nll: dict[str, float] = json.loads(self._log.read_text()) if self._log.is_file() else {}

    def run(self) -> tuple[list[int], dict[str, Any]]:
        """The widths found, and the record of every trial."""
        totals = self.planner.totals_in_reach
        source = self._known("source", lambda: self._score(self.bench.model))
        number, relative = parse_rise(self.options["target"]["max_nll_rise"])
        bound = number * source if relative else number
        best = narrowest(totals, lambda total: self._trial(total) - source <= bound)
        trials = [
            {"neurons": t, "nll": nll, "rise": nll - source, "within": nll - source <= bound}
            for t in totals
            if (nll := self._nll.get(str(t))) is not None
        ]
        return self.planner.widths(best), {"source_nll": source, "bound": bound, "trials": trials}

    def _trial(self, total: int) -> float:
        return self._known(str(total), lambda: self._fold_and_score(self.planner.widths(total)))

    def _known(self, name: str, measure: Callable[[], float]) -> float:
        """What an earlier run measured, or what is measured now and noted at once."""
        if name not in self._nll:
            self._nll[name] = measure()
            part = self._log.with_suffix(".part")
            part.write_text(json.dumps(self._nll))
            part.replace(self._log)
        return self._nll[name]

    def _fold_and_score(self, widths: Sequence[int]) -> float:
        out = self.bench.scratch / "trial"
        label = f"{sum(widths):,} neurons"
        fold(
            self.bench.model,
            keep_sets(self.bench.model.sites, self.orders, widths),
            self.evidence,
            out,
            self.options,
            lambda done, count: self.bench.progress(done, count, trial=label),
        )
        found = self._score(open_model(out, self.options))
        shutil.rmtree(out)
        self.bench.notice(f"search: {label} give a val NLL of {found:.4f}")
        return found

    def _score(self, model: Any) -> float:
        bench = self.bench
        return mean(score(model, bench.val, window=bench.window, budget=bench.budget, scratch=bench.scratch))


def narrowest(totals: Sequence[int], fits: Callable[[int], bool]) -> int:
    """The least total that fits where the one below it does not; the last, the source itself, always fits.

    :param totals: ascending.
    """
    below, best = -1, len(totals) - 1
    while best - below > 1:
        middle = (below + best) // 2
        below, best = (below, middle) if fits(totals[middle]) else (middle, best)
    return totals[best]


def keep_sets(sites: Sequence[Site], orders: Sequence[Tensor], widths: Sequence[int]) -> dict[str, Tensor]:
    """Site -> its kept neurons, ascending."""
    kept = zip(sites, orders, widths, strict=True)
    return {site.name: order[:width].sort().values for site, order, width in kept}
