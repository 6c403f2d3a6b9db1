import pytest

from prune import identity, locate
from prune.errors import UsageError
from prune.identity import Hashes


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that must not be imported."""
    (tmp_path / "toy_model_files").mkdir()
    (tmp_path / "toy_model_files" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "toy_model_files" / "tiny.gguf").write_text("GGUF")
    (tmp_path / "secret").write_text("x")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "toy_model_files"


def test_a_file_of_a_package_is_found_without_importing_it(package):
    assert locate.source("package://toy_model_files/tiny.gguf") == package / "tiny.gguf"
    assert locate.data("package://toy_model_files/tiny.gguf") == package / "tiny.gguf"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("package://toy_model_files/tiny.ggfu", "did you mean"),
        ("package://toy_model_files/../secret", "holds no"),
        ("package://not_there/x", "pip install not-there"),
        ("package://", "no package"),
        ("nowhere", "no such file or folder"),
        ("./org/name", "no such file or folder"),
        ("a" * 5000, "name too long"),
        ("org/name", "no such local folder"),
    ],
)
def test_what_is_not_there_is_named(package, monkeypatch, given, says):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(package))
    with pytest.raises(UsageError, match=says) as caught:
        locate.source(given)
    assert str(caught.value).startswith("source=")


def test_only_what_a_model_is_made_of_counts(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("w")
    hashes = Hashes(tmp_path / "h")
    plain = identity.of_source(tmp_path, hashes)
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / "pytorch_model.bin").write_text("never read")
    assert identity.of_source(tmp_path, hashes) == plain
    (tmp_path / "chat_template.jinja").write_text("{{ x }}")
    assert identity.of_source(tmp_path, hashes) != plain


def test_names_count_as_well_as_contents(tmp_path):
    for name, file in (("a", "x"), ("b", "y"), ("c", "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("same")
    a, b, c = (identity.of_path("data", tmp_path / n, Hashes(tmp_path / "h")) for n in "abc")
    assert a == c != b
