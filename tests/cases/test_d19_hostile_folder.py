"""A model folder that wants to run code never does, and nobody is asked whether it may."""

import json
import os
import pickle
import pty
import subprocess
from pathlib import Path

import pytest
from product import environment, script, shell

AUTO = {
    "AutoConfig": "evil.Config",
    "AutoModelForCausalLM": "evil.Model",
    "AutoTokenizer": ["evil.Tok", None],
}
CONFIGS = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
WATCH = """
import os, sys
def watch(event, args):
    if event == "open" and str(args[0]).endswith((".bin", ".pt", ".pkl", "evil.py")):
        told = os.open(os.environ["OPENED"], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(told, f"{args[0]}\\n".encode())
sys.addaudithook(watch)
"""


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return (Path.touch, (self.canary,))


@pytest.fixture
def hostile(model, tmp_path):
    """The tiny model, a pickle and a module beside it, both of which leave a canary."""
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "canary")))
    (model / "evil.py").write_text(
        f"open({str(tmp_path / 'canary')!r}, 'w')\nConfig = Model = Tok = object\n"
    )
    return model


@pytest.fixture(autouse=True)
def no_canary(tmp_path):
    yield
    assert not (tmp_path / "canary").exists()


def wants_code(folder, name):
    """Add an ``auto_map`` to one of the folder's configurations."""
    path = folder / name
    settings = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(settings | {"auto_map": AUTO}))


def test_d19_a_pickle_alone_is_refused(hostile, refused, scripted, taught):
    (hostile / "model.safetensors").unlink()
    line = refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75", "teacher=scripted")
    assert "safetensors only" in line and "pytorch_model.bin" in line and scripted.asked == []


def test_d19_a_pickle_beside_safetensors_is_never_opened(hostile, answers, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WATCH)
    watched = environment(PYTHONPATH=str(tmp_path / "site"), OPENED=str(tmp_path / "opened"))
    run = ("source=model", f"data={answers}", "output=out", "ffn=0.75", "plan.align=16", "eval.prompts=2")
    off = [f"eval.gates.{g}=null" for g in ("loops", "stop_rate", "length_low", "length_high")]
    ended = shell(tmp_path, *run, *off, "eval.max_tokens=4", "isolate=false", env=watched)
    assert ended.code == 0, ended.err
    assert not (tmp_path / "opened").exists(), (tmp_path / "opened").read_text()
    published = {p.name for p in (tmp_path / "out").iterdir()}
    assert not published & {"pytorch_model.bin", "evil.py"} and "model.safetensors" in published


def test_d19_the_watch_sees_what_is_opened(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    (tmp_path / "x.bin").touch()
    watched = environment(PYTHONPATH=str(tmp_path), OPENED=str(tmp_path / "opened"))
    subprocess.run(["python3", "-c", "open('x.bin')"], cwd=tmp_path, env=watched, check=True)
    assert (tmp_path / "opened").read_text() == "x.bin\n"


@pytest.mark.parametrize("name", CONFIGS)
def test_d19_an_auto_map_is_refused(name, hostile, refused, scripted, taught):
    wants_code(hostile, name)
    line = refused("source=model", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75", "teacher=scripted")
    assert name in line and "auto_map" in line and scripted.asked == []


def test_d19_a_model_to_compare_with_is_not_trusted_either(hostile, refused, answers, tmp_path):
    from prune.tiny import tiny

    wants_code(hostile, "config.json")
    tiny(tmp_path / "good")
    run = ("source=good", f"data={answers}", "output=out", "ffn=0.75", "eval.prompts=0")
    assert "auto_map" in refused(*run, "eval.compare=[model]")


def test_d19_a_teacher_is_not_trusted_either(hostile, refused, taught, tmp_path):
    from prune.tiny import tiny

    wants_code(hostile, "config.json")
    tiny(tmp_path / "good")
    run = ("source=good", f"data={taught / 't.jsonl'}", "output=out", "ffn=0.75")
    assert "auto_map" in refused(*run, "teacher.model=model")


def test_d19_nobody_is_asked_whatever_stdin_is(hostile, taught, tmp_path):
    """Three runs at once: at a terminal, with stdin closed, with /dev/null."""
    wants_code(hostile, "config.json")
    ours, terminal = pty.openpty()
    argv = [script(), "source=model", f"data={taught / 't.jsonl'}", "ffn=0.75", "isolate=false"]
    how = {"cwd": tmp_path, "env": environment(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    runs = {
        "terminal": subprocess.Popen([*argv, "output=a"], stdin=terminal, text=True, **how),
        "closed": subprocess.Popen(["sh", "-c", 'exec "$@" <&-', "sh", *argv, "output=b"], text=True, **how),
        "null": subprocess.Popen([*argv, "output=c"], stdin=subprocess.DEVNULL, text=True, **how),
    }
    for name, run in runs.items():
        out, err = run.communicate(timeout=60)
        assert run.returncode == 2 and out == "", (name, out, err)
        assert err.count("\n") == 1 and "auto_map" in err and len(err) <= 301, (name, err)
    os.close(terminal)
    os.close(ours)
    assert {p.name for p in tmp_path.iterdir()} == {"model"}
