"""convert: a GGUF file written with the public package becomes the folder of the same model."""

import json

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants
from stage_jobs import job

from prune.data.render import load_tokenizer
from prune.errors import UsageError
from prune.nn.model import LazyModel
from prune.stages.convert import Convert
from prune.tiny import CHAT_TEMPLATE, tiny, tiny_model

torch.set_num_threads(1)
WIDTH, HIDDEN, HEADS, KEYS = 192, 64, 4, 2
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    for theirs, ours in NAMES.items():
        if theirs in name:
            layer = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
            return f"{layer}{ours}.weight"
    raise KeyError(name)


def interleaved(weight, heads):
    """Llama's rotary halves as GGUF keeps them: pairs side by side."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, model, tokenizer, kind):
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(2)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(258)
    vocab = json.loads(tokenizer.read_text())["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*sorted(vocab, key=vocab.get), "ab"])  # a merge, as the format wants one
    writer.add_token_types([3] + [1] * 257)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in model.state_dict().items():
        weight = tensor.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            weight = interleaved(weight, HEADS if "q_proj" in name else KEYS)
        if weight.ndim == 1:
            writer.add_tensor(gguf_name(name), weight)
        else:
            data = quants.quantize(np.ascontiguousarray(weight), GGMLQuantizationType[kind])
            writer.add_tensor(gguf_name(name), data, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("kind", "bits", "error"), [("F16", 16, 0.01), ("Q8_0", 8.5, 0.02)])
def test_the_folder_is_the_model_of_the_file(tmp_path, kind, bits, error):
    tokenizer = tiny(tmp_path / "m") / "tokenizer.json"
    model = tiny_model("llama", intermediate_size=WIDTH, vocab_size=258, tie_word_embeddings=False)
    path = write_gguf(tmp_path / "x.gguf", model, tokenizer, kind)
    assert not Convert().idle({}, {"source": path}) and Convert().idle({}, {"source": tmp_path})
    facts = Convert().run(job(tmp_path / "out", {"source": path}, {}))
    assert facts["bits_per_weight"] == pytest.approx(bits)
    folder = tmp_path / "out" / "source"
    converted = LazyModel(folder)
    assert {e.dtype for e in converted.checkpoint.entries.values()} == {"BF16"}
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config and config["intermediate_size"] == WIDTH
    assert str(tmp_path) not in (folder / "config.json").read_text()
    ids = torch.arange(1, 40).unsqueeze(0)
    with torch.no_grad():
        want, got = model(input_ids=ids).logits, converted.pin()(input_ids=ids).logits
    assert float((got - want).norm() / want.norm()) < error
    assert load_tokenizer(folder).eos_token_id == 0 and load_tokenizer(folder).chat_template == CHAT_TEMPLATE


def test_an_architecture_that_transformers_does_not_read(tmp_path):
    path = tmp_path / "x.gguf"
    writer = GGUFWriter(path, "nonesuch")
    writer.add_tensor("a.weight", np.ones((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UsageError, match=r"x\.gguf: transformers cannot read it"):
        Convert().run(job(tmp_path / "out", {"source": path}, {}))
