from dataclasses import dataclass, field
from pathlib import Path

import pytest

from prune import docs
from prune.doctext import options
from prune.errors import ExitCode

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", docs.PAGES)
def test_page_is_current(name):
    assert (DOCS / name).read_text("utf-8") == docs.PAGES[name](), "run: python -m prune.docs"


@dataclass
class Inner:
    deep: bool = False  # inner comment


@dataclass
class Example:
    # above,
    # in two lines
    above: int | None = None
    behind: float = 0.5  # behind | piped
    # both ways:
    both: list[int] = field(
        default_factory=lambda: [1, 2]  # and inside
    )
    inner: Inner = field(default_factory=Inner)
    _target_: str = "hidden"
    needed: str = "???"
    hashes: str = "#no comment"
    empty: str = ""


def test_options_read_keys_types_defaults_and_comments():
    rows = {o.key: o for o in options(Example, "x.")}
    assert list(rows) == ["x.above", "x.behind", "x.both", "x.inner.deep", "x.needed", "x.hashes", "x.empty"]
    assert (rows["x.above"].type, rows["x.above"].default) == ("int | None", "`null`")
    assert rows["x.above"].text == "above, in two lines"
    assert rows["x.behind"].row() == "| `x.behind` | `float` | `0.5` | behind \\| piped |"
    assert (rows["x.both"].text, rows["x.both"].default) == ("both ways: and inside", "`[1,2]`")
    assert (rows["x.inner.deep"].text, rows["x.inner.deep"].default) == ("inner comment", "`false`")
    assert rows["x.needed"].default == "required" and rows["x.empty"].default == '`""`'
    assert rows["x.hashes"].text == ""


def test_every_option_says_what_it_means():
    page = docs.option_page()
    mute = [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert not mute


def test_every_exit_code_is_on_its_page():
    page = docs.exit_codes()
    for code in ExitCode:
        assert f"| {code.value} | {code.name} | {code.meaning} |" in page and code.meaning and code.on_disk


def test_main_writes_every_page(tmp_path):
    docs.main(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(docs.PAGES)
