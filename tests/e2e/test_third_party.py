"""A third party's codec, installed by pip into an environment of its own, is an option like any other."""

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

FOO = Path(__file__).parents[1] / "third_party" / "prune-codec-foo"
PRUNE = ["-c", "from prune.cli import main; main()"]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of a fresh environment that has this one's packages and the codec."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    lib = next((home / "lib").glob("python*/site-packages"))
    ours = [p for p in site.getsitepackages() if Path(p).is_dir()]
    (lib / "ours.pth").write_text("".join(f"import site; site.addsitedir({p!r})\n" for p in ours))
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", FOO]
    subprocess.run(install, check=True, timeout=120)
    return str(python)


@pytest.fixture
def prune(python, tmp_path):
    """Runs ``prune`` in that environment, in an empty folder."""

    def run(*argv):
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"COLUMNS": "160"}
        done = subprocess.run(
            [python, *PRUNE, *argv], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_help_and_listing_show_it(prune):
    choices = prune("--help").partition("\nChoices\n")[2]
    (codecs,) = [x.removeprefix("  codec ") for x in choices.splitlines() if x.startswith("  codec ")]
    assert "foo" in codecs.strip().split(", ")
    (row,) = [x for x in prune("plugins").splitlines() if "codec-foo" in x and "codec=foo" in x]
    assert "prune-codec-foo 0.3" in row


def test_it_composes_with_its_options(prune):
    assert "bits: 5" in prune("codec=foo", "codec.bits=5", "--cfg", "job", "--package", "codec")


def test_a_whole_run_stores_its_weights(python, place):
    """6 bits a row: few distinct values in a row, in a folder that plain transformers loads."""
    from product import RUN, plain

    folder = place("third-party")
    command = [python, *PRUNE, *(a for a in RUN if not a.startswith("codec=")), "codec=foo", "output=foo"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    weight = plain(folder / "foo").model.layers[0].mlp.down_proj.weight
    assert weight.shape == (64, 128) and max(len(row.unique()) for row in weight) <= 2**6
    assert json.loads((folder / "foo" / "report.json").read_text())["codec"]["name"] == "foo"


def test_it_is_not_there_without_the_package():
    done = subprocess.run([sys.executable, *PRUNE, "codec=foo"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "unknown codec 'foo'" in done.stderr


def test_it_holds_the_codec_contract(python, tmp_path):
    """As its author would: the suite that we ship, in a test of theirs."""
    (tmp_path / "test_foo.py").write_text(
        "from prune.testing import CodecContract\n\n\nclass TestFoo(CodecContract):\n"
        "    codec = 'foo'\n    error = 0.05  # 6 bits a row\n"
    )
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
