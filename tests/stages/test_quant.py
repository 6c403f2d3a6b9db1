"""quant on a tiny model: what the codec gets, what stays, what is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file
from stage_jobs import AS_IS, F16, Q8, job, quant
from transformers import AutoModelForCausalLM

from prune.errors import StageError, UsageError
from prune.nn.folder import kept_entries, matrices
from prune.nn.model import LazyModel, load
from prune.parts import build
from prune.stages.quant import Quant
from prune.tiny import save_tiny, tiny, tiny_model

torch.set_num_threads(1)


def test_q8_stores_every_matrix_of_the_layers_and_nothing_else(tmp_path):
    source = tiny(tmp_path / "m", "qwen2", "bfloat16")
    notices = []
    weights, facts = quant(source, tmp_path / "q", Q8, notices)
    model = LazyModel(source)
    encoded, kept = matrices(model), kept_entries(model)
    assert facts["matrices"] == len(encoded) == 14
    before, after = load_file(source / "model.safetensors"), load_file(weights / "model.safetensors")
    assert facts["bytes"] == sum(t.numel() * t.element_size() for t in after.values())
    for name in kept:
        if name not in encoded:
            assert torch.equal(after.pop(name), before[name]), name
    codec = build(Q8)
    for name, matrix in encoded.items():
        parts = {n: after.pop(n) for n in codec.parts(matrix)}
        want = codec.encode(matrix, before[name])
        assert all(torch.equal(parts[n], want[n]) for n in parts)
    assert not after and notices == ["176 columns: groups of 16", "64 columns: groups of 64"]
    config = json.loads((weights / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_f16_is_half_of_every_float_tensor(tmp_path, family):
    source = tiny(tmp_path / "m", family)
    weights, _ = quant(source, tmp_path / "q", F16)
    before, after = load_file(source / "model.safetensors"), load_file(weights / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(after[n], t.half()) for n, t in before.items())
    assert json.loads((weights / "config.json").read_text())["dtype"] == "float16"
    model = AutoModelForCausalLM.from_pretrained(weights, trust_remote_code=False)
    assert model.dtype == torch.float16


def test_widths_that_differ_survive(tmp_path):
    from prune.nn.skeleton import WIDTHS

    source = tiny(tmp_path / "m")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {WIDTHS: [176, 176]}))
    weights, _ = quant(source, tmp_path / "q", Q8)
    assert json.loads((weights / "config.json").read_text())[WIDTHS] == [176, 176]
    ids = torch.arange(1, 20).unsqueeze(0)
    with torch.no_grad():
        assert (load(weights)(input_ids=ids).logits - load(source)(input_ids=ids).logits).abs().max() < 0.1


def test_small_shards_are_indexed(tmp_path):
    source = tiny(tmp_path / "m")
    options = {"codec": F16, "save.shard": "60KB"}
    Quant().run(job(tmp_path / "q", {"weights": source}, options))
    out = tmp_path / "q" / "weights"
    files = list(out.glob("model-*.safetensors"))
    assert len(files) > 2 and (out / "model.safetensors.index.json").is_file()
    assert len(LazyModel(out).names) == len(LazyModel(source).names)


def test_none_asks_nothing():
    assert Quant().idle({"codec": AS_IS}, {}) and not Quant().idle({"codec": Q8}, {})


def test_a_matrix_that_the_format_cannot_say_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"codec: transformer\.h\.0\.attn\.c_attn.*use f16"):
        quant(tiny(tmp_path / "m", "gpt2"), tmp_path / "q", Q8)


@pytest.mark.parametrize("codec", [F16, Q8])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 7e4])
def test_a_weight_that_does_not_fit_stops_it_by_name(tmp_path, codec, bad):
    if codec is Q8 and bad == 7e4:
        pytest.skip("fits a scale in float32")
    model = tiny_model()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = bad
    with pytest.raises(StageError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        quant(save_tiny(model, tmp_path / "m"), tmp_path / "q", codec)


def test_a_float_beyond_the_codecs_dtype_stops_it_by_name(tmp_path):
    """f16 holds norms and embeddings too."""
    model = tiny_model()
    with torch.no_grad():
        model.model.norm.weight[3] = 1e6
    with pytest.raises(StageError, match=r"model\.norm\.weight"):
        quant(save_tiny(model, tmp_path / "m"), tmp_path / "q", F16)
