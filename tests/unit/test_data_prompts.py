"""Prompt files as people write them."""

import json
import subprocess
import sys
from dataclasses import asdict
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prune.data import make_quickstart, sampling, splits
from prune.data.canonical import spell
from prune.data.fields import SHAPES
from prune.data.prompts import Prompt, read_prompts
from prune.errors import UsageError

TEXTS = [f"question {i} ü λ" for i in range(12)]
LINES = [json.dumps({"prompt": t}, ensure_ascii=False) for t in TEXTS]
PLAIN = "\n".join(LINES) + "\n"


def read(tmp_path, content):
    path = tmp_path / "p.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_prompts(path)


def one(tmp_path, **line):
    (prompt,) = read(tmp_path, json.dumps(line)).prompts
    return prompt


def refused(tmp_path, content, *words):
    with pytest.raises(UsageError) as error:
        read(tmp_path, content)
    message = str(error.value)
    assert len(message) <= 300 and "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        "\n\n" + PLAIN.replace("\n", "\n  \n") + "\n",
        PLAIN.rstrip("\n"),
        "\ufeff\r\n" + PLAIN.replace("\n", "\r\n\t\r\n").rstrip(),
    ],
    ids=["plain", "bom", "crlf", "blank lines", "no final newline", "all"],
)
def test_d11_the_same_prompts_however_the_file_is_written(tmp_path, content):
    found = read(tmp_path, content)
    assert [p.messages[0]["content"] for p in found.prompts] == TEXTS
    assert [p.prompt_id for p in found.prompts] == [p.prompt_id for p in read(tmp_path, PLAIN).prompts]
    assert found.counts == {"assistant_turns_dropped": 0, "duplicates": 0, "lines": 12, "prompts": 12}


def test_d11_schemas_that_mean_the_same_are_the_same_prompt(tmp_path):
    want = one(tmp_path, prompt="Negate: a b").prompt_id
    assert one(tmp_path, messages=[{"role": "user", "content": "Negate: a b"}]).prompt_id == want
    assert one(tmp_path, instruction="Negate: a b").prompt_id == want
    assert one(tmp_path, instruction="Negate: a b", input="").prompt_id == want
    assert one(tmp_path, instruction="Negate:", input="a").messages[0]["content"] == "Negate:\n\na"


def test_a_prompt_id_never_changes(tmp_path):
    """It is in everybody's answer log: another spelling would ask every prompt again."""
    spelled = '[{"content":"hello ü","role":"user"}]'.encode()
    assert one(tmp_path, prompt="hello ü").prompt_id == sha256(spelled).hexdigest()


def test_d11_the_last_assistant_turns_are_dropped_and_counted(tmp_path):
    user, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    found = read(tmp_path, json.dumps({"messages": [user, answer, user, answer, answer]}))
    assert [t["role"] for t in found.prompts[0].messages] == ["user", "assistant", "user"]
    assert found.counts["assistant_turns_dropped"] == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": "x"}', ["no prompt field (found: question)"]),
        ("{}", ["no prompt field (found: nothing)"]),
        ('{"prompt": "  "}', ["empty prompt"]),
        ('{"instruction": "", "input": "x"}', ["empty prompt"]),
        ('{"messages": []}', ["no user turn"]),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', ["no user turn"]),
        ('{"messages": [{"role": "user", "content": " "}]}', ["empty prompt"]),
        ('{"messages": [{"role": "robot", "content": "x"}]}', ["robot"]),
        ('{"messages": [{"role": "user", "content": [1]}]}', ["must be text"]),
        ('{"messages": "x"}', ["list of objects"]),
        ('{"prompt": "a", "messages": []}', ["both prompt and messages"]),
        ('{"prompt": 7}', ["must be text"]),
        ('{"prompt": "a", "split": "dev"}', ["'dev'", "train, val, test"]),
        ('{"prompt": "a", "id": [1]}', ["id must be text"]),
        ('{"prompt": "a", "temperature": "hot"}', ["temperature"]),
        ('{"prompt": "a", "temperature": NaN}', ["temperature"]),
        ('{"prompt": "a", "temperature": 1' + "0" * 400 + "}", ["temperature"]),
        ('{"prompt": "a", "top_p": 1.5}', ["top_p"]),
        ('{"prompt": "a", "top_k": 1.5}', ["top_k"]),
        ('{"prompt": "\\ud800"}', ["surrogate"]),
        ('{"prompt": "a"', ["not valid JSON"]),
        ('["prompt"]', ["expected a JSON object, found list"]),
        ("[" * 100_000, ["not valid JSON"]),
        ('{"prompt": "a", "n": ' + "9" * 5000 + "}", ["not valid JSON"]),
        (b'{"prompt": "\xff"}', ["not UTF-8"]),
    ],
)
def test_d11_a_bad_line_is_named(tmp_path, line, words):
    line = line if isinstance(line, bytes) else line.encode()
    refused(tmp_path, f"{LINES[0]}\n\n".encode() + line + b"\n", "p.jsonl:3: ", *words)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*none\.jsonl: No such file"):
        read_prompts(tmp_path / "none.jsonl")


def test_duplicates_collapse_and_every_left_out_field_is_counted(tmp_path):
    lines = [{"prompt": "a", "answer": "x"}, {"prompt": "b", "answer": "y"}, {"prompt": "a", "id": 3}]
    found = read(tmp_path, "\n".join(map(json.dumps, lines)))
    assert [p.messages[0]["content"] for p in found.prompts] == ["a", "b"]
    assert found.counts["duplicates"] == 1 and found.counts["ignored_field.answer"] == 2


def test_a_prompt_in_two_splits_is_refused(tmp_path):
    refused(
        tmp_path,
        '{"prompt": "a", "split": "train"}\n{"prompt": "a", "split": "test"}',
        "p.jsonl:2",
        "p.jsonl:1",
        "train",
    )


def test_optional_fields_are_kept(tmp_path):
    prompt = one(tmp_path, prompt="a", id=7, category="c", split="val", temperature=0.5, top_k=3)
    assert (prompt.name, prompt.category, prompt.split) == ("7", "c", "val")
    assert prompt.sampling == {"temperature": 0.5, "top_k": 3}


def survives(folder, content):
    try:
        found = read(folder, content)
    except UsageError as error:
        assert len(str(error)) <= 300 and str(error).encode()
    else:
        assert spell([found.counts, [asdict(p) for p in found.prompts]]).encode(), "cannot be stored"


names = st.sampled_from([*SHAPES, "input", "split", "id", "temperature", "\ud800"])
scalars = st.sampled_from([None, True, 0, -1.5, float("nan"), 10**400, "", " ", "a", "train", "\ud800"])
turns = st.dictionaries(st.sampled_from(["role", "content"]), scalars | st.just("user"), max_size=2)
values = scalars | turns | st.lists(turns, max_size=2)
fuzz = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


@fuzz
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    survives(tmp_path_factory.mktemp("fuzz"), content)


@fuzz
@given(
    lines=st.lists(
        st.dictionaries(names, scalars | turns | st.lists(turns, max_size=2), max_size=3), max_size=3
    )
)
def test_any_json_is_read_or_refused(tmp_path_factory, lines):
    survives(tmp_path_factory.mktemp("fuzz"), "\n".join(map(json.dumps, lines)))


def made(n, **fixed):
    return [Prompt(({"role": "user", "content": str(i)},), f"{i:064x}", f"p:{i}", **fixed) for i in range(n)]


def count(prompts):
    found = list(splits.assign(prompts).values())
    return {s: found.count(s) for s in ("train", "val", "test")}


@pytest.mark.parametrize("n", [0, 1, 2])
def test_d12_fewer_prompts_than_splits(n):
    with pytest.raises(UsageError, match=rf"need at least 3 prompts \(train/val/test\), got {n}"):
        splits.assign(made(n))


@pytest.mark.parametrize("n", [3, 4, 5, 12, 40, 320, 2000])
def test_d12_every_split_has_its_least(n):
    found = count(made(n))
    assert sum(found.values()) == n
    assert min(found["val"], found["test"]) >= splits.least(n) and found["train"] >= n / 3


def test_splits_follow_the_hash_and_survive_more_prompts():
    few, many = splits.assign(made(500)), splits.assign(made(2000))
    assert all(many[i] == split for i, split in few.items())
    assert 0.77 < list(many.values()).count("train") / 2000 < 0.83
    assert splits.assign(list(reversed(made(40)))) == splits.assign(made(40))
    assert splits.assign(made(500), salt="other") != few


def test_a_split_field_wins():
    fixed = made(30, split="test")
    free = [Prompt(p.messages, f"{i:064x}", p.where) for i, p in enumerate(made(30), 1000)]
    found = splits.assign([*fixed, *free])
    assert all(found[p.prompt_id] == "test" for p in fixed)
    assert count([*fixed, *free])["val"] >= splits.least(60)


def test_split_fields_that_leave_one_empty_are_refused():
    with pytest.raises(UsageError, match="no prompt is left for val"):
        splits.assign([*made(3, split="test"), *[Prompt((), "f" * 64, "p:9", split="train")]])


def test_small_test_splits_are_called_weak():
    assert "weak evidence: 3 test" in splits.weakness(3) and splits.weakness(splits.WEAK) is None


def test_sampling_choices():
    prompt = Prompt((), "", "p:1", sampling={"top_p": 0.5, "temperature": 1.0})
    assert sampling.settings("greedy", {"temperature": 1}, prompt) == {}
    assert sampling.settings("auto", {"temperature": 1}, prompt) == {"temperature": 1}
    assert sampling.settings("file", {}, prompt) == prompt.sampling
    assert sampling.settings("temperature=0.7, top_p=0.9,top_k=5", {}, prompt) == {
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
    }


@pytest.mark.parametrize(
    "choice", ["greed", "temperature", "temperature=hot", "temperature=-1", "heat=1", ""]
)
def test_a_wrong_sampling_choice_is_refused(choice):
    with pytest.raises(UsageError, match=r"teacher\.sampling: "):
        sampling.settings(choice, {}, Prompt((), "", "p:1"))


def test_the_quickstart_prompts_are_what_their_generator_makes(tmp_path):
    from importlib.resources import files

    shipped = files("prune.data").joinpath("prompts", "quickstart.jsonl").read_text(encoding="utf-8")
    assert "".join(make_quickstart.lines()) == shipped
    found = read(tmp_path, shipped)
    assert found.counts == {"assistant_turns_dropped": 0, "duplicates": 0, "lines": 360, "prompts": 360}


def test_reading_prompts_imports_no_torch():
    code = "import sys, prune.data.splits, prune.data.records\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
