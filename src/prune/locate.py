"""Where a source or a data set lies: a path, a file inside an installed package, or a hub id."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from .errors import UsageError

HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
WANTED = ("*.safetensors", "*.json", "tokenizer*", "*.txt", "*.jinja", "*.model")


def absolute(given: str) -> Path:
    """The path as typed, from here; the shell leaves the ``~`` of ``key=~/x`` to us. Links stay links."""
    path = Path(given).expanduser() if given == "~" or given.startswith("~/") else Path(given)
    return Path(os.path.abspath(path))  # noqa: PTH100


def source(given: str) -> Path:
    """A model folder or a .gguf file, absolute.

    :raises UsageError: where there is none, saying what to do.
    """
    path = find("source", given)
    if path is None and HUB_ID.fullmatch(given):
        return _from_hub(given)
    if path is None:
        raise _absent("source", given)
    if path.is_file() and path.suffix != ".gguf":
        raise UsageError(
            f"source={given}: a file that is no .gguf; give a model folder, a hub id or a .gguf file"
        )
    return path


def data(given: str) -> Path:
    """A .jsonl file or a folder of finalized teacher data, absolute.

    :raises UsageError: where there is none.
    """
    path = find("data", given)
    if path is None:
        raise _absent("data", given)
    return path


def plain(key: str, given: str) -> Path:
    """A path in any other option.

    :raises UsageError: where it does not exist.
    """
    path = find(key, given)
    if path is None:
        raise _absent(key, given)
    return path


def find(key: str, given: str) -> Path | None:
    """The absolute path of a local file or folder or one inside a package; None where there is none."""
    if given.startswith("package://"):
        return _in_package(key, given)
    path = absolute(given)
    try:
        return path.resolve() if path.exists() else None
    except (OSError, ValueError) as e:  # too long, a null byte, a loop
        raise UsageError(f"{key}={given[:80]!r}: {e}") from None


def _in_package(key: str, given: str) -> Path:
    """Found through the import system, never imported: the package is only a carrier of files."""
    package, _, inner = given.removeprefix("package://").partition("/")
    spec = find_spec(package) if package.isidentifier() else None
    roots = list(spec.submodule_search_locations or []) if spec else []
    if not roots:
        raise UsageError(
            f"{key}={given}: no package {package!r} is installed; pip install {package.replace('_', '-')}"
        )
    for root in map(Path, roots):
        path = (root / inner).resolve()
        if path.exists() and path.is_relative_to(root.resolve()):
            return path
    raise UsageError(f"{key}={given}: package {package!r} holds no {inner!r}{_near(Path(roots[0]) / inner)}")


def _absent(key: str, given: str) -> UsageError:
    return UsageError(f"{key}={given}: no such file or folder{_near(Path(given))}")


def _near(path: Path) -> str:
    """The nearest name beside ``path``, as the tail of an error line."""
    try:
        names = [p.name for p in path.parent.iterdir() if not p.name.startswith("__")]
    except OSError:
        return f" ({path.parent} does not exist)" if not path.parent.exists() else ""
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {str(path.with_name(close[0]))!r}?" if close else ""


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED)))
    except Exception as e:  # the hub's client raises a dozen kinds, of three libraries
        raise UsageError(f"source={name}: {_hub_fault(e)}") from e


def _hub_fault(error: Exception) -> str:
    kind = type(error).__name__
    if "Gated" in kind:
        return "the hub asks for access to this model: accept its terms there, then set HF_TOKEN"
    if "RepositoryNotFound" in kind or "HFValidation" in kind:
        return "no such local folder, and no such model on the hub (or a private one: set HF_TOKEN)"
    return "no such local folder, and the hub cannot be reached: give a local model folder or .gguf file"
