"""The page for plugin authors: every hook with its signature, the example as it is, the snippets sound."""

import inspect
import re
import sys
import types
from pathlib import Path

import pytest

from prune import hookspecs
from prune.testing import AllocatorContract, SelectorContract

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins" / "writing-a-plugin.md").read_text("utf-8")
HOOKS = {n: f for n, f in vars(hookspecs).items() if n.startswith("prune_")}


def signature(name):
    """As the source has it, on one line."""
    found = inspect.signature(HOOKS[name])
    parameters = ", ".join(f"{p.name}: {p.annotation}" for p in found.parameters.values())
    return f"{name}({parameters}) -> {found.return_annotation}"


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_has_a_heading_with_its_signature(name):
    assert f"\n### `{signature(name)}`\n\n" in PAGE


def test_no_heading_names_a_hook_that_is_none():
    assert set(re.findall(r"^### `(\w+)\(", PAGE, re.M)) == set(HOOKS)


def test_a_heading_is_followed_by_what_the_hook_is_for():
    assert not re.findall(r"^### `.*`\n\n(?=#|\Z)", PAGE, re.M)


def block(mark):
    """The code block that stands below a mark."""
    found = re.search(rf"^<!-- {re.escape(mark)} -->\n```\w+\n(.*?)\n```$", PAGE, re.M | re.S)
    assert found, mark
    return found[1] + "\n"


@pytest.mark.parametrize("file", ["pyproject.toml", "prune_codec_foo.py"])
def test_the_example_is_the_package_that_the_tests_install(file):
    path = f"tests/third_party/prune-codec-foo/{file}"
    assert block(path) == (ROOT / path).read_text("utf-8")


def snippet(kind, options):
    """A class of the page, built with the defaults of its options as a run would."""
    module = types.ModuleType(kind)
    sys.modules[kind] = module  # dataclasses look their module up
    exec(compile(block(kind), kind, "exec"), module.__dict__)
    defaults = {k: v for k, v in vars(getattr(module, options)()).items() if k != "_target_"}
    assert getattr(module, options)._target_.endswith("." + options.removesuffix("Options"))
    return getattr(module, options.removesuffix("Options"))(**defaults)


class TestSelector(SelectorContract):
    @pytest.fixture
    def built(self):
        return snippet("selector", "RowOptions")


class TestAllocator(AllocatorContract):
    @pytest.fixture
    def built(self):
        return snippet("allocator", "LateOptions")
