"""A config.json that lies: only a PruneError comes out, or a model that fits its weights."""

import json

import pytest
from fuzzing import is_one_line, quick
from hypothesis import given
from hypothesis import strategies as st

from prune.errors import PruneError
from prune.nn.model import LazyModel, read_config
from prune.tiny import FAMILIES, tiny

QUICK = quick(60)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),  # more layers than that only take long to refuse
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-2, 300) | st.text(max_size=4), max_size=3),
    st.dictionaries(st.text(max_size=8), st.integers(-2, 9) | st.text(max_size=4), max_size=2),
)
EXTRA = [
    "ffn_widths",
    "quantization_config",
    "auto_map",
    "rope_parameters",
    "layer_types",
    "torch_dtype",
    "dtype",
]


@pytest.fixture(scope="module", params=["llama", "gemma3_text", "gpt2"])
def sound(request, tmp_path_factory):
    folder = tiny(tmp_path_factory.mktemp("c") / "m", request.param)
    return folder, json.loads((folder / "config.json").read_text())


def only_prune_errors(folder):
    try:
        read_config(folder)
        LazyModel(folder)
    except PruneError as e:
        assert is_one_line(e)


@QUICK
@given(data=st.data())
def test_one_or_two_keys_lie(sound, data):
    folder, config = sound
    keys = st.sampled_from([*sorted(config), *EXTRA])
    lies = data.draw(st.dictionaries(keys, VALUES, min_size=1, max_size=2))
    (folder / "config.json").write_text(json.dumps(config | lies))
    only_prune_errors(folder)


@QUICK
@given(data=st.data())
def test_a_key_is_gone(sound, data):
    folder, config = sound
    gone = data.draw(st.sets(st.sampled_from(sorted(config)), min_size=1, max_size=3))
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in gone}))
    only_prune_errors(folder)


@QUICK
@given(kind=st.sampled_from([*FAMILIES, "bert", "t5", "nope", "../llama", ""]) | VALUES)
def test_any_model_type(sound, kind):
    folder, config = sound
    (folder / "config.json").write_text(json.dumps(config | {"model_type": kind}))
    only_prune_errors(folder)
