"""q8 in plain transformers: the same weights and logits to the bit."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from prune.nn.model import LazyModel, load
from prune.nn.packing import pack, unpack
from prune.stage import Job
from prune.stages.quant import Quant
from prune.tiny import tiny

Q8 = {"_target_": "prune_plugins.codec.q8.Q8", "group": 128}


def quantize(source, out, codec=Q8):
    notices = []
    options = {"codec": codec, "save.shard": "1GB", "threads": 0}
    Quant().run(Job(options, {"weights": source}, {}, out, out, notice=notices.append))
    return out / "weights", notices


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("columns", [1, 31, 64, 77])
def test_packing_against_a_bit_string(bits, columns):
    codes = torch.randint(
        0, 1 << bits, (3, columns), dtype=torch.int32, generator=torch.Generator().manual_seed(columns)
    )
    words = pack(codes, bits)
    for row, packed in zip(codes.tolist(), words.tolist(), strict=True):
        stream = "".join(format(c, f"0{bits}b")[::-1] for c in row)
        stream += "0" * (-len(stream) % 32)
        want = [int(stream[i : i + 32][::-1], 2) for i in range(0, len(stream), 32)]
        assert [p % (1 << 32) for p in packed] == want
    assert torch.equal(unpack(words, bits, columns), codes)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3_text", "phi3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_plain_transformers_reads_the_same_model(tmp_path, family, dtype):
    source = tiny(tmp_path / "m", family, dtype)
    out, notices = quantize(source, tmp_path)
    assert any("176 columns: groups of 16" in n for n in notices)
    kind = getattr(torch, dtype)
    plain = AutoModelForCausalLM.from_pretrained(out, dtype=kind, trust_remote_code=False).eval()
    ours = load(out, kind)
    ids = torch.arange(1, 40).unsqueeze(0)
    with torch.no_grad():
        one, two = plain(input_ids=ids).logits, ours(input_ids=ids).logits
        far = load(source, kind)(input_ids=ids).logits
    assert torch.equal(one, two)
    assert 0 < (one - far).abs().max() < 0.1


def test_a_matrix_is_its_declared_grid(tmp_path):
    source = tiny(tmp_path / "m")
    out, _ = quantize(source, tmp_path)
    name = "model.layers.1.mlp.down_proj.weight"
    before, after = LazyModel(source).tensor(name), LazyModel(out).tensor(name)
    step = before.unflatten(1, (-1, 16)).abs().amax(-1, keepdim=True) / 127
    assert ((after - before).unflatten(1, (-1, 16)).abs() <= 0.51 * step).all()
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert {g["weights"]["group_size"] for g in config["config_groups"].values()} == {16, 64}
