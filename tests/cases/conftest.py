"""The acceptance cases run the real product on tiny models."""

import shutil

import pytest
from product import InProcess, shell, step, tree

from prune.tiny import tiny


@pytest.fixture
def prune(capfd, monkeypatch, tmp_path):
    """Runs ``prune`` in an empty folder of the test's own, without the pictures: they take half the time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prune.report._html.figures", lambda report: {})
    return InProcess(capfd, monkeypatch)


@pytest.fixture
def refused(prune, tmp_path):
    """The error line of a run that ends 2 and leaves nothing: not in the folder, its cache or its output."""

    def run(*argv):
        before = tree(tmp_path)
        ended = prune(*argv)
        assert ended.code == 2, ended
        assert "Traceback" not in ended.out + ended.err
        assert tree(tmp_path) == before
        return ended.error

    return run


@pytest.fixture(scope="session")
def answers(taught, tmp_path_factory):
    """Finalized teacher data of the taught model, for any model with the byte tokenizer; read only."""
    folder = tmp_path_factory.mktemp("answers")
    prompts = ["data=" + str(taught / "t.jsonl"), "teacher.max_tokens=24", "until=prepare", "ffn=0.75"]
    ended = shell(folder, f"source={taught / 'task'}", *prompts, "isolate=false", "threads=1")
    assert ended.code == 0, ended.err
    return shutil.move(step(folder / ".prune", "prepare") / "answers", folder / "set")


@pytest.fixture
def squeeze(prune, answers, tmp_path):
    """Prunes a model to ``out`` with the plainest settings, which ``argv`` may change; the folder made."""
    plain = ("plan.align=16", "eval.prompts=0", "output=out")

    def run(source, *argv):
        ended = prune(f"source={source}", f"data={answers}", *plain, *argv)
        assert ended.code == 0, ended.err
        return tmp_path / "out"

    return run


@pytest.fixture
def model(tmp_path):
    """A random tiny llama in the test's folder."""
    return tiny(tmp_path / "model")


@pytest.fixture
def scripted(plugin):
    """Makes ``teacher=scripted`` known; its ``asked`` is empty."""
    import scripted

    plugin(scripted, "scripted")
    scripted.asked.clear()
    return scripted
