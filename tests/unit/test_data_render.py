"""One BOS, one reasoning block, and a loss that counts what it says."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from prune.data.finalize import judge
from prune.data.prompts import Prompt
from prune.data.questions import Asked
from prune.data.records import Record, Rejected
from prune.data.render import Renderer, load_tokenizer, sample_text, tokenizer_hash
from prune.parts import Answer, Question

TURNS = [{"role": "user", "content": "Why?"}]
BOS_TEMPLATE = (
    "<s>{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}"
    "{% if m['role'] == 'assistant' %}<end>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
#: Strips reasoning from every assistant turn, as the templates of reasoning models do.
THINK_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]"
    "{% if m['role'] == 'assistant' %}{{ m['content'].split('</think>')[-1] }}<end>"
    "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
OPENING_TEMPLATE = BOS_TEMPLATE.replace("[assistant]{% endif %}", "[assistant]<think>\n{% endif %}")


def tokenizer(folder, template=None, marks=False, bos=True):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(["</s>", "<s>", "<end>", *letters])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["</s>", "<s>", "<end>"])
    if marks:
        made.add_tokens(["<think>", "</think>"])
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "</s>",
        "bos_token": "<s>",
        "add_bos_token": bos,
        "additional_special_tokens": ["<end>"],
    }
    if template:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return load_tokenizer(folder)


def judged(renderer, answer, context=10_000, messages=TURNS):
    ids = renderer.prompt(messages)
    asked = Asked(
        Question("r", messages, ids, {}, 0),
        Prompt(tuple(messages), "p", "f:1"),
        0,
        fits=len(ids) + 2 <= context,
    )
    return judge(asked, answer, "train", renderer, context)


def said(text="Because.", reasoning=None, finish="stop", ids=()):
    return Answer("r", ids, text, finish, {"reasoning": reasoning} if reasoning else {})


def shown(renderer, record, loss_on):
    start, stop = record.span(loss_on)
    return renderer.tokenizer.decode(record.ids[start:stop])


def test_d10_one_bos_and_the_templates_own_ids(tmp_path):
    found = tokenizer(tmp_path, BOS_TEMPLATE)
    assert found("a").input_ids[0] == 1, "this tokenizer adds a BOS of its own"
    renderer = Renderer(found)
    ids = renderer.prompt(TURNS)
    assert ids == found.apply_chat_template(TURNS, add_generation_prompt=True, return_dict=False)
    assert ids[0] == 1 and ids.count(1) == 1
    assert found.decode(ids) == "<s>[user]Why?[assistant]"
    record = judged(renderer, said())
    assert record.ids[: len(ids)] == ids and record.ids.count(1) == 1


def test_d10_a_prompt_without_template_is_its_text_after_the_tokenizers_bos(tmp_path):
    renderer = Renderer(tokenizer(tmp_path))
    assert renderer.tokenizer.decode(renderer.prompt(TURNS)) == "<s>Why?"
    assert renderer.prompt([{"role": "user", "content": "<s>Why?"}]).count(1) == 1
    (tmp_path / "no").mkdir()
    bare = Renderer(tokenizer(tmp_path / "no", bos=False))
    assert bare.tokenizer.decode(bare.prompt(TURNS)) == "Why?" and bare.end == 0


def test_the_end_of_turn_is_the_templates_own(tmp_path):
    assert Renderer(tokenizer(tmp_path, BOS_TEMPLATE)).end == 2


@pytest.mark.parametrize("marks", [True, False], ids=["marks in the vocabulary", "marks as text"])
def test_d10_reasoning_of_its_own_field_appears_once_and_is_masked_as_asked(tmp_path, marks):
    renderer = Renderer(tokenizer(tmp_path, THINK_TEMPLATE, marks=marks))
    record = judged(renderer, said(reasoning="Hm."))
    text = renderer.tokenizer.decode(record.ids)
    assert text == "[user]Why?[assistant]<think>\nHm.\n</think>\n\nBecause.<end>"
    assert shown(renderer, record, "answer") == "\n\nBecause.<end>"
    assert shown(renderer, record, "generated") == "<think>\nHm.\n</think>\n\nBecause.<end>"
    assert shown(renderer, record, "all") == text[1:]
    assert record.n_prompt + record.n_think + record.n_answer == len(record.ids)


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [("<think>\nHm.\n</think>\n\nBecause.", None), ("<think>\nHm.\n</think>\n\nBecause.", "Hm.")],
)
def test_d10_marks_inside_the_text_are_not_doubled(tmp_path, text, reasoning):
    renderer = Renderer(tokenizer(tmp_path, THINK_TEMPLATE, marks=True))
    record = judged(renderer, said(text, reasoning))
    assert renderer.tokenizer.decode(record.ids).count("<think>") == 1
    assert shown(renderer, record, "answer") == "\n\nBecause.<end>"


def test_d10_a_template_that_opens_the_block_itself(tmp_path):
    renderer = Renderer(tokenizer(tmp_path, OPENING_TEMPLATE, marks=True))
    record = judged(renderer, said(reasoning="Hm."))
    assert (
        renderer.tokenizer.decode(record.ids)
        == "<s>[user]Why?[assistant]<think>\nHm.\n</think>\n\nBecause.<end>"
    )
    assert shown(renderer, record, "generated").startswith("Hm.\n</think>")
    generated = renderer.tokenizer("Hm.</think>Yes", add_special_tokens=False).input_ids
    assert judged(renderer, said("…", ids=generated)).n_think == len(generated) - 3
    assert judged(renderer, said("…", ids=generated[:3])).reason == "unpaired marks of reasoning"


def test_think_false_closes_the_block_in_the_prompt(tmp_path):
    found = tokenizer(tmp_path, THINK_TEMPLATE, marks=True)
    quiet, loud = Renderer(found, think=False), Renderer(found)
    assert quiet.tokenizer.decode(quiet.prompt(TURNS)).endswith("<think>\n\n</think>\n\n")
    assert quiet.template_hash != loud.template_hash
    record = judged(quiet, said())
    assert record.n_think == 0 and shown(quiet, record, "generated") == "Because.<end>"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said(finish="length"), "truncated"),
        (said("  "), "empty"),
        (said("", reasoning="Hm."), "empty"),
        (said(finish="error"), "failed"),
        (None, "failed"),
        (said("a <think> b"), "unpaired marks of reasoning"),
    ],
)
def test_unusable_answers_are_rejected_with_the_reason(tmp_path, answer, reason):
    found = judged(Renderer(tokenizer(tmp_path, THINK_TEMPLATE, marks=True)), answer)
    assert isinstance(found, Rejected) and found.reason == reason


def test_an_answer_past_the_context_is_rejected(tmp_path):
    renderer = Renderer(tokenizer(tmp_path, BOS_TEMPLATE))
    whole = judged(renderer, said())
    assert isinstance(judged(renderer, said(), context=len(whole.ids)), Record)
    assert judged(renderer, said(), context=len(whole.ids) - 1).reason == "longer than the context"
    assert judged(renderer, None, context=5).reason == "prompt longer than the context"


def test_a_sample_shows_what_the_loss_counts(tmp_path):
    renderer = Renderer(tokenizer(tmp_path, BOS_TEMPLATE))
    text = sample_text(judged(renderer, said()), renderer.tokenizer, "generated")
    assert text == "<s>[user]Why?[assistant]⟦Because.<end>⟧"


def test_a_template_that_refuses_says_so(tmp_path):
    renderer = Renderer(tokenizer(tmp_path, "{{ raise_exception('no system turn') }}"))
    with pytest.raises(ValueError, match="no system turn"):
        renderer.prompt(TURNS)


def test_equal_tokenizers_have_equal_hashes(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = tokenizer(tmp_path / "a"), tokenizer(tmp_path / "b", BOS_TEMPLATE)
    assert tokenizer_hash(first) == tokenizer_hash(second)
    (tmp_path / "b" / "tokenizer.json").unlink()
    assert tokenizer_hash(first) != tokenizer_hash(tokenizer(tmp_path / "b", marks=True))
