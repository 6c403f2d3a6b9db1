"""The installed ``prune`` on a tiny model that knows a task: the whole way, again, changed, swept."""

import json
import math
import re

import pytest
import torch
from product import RUN, STAGES, did, nll, plain, shell, step, tree

from prune.data.records import read
from prune.nn.model import load


@pytest.fixture(scope="module")
def report(undisturbed):
    return json.loads((undisturbed / "out" / "report.json").read_text())


def candidate(report, role):
    return next(c for c in report["candidates"] if c["role"] == role)


def test_the_output_loads_and_its_nll_is_the_reports(undisturbed, report):
    records = read(step(undisturbed / ".prune", "prepare") / "answers", "test")
    final, source = candidate(report, "final"), candidate(report, "source")
    assert len(records) == final["records"] == report["data"]["records"]["test"]
    assert nll(undisturbed / "out", records) == pytest.approx(final["nll"], rel=0.005)
    assert nll(undisturbed / "task", records) == pytest.approx(source["nll"], rel=0.005)
    assert final["perplexity"] == pytest.approx(math.exp(final["nll"]))
    assert report["passed"] and final["generation"]["stop_rate"] == 1.0


def test_files_are_as_much_smaller_as_the_report_states(undisturbed, report):
    for role, folder in (("source", "task"), ("final", "out")):
        files = (undisturbed / folder).glob("*.safetensors")
        assert sum(p.stat().st_size for p in files) == candidate(report, role)["bytes"]
        assert load(undisturbed / folder).num_parameters() == candidate(report, role)["params"]
    kept = report["target"]["neurons_after"] / report["target"]["neurons_before"]
    assert kept == pytest.approx(256 / 352)
    assert 0.3 < candidate(report, "final")["bytes"] / candidate(report, "source")["bytes"] < 0.5


def test_the_output_holds_the_reports_and_their_pictures(undisturbed):
    page = (undisturbed / "out" / "report.html").read_text()
    assert page.count("<svg") == 3 and "<script" not in page and "src=" not in page and "@import" not in page
    for name in ("report.md", "README.md"):
        assert "NLL" in (undisturbed / "out" / name).read_text()


def test_the_same_command_again_computes_nothing(undisturbed):
    before = tree(undisturbed / "out")
    ended = shell(undisturbed, *RUN)
    assert ended.code == 0 and did(ended) == dict.fromkeys(STAGES, "cached")
    assert ended.seconds < 15 and tree(undisturbed / "out") == before


def test_another_target_computes_plan_to_eval_alone(undisturbed):
    """Without the cache's step of the same plan: the new width differs."""
    ended = shell(undisturbed, *RUN, "ffn=0.9", "output=wider", "codec.group=32", "plan.align=16")
    assert ended.code == 0, ended.err
    cached = {stage for stage, how in did(ended).items() if how == "cached"}
    assert cached == {"prepare", "illuminate"} and did(ended).keys() == set(STAGES)


def test_baked_weights_are_what_is_pruned_and_the_source_stays_the_reference(undisturbed, report):
    stages = "stages=[prepare,bake,illuminate,plan,fold,quant,eval]"
    ended = shell(undisturbed, *RUN, stages, "bake.steps=2", "bake.every=1", "output=baked")
    assert ended.code == 0, ended.err
    assert {stage for stage, how in did(ended).items() if how == "cached"} == {"prepare"}
    found = json.loads((undisturbed / "baked" / "report.json").read_text())
    assert [c["name"] for c in found["candidates"]][:2] == ["source", "bake"]
    assert candidate(found, "source")["nll"] == candidate(report, "source")["nll"]
    assert nll(undisturbed / "baked", read(step(undisturbed / ".prune", "prepare") / "answers", "test")) == (
        pytest.approx(candidate(found, "final")["nll"], rel=0.005)
    )


def test_a_sweep_shares_steps_goes_on_past_a_failure_and_prints_its_table(place):
    folder = place("sweep")
    common = [a for a in RUN if a.partition("=")[0] not in ("ffn", "codec", "output")]
    ended = shell(folder, "-m", *common, "ffn=0.1,0.75", "codec=f16,q8", "output=out-${hydra:job.num}")
    assert ended.code == 2  # of the jobs that the floor refuses
    done = [p.parent.name.partition("-")[0] for p in (folder / ".prune").glob("*/manifest.json")]
    assert {s: done.count(s) for s in STAGES} == {
        "prepare": 1, "illuminate": 1, "plan": 1, "fold": 1, "quant": 2, "eval": 2
    }  # fmt: skip
    assert re.findall(r"^│ (\d) +│", ended.out, re.M) == ["0", "1", "2", "3"]
    assert ended.out.count("the target keeps 35 FFN neurons") == 2
    assert {p.name for p in folder.glob("out-*")} == {"out-2", "out-3"}
    assert plain(folder / "out-2").dtype == torch.float16
    assert plain(folder / "out-3").config.quantization_config is not None
