import sys
from pathlib import Path
from types import SimpleNamespace

from prune_plugins.observer.summary import prune_run_done, report_of

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from report_fixtures import realistic

from prune.report import dumps


def run(tmp_path, *written):
    steps = []
    for name in ("plan", "eval", "last"):
        folder = tmp_path / f"{name}-0"
        (folder / "report").mkdir(parents=True)
        if name in written:
            (folder / "report" / "report.json").write_text(dumps(realistic()))
        steps.append(SimpleNamespace(name=name, dir=folder))
    return SimpleNamespace(steps=steps)


def test_it_prints_the_table_gates_verdict_and_next_commands(tmp_path, capsys):
    prune_run_done(run(tmp_path, "eval"), {"exit_code": 0})
    out = capsys.readouterr().out
    for word in ("quant", "nll_rise", "Passed: 51.0 % smaller on disk", "next:", "ffn=0.65"):
        assert word in out


def test_it_prints_after_a_refusal_too(tmp_path, capsys):
    prune_run_done(run(tmp_path, "eval"), {"exit_code": 5, "error": "refused"})
    assert "nll_rise" in capsys.readouterr().out


def test_a_run_without_a_report_prints_nothing(tmp_path, capsys):
    assert report_of(run(tmp_path)) is None
    prune_run_done(run(tmp_path / "b"), {"exit_code": 0})
    assert capsys.readouterr().out == ""
