"""Our decode loop against transformers' own, one prompt at a time."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
)

from prune.nn.generate import generate

LLAMA = LlamaConfig(
    vocab_size=257,
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    initializer_range=0.3,
    tie_word_embeddings=False,
)
GPT2 = GPT2Config(
    vocab_size=257,
    n_embd=64,
    n_layer=2,
    n_head=4,
    n_positions=64,
    initializer_range=0.3,
    tie_word_embeddings=False,
)
GEMMA3 = Gemma3TextConfig(
    vocab_size=257,
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    sliding_window=8,
    layer_types=["sliding_attention", "full_attention"],
    initializer_range=0.3,
    tie_word_embeddings=False,
)
LENGTHS = (3, 17, 1, 9, 9, 30, 5)


@pytest.fixture(scope="module", params=[LLAMA, GPT2, GEMMA3], ids=["llama", "gpt2", "gemma3"])
def model(request):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = AutoModelForCausalLM.from_config(request.param).eval()
    found.generation_config = GenerationConfig()
    return found


def prompts():
    torch.manual_seed(1)
    return [torch.randint(1, 257, (n,)).tolist() for n in LENGTHS]


def ours(model, asked, eos, sampling=None, **more):
    count = len(asked)
    options = {"max_tokens": 24, "batch": 3, "seeds": list(range(count))} | more
    rows = generate(model, asked, eos=eos, sampling=sampling or [{}] * count, **options)
    return {index: (ids, finish) for index, ids, finish in rows}


def theirs(model, prompt, eos):
    out = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=24,
        do_sample=False,
        eos_token_id=sorted(eos),
        pad_token_id=0,
    )[0, len(prompt) :].tolist()
    return (out[:-1], "stop") if out[-1] in eos else (out, "length")


def test_greedy_equals_transformers_on_ragged_prompts(model):
    asked = prompts()
    eos = frozenset(
        range(0, 257, 16)
    )  # about one token in sixteen ends a row: rows finish at different times
    expected = {i: theirs(model, p, eos) for i, p in enumerate(asked)}
    assert ours(model, asked, eos) == expected
    assert {finish for _, finish in expected.values()} >= {"stop"}
    assert len({len(ids) for ids, _ in expected.values()}) > 1, "the batch never shrank"


def test_a_row_does_not_depend_on_its_neighbours_draws(model):
    asked = prompts()
    sampling = [{"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_p": 0.01}] * len(asked)
    together = ours(model, asked, frozenset({0}), sampling)
    for i, prompt in enumerate(asked):
        alone = ours(model, [prompt], frozenset({0}), sampling[:1], seeds=[i])
        assert alone[0] == together[i]
    other = ours(model, asked, frozenset({0}), sampling, seeds=[7] * len(asked))
    assert other != together


def test_skipped_rows_change_nothing_for_the_others(model):
    asked = prompts()
    whole = ours(model, asked, frozenset({0, 1, 2}))
    part = ours(model, asked, frozenset({0, 1, 2}), skip=frozenset({0, 2, 5}))
    assert part == {i: row for i, row in whole.items() if i not in {0, 2, 5}}


def test_only_batches_with_a_wanted_row_are_decoded(model, monkeypatch):
    asked = prompts()
    shapes = []
    forward = type(model).forward

    def spy(self, input_ids=None, **more):
        shapes.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **more)

    monkeypatch.setattr(type(model), "forward", spy)
    shortest = sorted(range(len(asked)), key=lambda i: (LENGTHS[i], i))[:3]
    assert ours(model, asked, frozenset(), skip=frozenset(shortest)).keys() == set(range(7)) - set(shortest)
    assert (3, 5) not in shapes and (3, 17) in shapes


def test_the_context_ends_a_row():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(GPT2).eval()
    rows = ours(model, [[5] * 60, [5, 6]], frozenset(), max_tokens=100)
    assert {i: (len(ids), why) for i, (ids, why) in rows.items()} == {0: (4, "length"), 1: (62, "length")}


def test_repetition_penalty_is_applied_to_a_greedy_row(model):
    asked = prompts()
    plain = ours(model, asked, frozenset())
    penalised = ours(model, asked, frozenset(), [{"repetition_penalty": 5.0}] * len(asked))
    assert penalised != plain
    for i, prompt in enumerate(asked):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=24, do_sample=False, repetition_penalty=5.0, pad_token_id=0
        )
        assert penalised[i][0] == expected[0, len(prompt) :].tolist()


def test_the_caller_is_not_left_in_inference_mode(model):
    rows = generate(model, [[1, 2]], max_tokens=2, eos=frozenset(), sampling=[{}], seeds=[0], batch=1)
    next(rows)
    assert not torch.is_inference_mode_enabled()
