"""Makes a language model small for one task. A plugin author needs :data:`hookimpl` and nothing else."""

from importlib.metadata import PackageNotFoundError, version

import pluggy

hookimpl = pluggy.HookimplMarker("prune")  #: marks a plugin's hooks

try:
    __version__ = version("prune")
except PackageNotFoundError:  # a bare checkout on sys.path
    __version__ = "0"

__all__ = ["__version__", "hookimpl"]
