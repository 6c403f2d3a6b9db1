"""What is known before any work: is the source sound, does the data read, what will come out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import locate
from .errors import PruneError, UsageError
from .findings import Finding
from .parts import build

if TYPE_CHECKING:
    from .nn.model import LazyModel
    from .nn.planning import Planner

#: Files whose ``auto_map`` would have transformers run code out of the folder.
CODE_FILES = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json",
              "image_processor_config.json", "generation_config.json")  # fmt: skip


def inspect(cfg: dict[str, Any], source: Path, data: Path | None) -> dict[str, Any]:
    """Every finding, a text for ``check`` and ``plan_only``. Reads headers and prompts, writes nothing."""
    look = _Look(cfg, source, data)
    look.all()
    return {"findings": look.findings, "text": "\n".join(look.lines)}


class _Look:
    def __init__(self, cfg: Mapping[str, Any], source: Path, data: Path | None) -> None:
        self.cfg, self.source, self.data = cfg, source, data
        self.findings: list[Finding] = []
        self.lines: list[str] = []

    def all(self) -> None:
        """Each check on its own, so that all faults show at once."""
        if self.source.is_file():
            self._try("source", self._gguf)
        elif self._try("source", self._folder) and (model := self._try("source", self._model)):
            self._try("bake", lambda: self._bake(model))
            self._try("plan", lambda: self._forecast(model))
            self._try("eval", lambda: self._memory(model))
        if self.data is not None:
            self._try("data", self._data)
        self._try("heal", self._heal)
        for folder in self._folders("teacher.model", [self.cfg["teacher"].get("model")]):
            self._try("teacher.model", functools.partial(self._teacher, folder))
        for folder in self._folders("eval.compare", self.cfg["eval"]["compare"]):
            self._try("eval.compare", functools.partial(_comparable, folder))

    def _folders(self, key: str, given: Sequence[str | None]) -> list[Path]:
        """Those of the models beside the source that lie here."""
        found = (locate.find(key, name) for name in given if name)
        return [path for path in found if path is not None]

    def _try(self, where: str, check: Callable[[], Any]) -> Any:
        try:
            return check()
        except PruneError as e:
            self.findings.append(Finding(where, str(e).removeprefix(f"{where}: ")))
            return None

    def _gguf(self) -> None:
        from .nn.gguf_source import bits_per_weight, check_lossy

        check_lossy(self.source, self.cfg["allow_lossy_source"])
        self.lines.append(f"source: {self.source.name}, {bits_per_weight(self.source):.1f} bits a weight")
        if self.cfg["plan_only"]:
            self.lines.append("a .gguf file is planned after its conversion: run until=convert first")

    def _folder(self) -> bool:
        from .nn.checkpoint import read_json

        refuse_code(self.source)
        if "quantization_config" in read_json(self.source / "config.json"):
            raise UsageError(
                f"{self.source}: the source is quantized already; give the model before quantization"
            )
        return True

    def _model(self) -> LazyModel:
        from .data.render import load_tokenizer
        from .nn.model import LazyModel

        model = LazyModel(self.source)
        load_tokenizer(self.source)
        count = sum(model.model.get_parameter(n).numel() for n in model.names)
        widths = sorted({s.width for s in model.sites})
        experts = sum(s.expert is not None for s in model.sites)
        self.lines.append(
            f"source: {self.source.name}, {model.config.model_type}, {len(model.layers)} layers of hidden "
            f"size {model.sites[0].hidden} and FFN width {'/'.join(map(str, widths))}, "
            f"{f'{experts:,} experts, ' if experts else ''}{count:,} parameters"
        )
        return model

    def _forecast(self, model: LazyModel) -> None:
        """The plan's arithmetic and the exact tensors of the output: a save that cannot work fails here."""
        from .nn.forecast import forecast
        from .nn.planning import Planner

        codec, widths, label = build(self.cfg["codec"]), None, "output"
        before = forecast(model)
        if "plan" in self.cfg["stages"]:
            planner = Planner(model, plan_options(self.cfg))
            planner.check()
            if planner.total is None:
                self.lines.append(_search_line(planner))
                label = "output, if nothing can be cut"
            else:
                kept = planner.widths()
                widths = planner.saved(kept)
                self.lines += list(_plan_lines(planner.totals(kept), kept))
        after = forecast(model, widths, codec)
        self.lines.append(
            f"{label}: {after.parameters:,} parameters, {after.nbytes:,} bytes of weights "
            f"({after.nbytes / before.nbytes:.1%} of the source's {before.nbytes:,})"
        )
        self.lines += [f"codec: {note}" for note in after.notes]

    def _bake(self, model: LazyModel) -> None:
        if "bake" in self.cfg["stages"] and model.layout.mixture:
            raise UsageError(
                "bake trains gates on one FFN a layer, and this is a mixture of experts; leave bake out"
            )

    def _memory(self, model: LazyModel) -> None:
        from .nn.device import pick_device, pick_dtype
        from .nn.open import fits

        model.dtype = pick_dtype(self.cfg["dtype"], pick_device(self.cfg["device"]))
        stages = self.cfg["stages"]
        reached = stages[: stages.index(self.cfg["until"]) + 1] if self.cfg["until"] else stages
        asked = "eval" in reached and self.cfg["eval"]["prompts"] > 0
        if asked and not fits(model, self.cfg["stream"]["resident"]):
            raise UsageError(
                f"answering {self.cfg['eval']['prompts']} test prompts needs the source's weights in memory "
                f"({model.nbytes / 1e9:.1f} GB): give eval.prompts=0, or stream.resident=always"
            )

    def _data(self) -> None:
        from .data.records import is_finalized, read, validate

        assert self.data is not None
        if self.data.is_dir() and is_finalized(self.data):
            from .data.render import load_tokenizer, sample_text, tokenizer_hash

            tokenizer = load_tokenizer(self.source) if self.source.is_dir() else None
            manifest = validate(self.data, tokenizer_hash(tokenizer) if tokenizer else None)
            counts = ", ".join(f"{s} {n['records']}" for s, n in manifest["splits"].items())
            self.lines.append(f"data: finalized, records: {counts}")
            if tokenizer:
                sample = sample_text(read(self.data, "train")[0], tokenizer, self.cfg["loss_on"])
                self.lines.append(f"one record, ⟦what the loss counts⟧:\n{sample}")
            return
        self._prompts()

    def _prompts(self) -> None:
        from .data.prompts import read_prompts
        from .data.render import Renderer, load_tokenizer
        from .data.splits import assign

        assert self.data is not None
        if self.data.is_dir():
            raise UsageError(
                f"{self.data} is a folder without manifest.json; give a .jsonl of prompts or a finalized set"
            )
        file = read_prompts(self.data)
        splits = list(assign(file.prompts).values())
        shares = ", ".join(f"{s} {splits.count(s)}" for s in ("train", "val", "test"))
        self.lines.append(f"data: {len(file.prompts)} prompts ({shares}), not answered yet")
        if self.source.is_dir():
            tokenizer = load_tokenizer(self.source)
            shown = tokenizer.decode(
                Renderer(tokenizer, self.cfg["teacher"].get("think", True)).prompt(file.prompts[0].messages)
            )
            self.lines.append(
                f"the first prompt as the teacher sees it, ⟦where the loss will count⟧:\n{shown}⟦…⟧"
            )

    def _teacher(self, folder: Path) -> None:
        from .data.render import load_tokenizer, same_tokenizer

        refuse_code(folder)
        if self.source.is_dir():
            same_tokenizer(load_tokenizer(self.source), load_tokenizer(folder), folder.name)

    def _heal(self) -> None:
        if "heal" in self.cfg["stages"] and not build(self.cfg["heal"]).idle:
            raise UsageError("this installation trains no heal loss; give heal=none")


def refuse_code(folder: Path) -> None:
    """:raises UsageError: where a model folder wants its own code to be run."""
    from .nn.checkpoint import read_json

    for path in (folder / name for name in CODE_FILES):
        if path.is_file() and "auto_map" in read_json(path):
            raise UsageError(
                f"{path}: auto_map wants to run code of the model folder, which prune never does"
            )


def _comparable(folder: Path) -> None:
    from .nn.model import LazyModel

    refuse_code(folder)
    LazyModel(folder)


def plan_options(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The plan stage's options, as the engine would hand them over."""
    flat = {k: cfg[k] for k in ("ffn", "size", "ratio", "target", "selector", "allocator", "plan", "save")}
    return {**flat, "codec.group": cfg["codec"].get("group")}


def _search_line(planner: Planner) -> str:
    from .nn.planning import asked

    totals = planner.totals_in_reach
    return (
        f"plan: {asked(planner.options)} is found by folding and scoring at most {len(totals).bit_length()} "
        f"of {len(totals)} widths, from {totals[0]:,} to {totals[-1]:,} FFN neurons"
    )


def _plan_lines(totals: Mapping[str, Any], widths: list[int]) -> Iterator[str]:
    share = totals["neurons_after"] / totals["neurons_before"]
    yield (
        f"plan: {totals['asked']} keeps {totals['neurons_after']:,} of {totals['neurons_before']:,} FFN "
        f"neurons ({share:.1%}); widths are multiples of {totals['step']}"
    )
    if "experts_after" in totals:
        yield f"experts: {totals['experts_after']:,} of {totals['experts_before']:,} stay"
        widths = sorted((w for w in widths if w), reverse=True)
    runs: list[tuple[int, int]] = []
    for width in widths:
        if runs and runs[-1][0] == width:
            runs[-1] = (width, runs[-1][1] + 1)
        else:
            runs.append((width, 1))
    yield "widths: " + ", ".join(f"{count} x {width}" if count > 1 else str(width) for width, count in runs)
