"""What one candidate loses against its source on held-out records; fold.py runs it in a process of its own.

    python tests/bench/compare.py SOURCE ANSWERS STATES (--folder MODEL | --peer NAME --neurons N --tokens N)

Prints one JSON object: NLL and KL(source || candidate) summed over the answer tokens of each test record, in
nats, full vocabulary, float32; how many tokens those are; parameters; for a peer the seconds it took and the
peak memory. STATES keeps the source's last hidden states at those tokens, so that the source runs once.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import torch
from peers import PEERS
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from prune.data.calibration import calibration
from prune.data.records import read
from prune.nn.windows import Text, batched, targets

WINDOW, BATCH = 2048, 2048
ROWS = 256  #: positions whose logits are in memory at a time


def load(folder):
    how = {"dtype": torch.float32, "local_files_only": True, "trust_remote_code": False}
    return AutoModelForCausalLM.from_pretrained(folder, **how).eval().requires_grad_(False)


def peer(source, answers, name, neurons, tokens):
    """The source after a peer went over it, its weights rounded as the source's are; what that took."""
    model, stored = load(source), AutoConfig.from_pretrained(source).dtype
    options = {"window": WINDOW, "tokens": tokens}
    train, _ = calibration(answers, options, model.config.intermediate_size)
    begin = time.monotonic()
    PEERS[name](model, train, neurons)
    seconds = time.monotonic() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    for parameter in model.parameters():
        parameter.data = parameter.data.to(stored).float()
    return model.requires_grad_(False), {"seconds": seconds, "peak": peak}


def held_out(answers):
    """The test records' texts and their batches."""
    texts = [Text(r.ids, *r.span("generated")) for r in read(answers, "test")]
    return texts, batched(texts, WINDOW, BATCH)


def states(model, texts, batches):
    """Last hidden states at the positions that predict an answer token, [n, D] a batch."""
    for batch in batches:
        with torch.inference_mode():
            hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        yield hidden[targets(batch, texts).roll(-1, dims=1)]


def source_states(source, texts, batches, kept):
    """Those of the source, from the file ``kept`` or computed and written there; and its head [V, D]."""
    model = load(source)
    if not kept.exists():
        found = states(model, texts, batches)
        save_file({str(b): rows.contiguous() for b, rows in enumerate(found)}, kept)
    return load_file(kept), model.lm_head


def losses(candidate, head, known, texts, batches):
    """(NLL, KL) summed over the counted tokens of each text."""
    nll, kl = (torch.zeros(len(texts), dtype=torch.float64) for _ in range(2))
    for b, rows in enumerate(states(candidate, texts, batches)):
        batch, counted = batches[b], targets(batches[b], texts)
        owner = torch.tensor([w.record for w in batch.windows])[counted.nonzero()[:, 0]]
        parts = zip(*(t.split(ROWS) for t in (rows, known[str(b)], batch.ids[counted], owner)), strict=True)
        for own, theirs, wanted, record in parts:
            with torch.inference_mode():
                q, p = candidate.lm_head(own).log_softmax(-1), head(theirs).log_softmax(-1)
                nll.index_add_(0, record, -q.gather(1, wanted[:, None])[:, 0].double())
                kl.index_add_(0, record, (p.exp() * (p - q)).sum(-1).double())
    return nll.tolist(), kl.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("states", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--peer", choices=PEERS)
    parser.add_argument("--neurons", type=int)
    parser.add_argument("--tokens", type=int)
    asked = parser.parse_args()
    if asked.peer:
        model, cost = peer(asked.source, asked.answers, asked.peer, asked.neurons, asked.tokens)
    else:
        model, cost = load(asked.folder), {}
    texts, batches = held_out(asked.answers)
    known, head = source_states(asked.source, texts, batches, asked.states)
    nll, kl = losses(model, head, known, texts, batches)
    parameters = sum(p.numel() for p in model.parameters())
    tokens = [t.stop - t.start for t in texts]
    print(json.dumps({"nll": nll, "kl": kl, "tokens": tokens, "parameters": parameters, **cost}))


if __name__ == "__main__":
    main()
