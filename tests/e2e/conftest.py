"""End-to-end tests run the installed ``prune`` in folders of their own."""

import shutil

import pytest
from product import shell


@pytest.fixture(scope="session")
def place(taught, tmp_path_factory):
    """Makes a folder that holds the taught model ``task`` and its prompts ``t.jsonl``."""

    def make(name):
        folder = tmp_path_factory.mktemp(name)
        shutil.copytree(taught / "task", folder / "task")
        shutil.copy(taught / "t.jsonl", folder)
        return folder

    return make


@pytest.fixture(scope="session")
def undisturbed(place):
    """A folder in which the whole command of :data:`product.RUN` went through once."""
    from product import RUN

    folder = place("undisturbed")
    ended = shell(folder, *RUN)
    assert ended.code == 0, ended.err
    return folder
