import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from prune.argv import tidy
from prune.errors import UsageError


@pytest.mark.parametrize("given", ["+selector=dtgma", "selector=dtgma", "++selector=dtgma"])
def test_plus_is_optional(given):
    assert tidy([given]) == ["selector=dtgma"]


def test_flags_may_stand_anywhere_with_their_values():
    assert tidy(["ffn=0.5", "-m", "+codec=q8,q4"]) == ["-m", "ffn=0.5", "codec=q8,q4"]
    assert tidy(["ffn=0.5", "--cfg", "job", "seed=1"]) == ["--cfg", "job", "ffn=0.5", "seed=1"]


def test_plus_of_other_keys_is_kept():
    assert tidy(["+codec.x=1", "+selector@a=b", "~heal"]) == ["+codec.x=1", "+selector@a=b", "~heal"]


@pytest.mark.parametrize("flags", [["--cfg"], ["--cfg", "jobs"], ["--mutlirun"], ["--config-dir"]])
def test_a_wrong_flag_is_one_error(flags):
    with pytest.raises(UsageError, match="prune --help"):
        tidy(flags)


def parsed(argument):
    return OverridesParser.create().parse_override(argument)


@given(st.text(st.characters(exclude_characters="\0$", exclude_categories=["Cs"]), min_size=1))
def test_any_path_survives_hydras_grammar(path):
    if path == "null" or (path[0] == path[-1] and path[0] in "'\"" and len(path) > 1):
        return  # null unsets; what is quoted for Hydra already stays so
    (argument,) = tidy([f"source={path}"])
    assert parsed(argument).value() == path
    assert not parsed(argument).is_sweep_override()


def test_null_and_hydras_own_quotes_pass():
    assert tidy(["eval.general=null", "output='a,b'"]) == ["eval.general=null", "output='a,b'"]
    assert tidy(["output="]) == ["output="]


def swept(*argv):
    override = parsed(tidy(["-m", *argv])[1])
    if not override.is_sweep_override():
        return override.value()
    return [getattr(v, "text", v) for v in override.sweep_iterator()]


def test_commas_sweep_paths_in_a_multirun_only():
    assert swept("source=a=1,it's") == ["a=1", "it's"]
    assert swept("output=out/${hydra:job.num}") == "out/${hydra:job.num}"
    assert swept("output=out/${f:1,2}") == "out/${f:1,2}"
    assert swept("source=choice(a,b)") == ["a", "b"]
