"""The output of a run: made complete beside its place, then renamed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import cache, identity
from .errors import UsageError
from .identity import Hashes
from .wire import Wiring


def inputs(wiring: Wiring) -> dict[str, str]:
    """What an output is made of: the keys of its weights and its report."""
    made = {a: wiring.artifacts.get(a) for a in ("weights", "report")}
    return {a: versions[-1].key for a, versions in made.items() if versions}


def holds(output: Path, wiring: Wiring, hashes: Hashes) -> bool:
    """Whether ``output`` already is, complete, what this run would publish."""
    manifest = cache.read(output)
    return bool(
        manifest and manifest.get("inputs") == inputs(wiring) and cache.intact(output, manifest, hashes)
    )


def refuse_overlap(output: Path, wiring: Wiring, kept: Path) -> None:
    """:raises UsageError: where the output would replace what the run reads, or the cache (``kept``)."""
    given = {a: v[0].path for a in ("source", "data") if (v := wiring.artifacts.get(a))}
    for key, path in {**given, "cache": kept}.items():
        if path.resolve().is_relative_to(output.resolve()):
            raise UsageError(f"output={output}: {key}={path} lies there; choose another output")


def rejected(output: Path) -> Path:
    """Where a model that a gate refused is kept, if at all."""
    return output.with_name(f"{output.name}.rejected")


def refuse_existing(output: Path, overwrite: bool) -> None:
    """:raises UsageError: where there is something that this run may not replace."""
    if not output.exists() and not output.is_symlink():
        return
    if output.is_symlink() or not output.is_dir():
        raise UsageError(f"output={output}: exists and is no folder; choose another output")
    if not overwrite and any(output.iterdir()):
        raise UsageError(f"output={output}: exists and holds something else; overwrite=true replaces it")


def write(output: Path, wiring: Wiring, facts: Mapping[str, Any], hashes: Hashes) -> None:
    """Copy the latest weights and the report into ``output``; an older one stays whole until then."""

    def fill(scratch: Path) -> dict[str, Any]:
        for name, path in sorted(_contents(wiring).items()):
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, scratch / name)
        return {"inputs": inputs(wiring), "facts": facts}

    manifest = cache.commit(output, fill)
    cache.learn(output, manifest, hashes)


def _contents(wiring: Wiring) -> dict[str, Path]:
    """{name in the output: file}; the report's files win, as its README.md is the model card."""
    weights = wiring.artifacts["weights"][-1].path
    paths = {p.relative_to(weights).as_posix(): p for p in _of_weights(wiring, weights)}
    report = wiring.artifacts.get("report")
    if report:
        folder = report[-1].path
        paths |= {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    return paths


def _of_weights(wiring: Wiring, folder: Path) -> list[Path]:
    """All files of a step's folder; of a source that no stage touched, only those of a model."""
    if wiring.writer("weights") is None:
        return identity.model_files(folder)
    return [p for p in folder.rglob("*") if p.is_file()]
