import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from prune_plugins.observer import summary

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from report_fixtures import realistic

from prune.report import dumps


@pytest.fixture
def run(tmp_path):
    steps = [SimpleNamespace(name=name, dir=tmp_path / f"{name}-0") for name in ("plan", "eval", "last")]
    (tmp_path / "eval-0" / "report").mkdir(parents=True)
    (tmp_path / "eval-0" / "report" / "report.json").write_text(dumps(realistic()))
    (tmp_path / "run").mkdir()
    run = SimpleNamespace(steps=steps, folder=tmp_path / "run")
    summary.prune_run_start(run)
    return run


@pytest.mark.parametrize("outcome", [{"exit_code": 0}, {"exit_code": 5, "error": "a gate refused"}])
def test_it_prints_the_table_gates_verdict_and_next_commands(run, outcome, capsys):
    summary.prune_run_done(run, outcome)
    out = capsys.readouterr().out
    for word in ("quant", "nll_rise", "Passed: 51.0 % smaller on disk", "next:", "ffn=0.65"):
        assert word in out
    assert "tokens/s" not in out


def test_times_are_in_the_runs_folder_and_not_in_the_report(run, capsys):
    before = (run.steps[1].dir / "report" / "report.json").read_bytes()
    summary.prune_progress(run, run.steps[1], 1, 4, {"candidate": "source", "tokens_per_s": 31.25})
    summary.prune_progress(run, run.steps[1], 2, 4, {"candidate": "fold"})
    summary.prune_stage_done(run, run.steps[0], 83.2, cached=False)
    summary.prune_stage_done(run, run.steps[1], 0.0, cached=True)
    summary.prune_run_done(run, {"exit_code": 0})
    assert sorted(p.name for p in run.folder.iterdir()) == ["report.html", "report.json", "report.md"]
    text = (run.folder / "report.md").read_text()
    assert "tokens/s" in text and "| plan | 1 min 23 s |" in text and "| eval |" not in text
    assert "tokens/s" in capsys.readouterr().out
    assert (run.folder / "report.json").read_bytes() == before


def test_a_run_without_a_report_prints_nothing(run, capsys):
    run.steps.pop(1)
    summary.prune_run_done(run, {"exit_code": 0})
    assert capsys.readouterr().out == "" and not list(run.folder.iterdir())
