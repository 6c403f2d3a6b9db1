"""What an options dataclass says about itself: key, type, default, and the comment at each field."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One line of the options page."""

    key: str
    type: str
    default: str
    text: str

    def row(self) -> str:
        text = self.text.replace("|", "\\|")
        kind = self.type.replace("|", "\\|")
        return f"| `{self.key}` | `{kind}` | {self.default} | {text} |"


def options(cls: type, prefix: str = "") -> Iterator[Option]:
    """Every leaf below an options dataclass, as the dotted key one types."""
    comments, kinds = _comments(cls), _annotations(cls)
    for f in fields(cls):
        default = _default(f)
        if is_dataclass(default) and not isinstance(default, type):
            yield from options(type(default), f"{prefix}{f.name}.")
        elif not f.name.startswith("_"):
            kind = kinds.get(f.name, str(f.type))
            yield Option(f"{prefix}{f.name}", kind, _shown(default), comments.get(f.name, ""))


def _default(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


def _shown(default: Any) -> str:
    """As one would type it on the command line."""
    if default is MISSING or default == "???":
        return "required"
    if default is None or isinstance(default, bool):
        return f"`{'null' if default is None else str(default).lower()}`"
    if isinstance(default, list):
        return f"`[{','.join(map(str, default))}]`"
    return f"`{default}`" if default != "" else '`""`'


def _fields(cls: type) -> tuple[str, list[ast.AnnAssign]]:
    """(dedented source, the annotated assignments) of a class body."""
    source = textwrap.dedent(inspect.getsource(cls))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    return source, [n for n in body.body if isinstance(n, ast.AnnAssign)]


def _annotations(cls: type) -> dict[str, str]:
    return {ast.unparse(n.target): ast.unparse(n.annotation) for n in _fields(cls)[1]}


def _comments(cls: type) -> dict[str, str]:
    """What the comment above and behind each field says."""
    source, nodes = _fields(cls)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    text = {t.start[0]: t.string.lstrip("#: ") for t in tokens}
    alone = {t.start[0] for t in tokens if t.line.lstrip().startswith("#")}
    found = {}
    for node in nodes:
        first = node.lineno
        while first - 1 in alone:
            first -= 1
        lines = range(first, (node.end_lineno or node.lineno) + 1)
        found[ast.unparse(node.target)] = " ".join(text[n] for n in lines if n in text)
    return found
