"""Gradients by the walk against plain autograd, and the KL divergence against its definition."""

from contextlib import contextmanager

import pytest
import torch

from prune.nn.backward import Backward, captured
from prune.nn.divergence import divergence
from prune.nn.model import LazyModel, load
from prune.nn.walk import Stream, push_all
from prune.nn.windows import Text, batched
from prune.tiny import tiny

torch.set_num_threads(1)


def texts(lengths=(40, 23, 31)):
    generator = torch.Generator().manual_seed(3)
    return [Text(torch.randint(1, 257, (n,), generator=generator).tolist(), n // 3, n - 1) for n in lengths]


def nll(logits, wanted):
    return torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum")


def counted(model, text):
    """Logits that predict a text's counted tokens, by a plain pass."""
    logits = model(input_ids=torch.tensor([text.ids])).logits[0]
    return logits[text.start - 1 : text.stop - 1]


def read_outs(model, lazy):
    """Outputs of all read-outs of a plain pass over each text, with their gradients kept."""
    found = []

    def keep(_, __, output):
        output.requires_grad_() if not output.requires_grad else None
        output.retain_grad()
        found.append(output)

    hooks = [model.get_submodule(s.read_out).register_forward_hook(keep) for s in lazy.sites]
    return found, hooks


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("budget", [10**9, 0])
def test_gradients_are_those_of_a_plain_pass(tmp_path, family, budget):
    source = tiny(tmp_path / "m", family)
    lazy, model, given = LazyModel(source), load(source), texts()
    found, hooks = read_outs(model, lazy)
    loss = sum(nll(counted(model, t), torch.tensor(t.ids[t.start : t.stop])) for t in given)
    loss.backward()
    layers = len(lazy.sites)
    want = [sum(f.grad[0].T @ f.grad[0] for f in found[i::layers]) for i in range(layers)]
    [h.remove() for h in hooks]

    got = [torch.zeros(64, 64) for _ in range(layers)]

    @contextmanager
    def around(i):
        def hear(g):
            got[i] += g.flatten(0, 1).T @ g.flatten(0, 1)

        with captured(lazy, i, hear):
            yield

    batches = batched(given, 64, 80)
    assert len(batches) > 1
    back = Backward(lazy, batches, given, budget=budget, scratch=tmp_path, around=around)
    total, tokens = back.run(nll)
    back.close()
    assert total == pytest.approx(loss.item(), rel=1e-5)
    assert tokens == sum(t.stop - t.start for t in given)
    for g, w in zip(got, want, strict=True):
        assert torch.allclose(g, w, rtol=1e-3, atol=1e-6 * float(w.abs().max()))
    assert not list(tmp_path.glob("states-*"))


def test_divergence_is_its_definition(tmp_path):
    folders = [tiny(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 1))]
    given = texts()
    streams = [Stream(LazyModel(f), batched(given, 64, 80), 10**9, tmp_path) for f in folders]
    for stream in streams:
        push_all(stream)
        stream.model.pin()
    p, q = ([counted(load(f), t).double().log_softmax(-1) for t in given] for f in folders)
    want = [float((a.exp() * (a - b)).sum()) for a, b in zip(p, q, strict=True)]
    assert divergence(*streams, given) == pytest.approx(want, rel=1e-4)
    assert divergence(streams[0], streams[0].fork(), given) == [0, 0, 0]
