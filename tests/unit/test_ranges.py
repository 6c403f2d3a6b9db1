"""Every option of a run has its range, and a value out of it is refused by name before anything is read."""

from dataclasses import fields

import pytest

from prune import options, ranges
from prune.config import check
from prune.errors import UsageError
from prune.parts import build

GROUPS = {
    "illuminate": options.IlluminateOptions,
    "target": options.TargetOptions,
    "bake": options.BakeOptions,
    "plan": options.PlanOptions,
    "fold": options.FoldOptions,
    "save": options.SaveOptions,
    "stream": options.StreamOptions,
    "eval": options.EvalOptions,
}
ANYTHING = {
    "eval.general",
    "eval.compare",
    "eval.gates",
    "fold.ridge",
}  # paths, limits, and a check of its own
BASE = ("source=m", "data=p.jsonl", "output=o", "ffn=0.75")


def test_no_option_is_without_a_range():
    leaves = {f"{group}.{f.name}" for group, cls in GROUPS.items() for f in fields(cls)}
    assert leaves == (leaves & {*ranges.CHOICES, *ranges.NUMBERS, *ranges.PARSED}) | ANYTHING


def test_the_defaults_pass(config):
    assert list(ranges.faults(check(config(*BASE)))) == []


BAD = [
    *(f"{key}=foo" for key in (*ranges.CHOICES, *ranges.PARSED)),
    *(f"{key}={least - 1:g}" for key, (least, _) in ranges.NUMBERS.items()),
    "target.max_nll_rise=0", "target.max_nll_rise=-5%",
    "plan.min_width=1.5", "plan.min_width=nan", "fold.ridge=[]", "fold.ridge=[0.1,-1]", "fold.ridge=[nan]",
    "fold.ridge=[inf]", "ffn=0", "ffn=nan", "ffn=inf", "ffn=-1",
]  # fmt: skip


@pytest.mark.parametrize("argument", BAD)
def test_a_value_out_of_range_is_refused_by_name(config, argument):
    key = argument.partition("=")[0]
    others = ("ffn=null",) if key.startswith("target.") else ()
    with pytest.raises(UsageError, match=rf"^{key}[=:].*give"):
        check(config(*BASE, *others, argument))


GOOD = [
    "fold.ridge=[0,2.5]",
    "illuminate.tokens=0",
    "illuminate.tokens=null",
    "plan.min_width=0",
    "eval.prompts=0",
]


@pytest.mark.parametrize("argument", [*GOOD, "save.shard=4GiB", "dtype=bf16", "fold.refit=off", "threads=0"])
def test_a_value_in_range_passes(config, argument):
    check(config(*BASE, argument))


def test_all_faults_show_at_once(config):
    with pytest.raises(UsageError) as caught:
        check(config(*BASE, "fold.refit=foo", "illuminate.window=0", "save.shard=1XB"))
    assert all(part in str(caught.value) for part in ("fold.refit=foo", "illuminate.window=0", "'1XB'"))


def test_what_a_part_refuses_is_the_users_to_mend():
    with pytest.raises(UsageError, match=r"codec\.group=4: give 8 or more"):
        build({"_target_": "prune_plugins.codec.q8.Q8", "group": 4})
