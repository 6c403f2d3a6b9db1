"""What tests of the engine and the command line share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from product import TOY_STAGES

HERE = Path(__file__).parent
SUMMARY = "observer.summary"


@pytest.fixture
def config():
    """Composes a run's config as ``prune`` would for these arguments."""
    from prune.argv import tidy
    from prune.config import RunConfig, conf_path
    from prune.plugins import register_options

    def make(*argv):
        ConfigStore.instance().store("schema", RunConfig)
        register_options()
        with initialize_config_dir(conf_path(), version_base="1.3"):
            return compose("config", tidy(list(argv)))

    return make


@pytest.fixture
def plugin():
    """Registers a plugin for one test."""
    from prune.plugins import manager

    added = []

    def add(p, name):
        manager().register(p, name)
        added.append(p)

    yield add
    for p in added:
        manager().unregister(p)


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """A folder with a model-like ``m`` and prompts ``p.jsonl``; the test works in it."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "p.jsonl").write_text('{"prompt": "hello"}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toys(plugin, monkeypatch, inputs):
    """The toy stages, and the arguments of a run over them."""
    from prune import screen
    from prune.plugins import manager

    monkeypatch.setattr(screen, "inspect", lambda cfg: ("", []))  # before the toys, which set it for good
    import prune_toys

    plugin(prune_toys, "toys")
    summary = manager().unregister(name=SUMMARY)  # a toy's report is no report
    yield ["source=m", "data=p.jsonl", "output=out", "isolate=false", *TOY_STAGES]
    manager().register(summary, SUMMARY)


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory):
    """Folders for PYTHONPATH that make the toys an installed distribution."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "prune_toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: prune-toys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prune]\ntoys = prune_toys\n")
    return os.pathsep.join([str(folder), str(HERE)])


@pytest.fixture
def environment(toy_path):
    return {
        **os.environ,
        "PYTHONPATH": toy_path,
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "200",
        "PRUNE_DISABLE_PLUGINS": SUMMARY,
    }


@pytest.fixture
def cli(environment):
    """Runs ``prune`` in a process of its own, in the current folder."""

    def run(*argv, **env):
        command = [sys.executable, "-c", "from prune.cli import main; main()", *argv]
        return subprocess.run(
            command,
            env=environment | env,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def toy_run(cli, inputs):
    """Runs ``prune`` over the toy stages."""

    def run(*argv, **env):
        return cli("source=m", "data=p.jsonl", "output=out", *TOY_STAGES, *argv, **env)

    return run


@pytest.fixture(scope="session")
def taught(tmp_path_factory):
    """A tiny model that has learnt a task, ``task``, and 60 prompts of it, ``t.jsonl``; read only."""
    import torch

    from prune import tiny_task

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("taught")
    tiny_task.taught(folder / "task")
    tiny_task.write_prompts(folder / "t.jsonl")
    return folder
