import json
import subprocess
import sys

import pytest
from product import TOY_STAGES, contents

from prune.explain import LIMIT


def one_line(done, code):
    """The single error line of a run that ended with ``code``."""
    lines = [x for x in done.stderr.splitlines() if x.startswith("prune: ")]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(lines) == 1 and len(lines[0]) <= LIMIT
    return lines[0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["codec=q5"], "unknown codec 'q5'"),
        (["codec=to"], "did you mean 'toy'?"),
        (["lose_on=all"], "unknown option 'lose_on'; did you mean 'loss_on'?"),
        (["+fnn=0.5"], "unknown option 'fnn'"),
        (["plan.alin=3"], "did you mean 'align'?"),
        (["seed=abc"], "seed: "),
        (["ffn=75%"], "ffn: "),
        (["seed"], "seed"),
        (["source=nowhere"], "source=nowhere: no such file or folder"),
        (["source=m1"], "did you mean 'm'?"),
        (["data=q.jsonl"], "did you mean 'p.jsonl'?"),
        (["source=p.jsonl"], "no .gguf"),
        (["source=package://no_such/x.gguf"], "no package 'no_such' is installed"),
        (
            ["source=null", "data=null"],
            "missing source=… (a model folder, hub id or .gguf file); missing data=…",
        ),
        (["until=tak"], "did you mean 'take'?"),
        (["stages=[take,cutt]"], "did you mean 'cut'?"),
        (["ffn=0.5"], "narrow nothing"),
        (["--nonsense"], "--nonsense"),
        (["--experimental-rerun", "x.pickle"], "pickle"),
        (["output=m"], "source="),
        (["output=p.jsonl"], "lies there"),
        (["-m", "codec=q5,toy"], "unknown codec 'q5'"),
        (["-m", "source=a,b", "output='out${hydra:job.num}'"], "source=a: no such"),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing(toy_run, inputs, args, says):
    before = contents(inputs)
    done = toy_run(*args)
    text = one_line(done, 2) if "-m" not in args else done.stderr
    assert done.returncode == 2
    assert says in text
    assert contents(inputs) == before
    assert {p.name for p in inputs.iterdir()} == {"m", "p.jsonl"}


def test_a_word_is_no_option(cli):
    assert "unknown command 'plugin'; did you mean 'plugins'?" in one_line(cli("plugin"), 2)


def test_two_targets_are_refused(cli, inputs):
    done = cli("source=m", "data=p.jsonl", "output=o", "teacher=toy", "ffn=0.5", "size=1M")
    assert "ffn=0.5 and size=1M are set" in one_line(done, 2)


def test_a_stage_that_is_killed_and_the_same_command_again(toy_run, inputs, tmp_path):
    undisturbed = toy_run("output=other", "cache=elsewhere")
    assert undisturbed.returncode == 0, undisturbed.stderr
    line = one_line(toy_run(TOY_FAIL="cut:kill"), 3)
    assert "stage cut was killed (out of memory?); type the same command again to resume" in line
    again = toy_run()
    assert again.returncode == 0
    assert "take        cached" in again.stderr and "cut         cached" not in again.stderr
    assert contents(inputs / "out") == contents(inputs / "other")
    assert [p.name for p in (inputs / ".prune").iterdir() if p.name.endswith(".part")] == []


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("full", "no space left on the disk"),
        ("memory", "out of memory"),
        ("value", "plugin 'toys' of prune-toys 1.0 failed in stage cut: ValueError: a bad value"),
        ("system", "plugin 'toys' of prune-toys 1.0 failed in stage cut: SystemExit"),
        ("exit", "ended without a result (exit code 0)"),
    ],
)
def test_a_stage_that_fails_is_exit_3(toy_run, inputs, how, says):
    assert says in one_line(toy_run(TOY_FAIL=f"cut:{how}"), 3)
    assert not (inputs / "out").exists()


def test_a_refused_gate_is_exit_5(toy_run, inputs):
    assert "nll_ratio: 2.0 is above 1.35" in one_line(toy_run("isolate=false", TOY_GATE="refuse"), 5)
    assert not (inputs / "out").exists()


def test_debug_shows_the_traceback_of_the_child(toy_run):
    done = toy_run(TOY_FAIL="cut:value", PRUNE_DEBUG="1")
    assert done.returncode == 3
    assert "in _fail" in done.stderr


def test_a_single_run_leaves_no_folder_of_hydra(toy_run, inputs):
    assert toy_run("isolate=false").returncode == 0
    assert {p.name for p in inputs.iterdir()} == {"m", "p.jsonl", "out", ".prune"}
    assert not (inputs / ".prune" / "sweeps").exists()


@pytest.mark.parametrize(
    "name",
    ["epoch=1", "a,b", "run(2)", "my model", "新模型", "it's", "#1", "[x]", "{y}", "~z", "a\\b", "w\\"],
)
def test_d18_paths_are_taken_as_typed(cli, inputs, name):
    (inputs / "m").rename(inputs / name)
    done = cli(f"source={name}", "data=p.jsonl", f"output=out {name}", *TOY_STAGES, "isolate=false")
    assert done.returncode == 0, done.stderr
    assert (inputs / f"out {name}" / "manifest.json").is_file()


def test_importing_for_help_takes_nothing_heavy(environment):
    code = (
        "import sys; sys.argv = ['prune', '--help']\n"
        "from prune.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'rich', 'safetensors', 'matplotlib', 'jinja2'}\n"
        "bad = heavy & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "recipe=balanced" in done.stdout


def test_help_shows_options_choices_and_recipes(cli, inputs):
    done = cli("--help")
    assert done.returncode == 0
    for said in (
        "output='out/${hydra:job.num}'",
        "plan.align=128",
        "recipe=quickstart",
        "f16, none, q8, toy",
    ):
        assert said in done.stdout
    assert contents(inputs).keys() == {"m/config.json", "m/model.safetensors", "p.jsonl"}


def test_version(cli):
    from prune import __version__

    assert cli("--version").stdout == f"prune {__version__}\n"


def test_completion_knows_third_parties(cli):
    done = cli("-sc", "query=bash", COMP_LINE="prune codec=t", COMP_POINT="13")
    assert "codec=toy" in done.stdout


def test_cfg_job_composes_with_flags_anywhere(cli):
    done = cli("ffn=0.5", "--cfg", "job", "+codec=toy", "codec.level=4")
    assert done.returncode == 0, done.stderr
    assert "level: 4" in done.stdout and "ffn: 0.5" in done.stdout


def test_the_quickstart_composes_and_yields_to_the_command_line(cli):
    done = cli("recipe=quickstart", "codec=toy", "output=elsewhere", "--cfg", "job")
    assert done.returncode == 0, done.stderr
    assert "output: elsewhere" in done.stdout and "_target_: prune_toys.Part" in done.stdout
    assert "allow_lossy_source: true" in done.stdout


def test_outcome_json_holds_the_error(toy_run, inputs):
    toy_run("isolate=false", TOY_FAIL="cut:value")
    (path,) = (inputs / ".prune" / "runs").glob("*/outcome.json")
    assert json.loads(path.read_text())["exit_code"] == 3


def test_help_is_quick(environment):
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from prune.cli import main; main()", "--help"]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.8
