"""What people type and what files hold (sizes, prompts, logs, command lines): only PruneErrors come out."""

import json
from hashlib import sha256

import pytest
from fuzzing import JSON, is_one_line, quick
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from prune.argv import PATHS, tidy
from prune.arithmetic import parse_bytes, parse_count
from prune.data.answers import AnswerLog
from prune.data.prompts import read_prompts
from prune.errors import PruneError, UsageError
from prune.parts import Answer

QUICK = quick(200)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "x.jsonl"


SIZES = st.text(max_size=20) | st.from_regex(
    r"\s*\d{0,30}\.?\d{0,30}\s*[KMGTBkmgtb]{0,2}i?B?\s*", fullmatch=True
)


@QUICK
@given(text=SIZES)
@pytest.mark.parametrize("parse", [parse_bytes, parse_count])
def test_sizes(parse, text):
    try:
        value = parse(text)
    except UsageError as e:
        assert "give" in str(e)
        return
    assert isinstance(value, int) and 0 <= value < 10**30 and f"{value:,}"


FIELDS = st.sampled_from(
    [
        "prompt",
        "messages",
        "instruction",
        "input",
        "id",
        "category",
        "split",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
    ]
)
TURNS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": st.text()}
    )
    | JSON,
    max_size=3,
)
LINES = st.dictionaries(FIELDS | st.text(max_size=6), st.text(max_size=9) | TURNS | JSON, max_size=4)


@QUICK
@given(lines=st.lists(LINES | JSON, min_size=1, max_size=4), end=st.sampled_from(["\n", "\r\n", ""]))
def test_prompt_files_of_json(path, lines, end):
    path.write_bytes("\n".join(map(json.dumps, lines)).encode() + end.encode())
    soundly_read(path)


@QUICK
@given(raw=st.binary(max_size=120) | st.text(max_size=60).map(lambda s: s.encode("utf-8", "surrogatepass")))
def test_prompt_files_of_bytes(path, raw):
    path.write_bytes(raw)
    soundly_read(path)


def soundly_read(path):
    try:
        file = read_prompts(path)
    except PruneError as e:
        assert is_one_line(e) and path.name in str(e)
        return
    for prompt in file.prompts:
        assert prompt.messages[-1]["role"] == "user" and prompt.messages[-1]["content"].strip()
        assert prompt.split in (None, "train", "val", "test")
    assert len({p.prompt_id for p in file.prompts}) == len(file.prompts) == file.counts["prompts"]


GOOD = Answer("r1", [1, 2], "text \u2028 with\x85ends", "stop", {})


@QUICK
@given(data=st.data())
def test_answer_logs(path, data):
    log = path.with_name("log.jsonl")
    log.unlink(missing_ok=True)
    with AnswerLog(log) as opened:
        opened.append(GOOD)
    whole = log.read_bytes()
    kind = data.draw(st.sampled_from(["append", "before", "cut", "flip"]))
    noise = data.draw(st.binary(max_size=80) | JSON.map(signed))
    place = data.draw(st.integers(0, len(whole) - 1))
    if kind == "flip":
        changed = bytearray(whole)
        changed[place] ^= data.draw(st.integers(1, 255))
        log.write_bytes(bytes(changed))
    else:
        log.write_bytes(
            {"append": whole + noise, "before": noise + b"\n" + whole, "cut": whole[:place]}[kind]
        )
    with AnswerLog(log) as opened:
        answers = dict(opened.answers)
        opened.append(Answer("r2", [3], "more", "stop", {}))
    assert all(isinstance(a, Answer) for a in answers.values())
    assert kind in ("cut", "flip") or answers["r1"] == GOOD
    assert "r1" not in answers or answers["r1"] == GOOD, "a damaged line must not count"
    with AnswerLog(log) as opened:
        assert opened.answers["r2"].text == "more" and opened.answers.keys() >= answers.keys()


def test_a_carriage_return_in_a_damaged_line_costs_that_line_alone(path):
    log = path.with_name("returned.jsonl")
    with AnswerLog(log) as opened:
        opened.append(Answer("r0", [1], "first", "stop", {}), GOOD)
    log.write_bytes(log.read_bytes()[:33] + b"\r" + log.read_bytes()[34:])
    size = log.stat().st_size
    with AnswerLog(log) as opened:
        assert opened.answers == {"r1": GOOD} and opened.damaged == 1
    assert log.stat().st_size == size, "a sound answer was cut off"


def signed(value):
    """A line whose checksum holds, whatever it says."""
    body = json.dumps(value)
    return f"{sha256(body.encode()).hexdigest()[:16]} {body}\n".encode()


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
ARGS = st.lists(
    WORDS
    | st.tuples(st.sampled_from([*PATHS, "+selector", "codec", "ffn", "eval.prompts"]), WORDS).map("=".join)
    | st.sampled_from(
        ["-m", "--multirun", "--help", "-c", "--cfg", "job", "--version", "-x", "--", "-", "+", "="]
    ),
    max_size=4,
)


@QUICK
@given(argv=ARGS)
def test_command_lines(argv):
    try:
        tidied = tidy(argv)
    except PruneError as e:
        assert is_one_line(e)
        return
    except SystemExit as e:  # an abbreviated --version
        assert e.code == 0 and any(a.startswith("--v") for a in argv)
        return
    flags = [a.startswith("-") for a in tidied]
    assert (
        (len(tidied) == len(argv) and flags == sorted(flags, reverse=True)) or "-c" in argv or "--cfg" in argv
    )


@QUICK
@given(value=WORDS.filter(lambda v: v not in ("", "null")), key=st.sampled_from(PATHS))
def test_a_path_reaches_hydra_as_it_was_typed(value, key):
    (argument,) = tidy([f"{key}={value}"])
    parsed = OverridesParser.create().parse_override(argument)
    quoted = value[:1] in "'\"" and value[-1:] == value[:1] and len(value) > 1
    assert quoted or parsed.value() == value
