"""Paths are taken as typed; a wrong key or value is one line with the nearest name."""

import shutil

import pytest
from product import plain

NAMES = [
    "epoch=1",
    "a,b",
    "run(2)",
    "my model",
    "新模型",
    "it's",
    "#1",
    "{x}",
    "a&b!",
    "[1]",
    "~tilde",
    "$HOME",
]


@pytest.mark.parametrize("name", NAMES)
def test_d18_any_name_for_any_path(name, prune, model, answers, tmp_path):
    here = tmp_path / name
    here.mkdir()
    shutil.copytree(model, here / name)
    shutil.copytree(answers, here / f"{name} data")
    ended = prune(
        f"source={name}/{name}",
        f"data={name}/{name} data",
        f"cache={name}/cache",
        "ffn=0.75",
        f"output={name}/out {name}",
        "until=plan",
    )
    assert ended.code == 0, ended.err
    assert any(p.name.startswith("plan-") for p in (here / "cache").iterdir())
    assert {p.name for p in tmp_path.iterdir()} == {"model", name}


def test_d18_an_output_of_an_odd_name_is_published_there(squeeze, model, tmp_path):
    shutil.move(model, tmp_path / "a,b = 'c'")
    squeeze("a,b = 'c'", "ffn=0.75", "output=run(2), it's #1", "codec=q8")
    plain(tmp_path / "run(2), it's #1")


def test_d18_a_comma_sweeps_only_where_asked(prune, model, answers, tmp_path):
    """One job with both names in its path without ``-m``; with it, two jobs."""
    shutil.move(model, tmp_path / "m,n")
    run = ("source=m,n", f"data={answers}", "ffn=0.75", "output=x,y", "plan.align=16", "eval.prompts=0")
    assert prune(*run).code == 0
    assert {"x,y"} <= {p.name for p in tmp_path.iterdir()}
    assert prune("-m", "source='m,n'", *run[1:]).code == 0
    assert {"x", "y"} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("ffn=abc", ["ffn", "abc"]),
        ("ffn=75%", ["ffn", "75%"]),
        ("ffn=-1", ["ffn", "-1"]),
        ("fnn=0.5", ["fnn", "did you mean 'ffn'"]),
        ("+fnn=0.5", ["fnn", "did you mean 'ffn'"]),
        ("codec=q5", ["q5", "q8"]),
        ("codec.gruop=3", ["gruop", "group"]),
        ("plan.aling=3", ["aling", "align"]),
        ("selector=importence", ["importence", "importance"]),
        ("recipe=balancd", ["balancd", "balanced"]),
        ("until=illumnate", ["illumnate", "illuminate"]),
        ("source=", ["source"]),
        ("source=modle", ["modle", "model"]),
        ("data=missing.jsonl", ["missing.jsonl"]),
        ("seed=one", ["seed", "one"]),
        ("size=7Q", ["only one", "size=7Q"]),
        ("ffn", ["ffn"]),
        ("--nonsense", ["nonsense"]),
    ],
)
def test_d18_a_wrong_key_or_value_is_one_line(override, words, refused, model, answers):
    run = ("source=model", f"data={answers}", "output=out", "ffn=0.75", "codec=q8")
    line = refused(*run, override)
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("left_out", "word"), [("source", "source="), ("data", "data="), ("output", "output="), ("ffn", "ffn=")]
)
def test_d18_what_is_missing_is_named(left_out, word, refused, model, answers):
    run = {"source": "model", "data": str(answers), "output": "out", "ffn": "0.75"}
    assert f"missing {word}" in refused(*(f"{k}={v}" for k, v in run.items() if k != left_out)).replace(
        "missing a target: one of ", "missing "
    )
