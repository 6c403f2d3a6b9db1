import json
import shutil

import pytest
from product import contents

from prune import cache, hookimpl, locks
from prune.engine import plan, run
from prune.errors import BusyError, GateFailed, StageError, UsageError


class Watch:
    """Collects what observers are told."""

    def __init__(self):
        self.done, self.notices, self.progress = [], [], []

    @hookimpl
    def prune_stage_done(self, step, cached):
        self.done.append((step.name, cached))

    @hookimpl
    def prune_notice(self, step, text):
        self.notices.append(f"{step.name}: {text}")

    @hookimpl
    def prune_progress(self, step, done, total, metrics):
        self.progress.append((step.name, done, total, dict(metrics)))


@pytest.fixture
def watch(plugin):
    w = Watch()
    plugin(w, "watch")
    return w


def keys(config, toys, *more):
    return {s.name: s.key for s in plan(config(*toys, *more))}


def test_only_what_depends_on_an_option_is_recomputed(config, toys):
    plain = keys(config, toys)
    assert {n for n, k in keys(config, toys, "loss_on=answer").items() if k != plain[n]} == {"cut", "score"}
    assert {n for n, k in keys(config, toys, "eval.prompts=3").items() if k != plain[n]} == {"score"}
    assert keys(config, toys, "dtype=fp32", "threads=1", "cache=elsewhere") == plain


def test_a_part_counts_by_its_options(config, toys):
    assert keys(config, toys, "codec=toy")["cut"] != keys(config, toys)["cut"]
    assert keys(config, toys, "codec=toy", "codec.level=2")["cut"] != keys(config, toys, "codec=toy")["cut"]


def test_content_decides_and_not_the_path(config, toys, inputs):
    plain = keys(config, toys)
    shutil.copytree("m", "copy")
    shutil.copy("p.jsonl", "q.jsonl")
    assert keys(config, toys, "source=copy", "data=q.jsonl") == plain
    (inputs / "m" / "model.safetensors").write_bytes(b"Weights")
    assert keys(config, toys)["take"] != plain["take"]


def test_the_content_of_a_file_option_decides(config, toys, inputs):
    (inputs / "a.txt").write_text("one")
    (inputs / "b.txt").write_text("one")
    one = keys(config, toys, "eval.general=a.txt")
    assert one == keys(config, toys, "eval.general=b.txt")
    assert plan(config(*toys, "eval.general=a.txt"))[-1].options["eval.general"] == str(inputs / "a.txt")
    (inputs / "b.txt").write_text("two")
    assert one["score"] != keys(config, toys, "eval.general=b.txt")["score"]


def test_every_version_of_an_artifact_is_seen(config, toys, inputs):
    cut = plan(config(*toys))[1]
    assert list(cut.versions["weights"]) == ["source", "take"]
    assert cut.versions["weights"]["source"] == inputs / "m"


def test_planning_writes_nothing(config, toys, inputs):
    before = contents(inputs)
    plan(config(*toys))
    assert contents(inputs) == before


def test_a_wrong_order_is_refused(config, toys):
    with pytest.raises(UsageError, match="'cut' reads 'answers'"):
        plan(config(*toys, "stages=[cut]"))


def test_a_second_run_is_cached_and_up_to_date(config, toys, watch):
    first = run(config(*toys))
    assert watch.done == [("take", False), ("cut", False), ("score", False)]
    watch.done.clear()
    again = run(config(*toys))
    assert watch.done == [("take", True), ("cut", True), ("score", True)]
    assert (first["up_to_date"], again["up_to_date"]) == (False, True)
    assert again["nll"] == first["nll"] == 0.3


def test_the_output_holds_weights_report_and_manifest(config, toys, inputs):
    run(config(*toys))
    assert set(contents(inputs / "out")) == {"model.safetensors", "report.json", "manifest.json"}
    manifest = cache.read(inputs / "out")
    assert set(manifest["files"]) == {"model.safetensors", "report.json"}
    assert not [p for p in inputs.iterdir() if p.name.startswith(".out")]


def test_an_idle_stage_is_left_out(config, toys, watch):
    run(config(*toys, "loss_on=all"))
    assert [n for n, _ in watch.done] == ["take", "score"]


def test_until_stops_there_and_needs_no_output(config, toys, watch, inputs):
    run(config(*[a for a in toys if not a.startswith("output")], "until=cut"))
    assert [n for n, _ in watch.done] == ["take", "cut"]
    assert not (inputs / "out").exists()


@pytest.mark.parametrize(
    ("option", "computed"), [("redo=cut", ["cut", "score"]), ("fresh=true", ["take", "cut", "score"])]
)
def test_redo_and_fresh_recompute(config, toys, watch, monkeypatch, option, computed):
    run(config(*toys))
    watch.done.clear()
    monkeypatch.setattr("prune.engine._renewed", set())
    run(config(*toys, option))
    assert [n for n, cached in watch.done if not cached] == computed


def test_a_damaged_step_is_recomputed_with_a_notice(config, toys, watch, inputs):
    run(config(*toys))
    step = plan(config(*toys))[1]
    (step.dir / "weights" / "model.safetensors").write_text("damaged")
    watch.done.clear()
    run(config(*toys, "output=second"))
    assert ("cut", False) in watch.done and ("take", True) in watch.done
    assert any("damaged" in n for n in watch.notices)
    assert contents(inputs / "second") == contents(inputs / "out")


def test_a_run_over_a_damaged_output_is_refused(config, toys, inputs):
    run(config(*toys))
    (inputs / "out" / "model.safetensors").write_text("mine now")
    with pytest.raises(UsageError, match="overwrite=true"):
        run(config(*toys))
    run(config(*toys, "overwrite=true"))
    assert cache.intact(inputs / "out", cache.read(inputs / "out"), _hashes(inputs))


def _hashes(folder):
    from prune.identity import Hashes

    return Hashes(folder / "nowhere.json")


def test_progress_and_notices_reach_the_observers(config, toys, watch):
    run(config(*toys))
    assert ("take", 2, 2, {"tokens_per_s": 100.0}) in watch.progress
    assert "take: take is finished" in watch.notices


def test_a_refused_gate_publishes_nothing(config, toys, inputs, monkeypatch):
    monkeypatch.setenv("TOY_GATE", "refuse")
    with pytest.raises(GateFailed, match=r"nll_ratio.*write_on_fail"):
        run(config(*toys))
    assert not (inputs / "out").exists()
    with pytest.raises(GateFailed):
        run(config(*toys, "write_on_fail=true"))
    assert not (inputs / "out").exists()
    assert (inputs / "out.rejected" / "report.json").is_file()


def test_a_plugin_may_refuse_the_output(config, toys, plugin):
    from prune.findings import Finding

    class Strict:
        @hookimpl
        def prune_gates(self, report):
            return [Finding("mine", f"nll {report['nll']} is no good")]

    plugin(Strict(), "strict")
    with pytest.raises(GateFailed, match=r"mine: nll 0\.3"):
        run(config(*toys))


def test_an_observer_that_raises_ends_non_zero_with_the_model_kept(config, toys, plugin, inputs):
    class Broken:
        @hookimpl
        def prune_stage_done(self):
            raise RuntimeError("no tracker")

    plugin(Broken(), "tracker")
    with pytest.raises(StageError, match=r"'tracker'.*no tracker"):
        run(config(*toys))
    assert (inputs / "out" / "model.safetensors").is_file()


def test_an_output_that_another_run_holds_is_busy(config, toys, inputs):
    with locks.claim(inputs / "out"), pytest.raises(BusyError):
        run(config(*toys))
    assert not (inputs / ".prune").exists()


def test_a_finding_refuses_before_anything_is_written(config, toys, inputs, monkeypatch):
    from prune import screen
    from prune.findings import Finding

    found = [
        Finding("source", "no layout"),
        Finding("data", "no prompts"),
        Finding("plan", "few tokens", fatal=False),
    ]
    monkeypatch.setattr(screen, "inspect", lambda cfg: ("", found))
    before = contents(inputs)
    with pytest.raises(UsageError, match=r"source: no layout \(and 1 more: check=true"):
        run(config(*toys))
    assert contents(inputs) == before
    assert not (inputs / ".prune").exists()


def test_check_prints_every_finding_and_stops(config, toys, inputs, monkeypatch, capsys):
    from prune import screen
    from prune.findings import Finding

    monkeypatch.setattr(
        screen, "inspect", lambda cfg: ("a sample", [Finding("plan", "few tokens", fatal=False)])
    )
    run(config(*toys, "check=true"))
    assert capsys.readouterr().out == "a sample\nwarning: plan: few tokens\n"
    assert not (inputs / ".prune").exists()


def test_a_run_leaves_its_journal_and_figures(config, toys, inputs):
    run(config(*toys))
    (folder,) = (inputs / ".prune" / "runs").iterdir()
    assert {p.name for p in folder.iterdir()} == {
        "JOURNAL.md",
        "config.yaml",
        "metrics.jsonl",
        "outcome.json",
    }
    assert json.loads((folder / "outcome.json").read_text())["exit_code"] == 0
    assert "take is finished" in (folder / "JOURNAL.md").read_text()
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [x["stage"] for x in lines if "seconds" in x] == ["take", "cut", "score"]


@pytest.mark.parametrize("output", ["m", ".", "cache"])
def test_an_output_never_replaces_what_the_run_reads(config, toys, inputs, output):
    before = contents(inputs)
    with pytest.raises(UsageError, match=r"lies there"):
        run(config(*toys, f"output={output}", "overwrite=true", "cache=cache"))
    assert contents(inputs) == before


def test_a_rejected_model_replaces_nothing_of_others(config, toys, inputs):
    (inputs / "out.rejected").mkdir()
    (inputs / "out.rejected" / "mine").write_text("x")
    with pytest.raises(UsageError, match=r"out\.rejected"):
        run(config(*toys, "write_on_fail=true"))


@pytest.mark.parametrize(("option", "key"), [("output=p.jsonl/out", "output"), ("cache=p.jsonl/c", "cache")])
def test_a_place_that_cannot_be_written_is_named(config, toys, option, key):
    with pytest.raises(UsageError, match=f"^{key}="):
        run(config(*toys, option))


def test_a_kept_output_needs_no_cache(config, toys, watch, inputs):
    first = run(config(*toys))
    shutil.rmtree(inputs / ".prune")
    watch.done.clear()
    again = run(config(*toys))
    assert watch.done == [] and again["nll"] == first["nll"] and again["up_to_date"]
