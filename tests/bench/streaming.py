"""Peak memory of illuminate, fold and quant on a model that is larger than what they may use.

    python tests/bench/streaming.py FOLDER --gigabytes 12

Makes a random bfloat16 Llama of at least that size in FOLDER/model, tensor by tensor, and teacher data of
random tokens; runs ``prune … stream.resident=never until=quant`` and prints the peak resident memory
(mapped files included) of the process of each stage.
"""

import argparse
import json
import subprocess
import threading
import time
from pathlib import Path

import psutil
import torch
from transformers import LlamaConfig

from prune.data.records import Record, write
from prune.data.render import Renderer, load_tokenizer, tokenizer_hash
from prune.nn.shards import ShardWriter
from prune.nn.skeleton import skeleton
from prune.tiny import byte_tokenizer

HIDDEN, WIDTH, VOCAB = 4096, 4096, 32000


def make_model(folder: Path, gigabytes: float) -> None:
    layer = 2 * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * HIDDEN // 4 + 3 * HIDDEN * WIDTH)
    layers = int((gigabytes * 1e9 - 2 * HIDDEN * VOCAB) / layer) + 1
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True, dtype="bfloat16",
        bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    config.architectures = ["LlamaForCausalLM"]
    folder.mkdir(parents=True)
    config.save_pretrained(folder)
    byte_tokenizer(folder)
    specs = {
        n: ("BF16", tuple(p.shape)) for n, p in skeleton(config).named_parameters() if n != "lm_head.weight"
    }
    generator = torch.Generator().manual_seed(0)
    with ShardWriter(folder, specs, 2 * 10**9) as writer:
        for name, (_, shape) in specs.items():
            ones = name.endswith("norm.weight")
            writer.put(name, torch.ones(shape) if ones else 0.02 * torch.randn(shape, generator=generator))


def make_data(folder: Path, model: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    records = []
    for split, count in (("train", 4), ("val", 2), ("test", 2)):
        for i in range(count):
            ids = torch.randint(1, 257, (128,), generator=generator).tolist()
            name = f"{split}{i}"
            turn = [{"role": "user", "content": "random"}]
            records.append(Record(name, name, 0, split, None, turn, ids, 64, 0, 64, "stop", {}))
    tokenizer = load_tokenizer(model)
    facts = {
        "teacher": {"name": "random", "sampling": "none", "max_tokens": 64},
        "tokenizer": tokenizer_hash(tokenizer), "template": Renderer(tokenizer).template_hash,
        "salt": "", "counts": {}, "rejected": {}, "warnings": [],
    }  # fmt: skip
    write(folder, records, [], facts)


def watch(process: psutil.Process, peaks: dict[str, float], cache: Path) -> None:
    """The resident memory of the newest stage's child, by the scratch folder that it works in."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        stage = next((p.name.split("-")[0].lstrip(".") for p in cache.glob("*part*")), "check")
        for child in process.children(recursive=True):
            try:
                peaks[stage] = max(peaks.get(stage, 0), child.memory_info().rss / 1e9)
            except psutil.Error:
                continue
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=12)
    options = parser.parse_args()
    root = options.folder
    if not (root / "model").exists():
        make_model(root / "model", options.gigabytes)
        make_data(root / "data", root / "model")
    size = sum(p.stat().st_size for p in (root / "model").glob("*.safetensors"))
    paths = [f"source={root / 'model'}", f"data={root / 'data'}", f"cache={root / 'cache'}"]
    choices = ["ffn=0.75", "codec=q8", "fold.ridge=[0.1]", "stream.resident=never", "stream.states=1MB"]
    begin = time.monotonic()
    process = subprocess.Popen(["prune", *paths, *choices, "until=quant"])
    peaks: dict[str, float] = {}
    watcher = threading.Thread(target=watch, args=(psutil.Process(process.pid), peaks, root / "cache"))
    watcher.start()
    code = process.wait()
    watcher.join()
    found = {"exit": code, "model GB": size / 1e9, "seconds": time.monotonic() - begin, "peak GB": peaks}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
