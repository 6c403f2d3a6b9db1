import json

from product import contents


def jobs(inputs):
    return sorted((inputs / ".prune" / "sweeps").glob("*/*/outcome.json"))


def test_jobs_share_steps_and_the_table_tells_all(toy_run, inputs):
    done = toy_run("-m", "loss_on=answer,all", "output='out/${hydra:job.num}'", "isolate=false")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("take        cached") == 1
    assert "nothing to do" in done.stderr
    assert [p.name for p in sorted((inputs / "out").iterdir())] == ["0", "1"]
    for said in ("NLL final", "0.3000", "loss_on=all"):
        assert said in done.stdout
    assert len(jobs(inputs)) == 2


def test_a_failing_job_does_not_end_the_others(toy_run, inputs):
    done = toy_run(
        "-m", "loss_on=answer,all", "output='out/${hydra:job.num}'", "isolate=false", TOY_FAIL="cut:value"
    )
    assert done.returncode == 3
    assert not (inputs / "out" / "0").exists() and (inputs / "out" / "1" / "manifest.json").is_file()
    assert "a bad value" in done.stdout
    assert [json.loads(p.read_text())["exit_code"] for p in jobs(inputs)] == [3, 0]


def test_fresh_recomputes_a_shared_step_once(toy_run, inputs):
    toy_run("isolate=false")
    done = toy_run("-m", "loss_on=answer,all", "output='o/${hydra:job.num}'", "isolate=false", "fresh=true")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("take        cached") == 1


def test_a_sweep_over_paths_reads_each_as_typed(toy_run, inputs):
    (inputs / "m").rename(inputs / "a=1")
    done = toy_run("-m", "source=a=1,it's", "output='out/${hydra:job.num}'", "isolate=false")
    assert done.returncode == 2
    assert (inputs / "out" / "0" / "manifest.json").is_file()
    assert "source=it's: no such file" in done.stderr


def test_where_every_job_is_refused_nothing_is_left(toy_run, inputs):
    before = contents(inputs)
    done = toy_run("-m", "source=a,b", "output='out/${hydra:job.num}'")
    assert done.returncode == 2
    assert contents(inputs) == before
    assert {p.name for p in inputs.iterdir()} == {"m", "p.jsonl"}


def test_the_table_tells_what_differs():
    from prune.sweep import varying

    common = ["source=m", "ffn=0.5"]
    jobs = [[*common, "codec=f16", "output=a"], [*common, "codec=q8", "output=b"]]
    assert varying(jobs) == [["codec=f16"], ["codec=q8"]]
    assert varying(jobs[:1]) == [[*common, "codec=f16"]]
