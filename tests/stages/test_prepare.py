"""prepare on a tiny random model: finalized data, resumed to the single answer."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from prune.data import records
from prune.errors import TeacherError, UsageError
from prune.stage import Job
from prune.stages.prepare import Prepare
from prune.tiny import save_tiny, tiny_model
from prune_plugins.teacher.local import Local, LocalOptions

PROMPTS = [f"question {'x' * (i % 5)} {i}" for i in range(12)]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    torch.set_num_threads(1)
    model = tiny_model(seed=3, initializer_range=0.3, tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight[0] *= 3  # the end of a text is likely: answers end, at different lengths
    return save_tiny(model, tmp_path_factory.mktemp("source"))


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS))
    return path


def options(**more):
    return asdict(LocalOptions()) | {"max_tokens": 200, "batch": 4, "sampling": "temperature=1.0"} | more


def job(tmp_path: Path, source: Path, data: Path, name: str = "a", seen=None, **more) -> Job:
    (tmp_path / name).mkdir(parents=True)
    nodes: Mapping[str, object] = {"teacher": options(**more), "seed": 0, "device": "cpu"}
    seen = [] if seen is None else seen
    return Job(
        options=nodes,
        inputs={"source": source, "data": data},
        versions={},
        out=tmp_path / name,
        keep=tmp_path / "keep",
        progress=lambda done, total, **metrics: seen.append((done, total, metrics)),
        notice=lambda text: None,
    )


def tree(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def log_of(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "keep").rglob("*.jsonl")
    return found


def test_a_run_leaves_a_valid_set_and_counts_everything(tmp_path, source, data):
    seen = []
    facts = Prepare().run(job(tmp_path, source, data, seen=seen))
    manifest = records.validate(tmp_path / "a" / "answers")
    assert sum(facts["records"].values()) + sum(facts["rejected"].values()) == 12
    assert all(facts["records"][s] >= 1 for s in ("train", "val", "test"))
    assert facts["warnings"] and "weak evidence" in facts["warnings"][0]
    assert manifest["teacher"]["sampling"] == "temperature=1.0" and manifest["salt"]
    assert seen[-1][:2] == (12, 12) and seen[-1][2]["tokens_per_second"] > 0
    assert not any(str(tmp_path) in p.read_text() for p in (tmp_path / "a").rglob("*.json*"))
    for record in records.read(tmp_path / "a" / "answers", "train"):
        assert record.ids[-1] == 0 and 0 not in record.ids[:-1] and record.finish == "stop"


@pytest.mark.parametrize("sampling", ["temperature=1.0", "greedy"])
def test_d16_an_interrupted_run_gives_the_same_bytes_and_keeps_its_answers(
    tmp_path, source, data, sampling, monkeypatch
):
    whole = tmp_path / "whole"
    Prepare().run(job(whole, source, data, sampling=sampling))
    answer = Local.answer

    def interrupted(self, *args):
        for count, one in enumerate(answer(self, *args)):
            if count == 5:
                raise KeyboardInterrupt
            yield one

    broken = tmp_path / "broken"
    with monkeypatch.context() as patch:
        patch.setattr(Local, "answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Prepare().run(job(broken, source, data, sampling=sampling))
    log = log_of(broken)
    assert len(log.read_bytes().splitlines()) == 5
    log.write_bytes(log.read_bytes()[:-9])  # the last line is torn
    before = log.read_bytes().splitlines(keepends=True)[:4]
    asked = []

    def counted(self, questions, done, *rest):
        asked.extend(q.rid for q in questions if q.rid not in done)
        return answer(self, questions, done, *rest)

    monkeypatch.setattr(Local, "answer", counted)
    Prepare().run(job(broken, source, data, name="b", sampling=sampling))
    assert len(asked) == 8
    assert log.read_bytes().splitlines(keepends=True)[:4] == before
    assert tree(broken / "b") == tree(whole / "a")


def test_a_complete_log_needs_no_model(tmp_path, source, data, monkeypatch):
    Prepare().run(job(tmp_path, source, data))
    monkeypatch.setattr(Local, "answer", lambda *a: pytest.fail("asked again"))
    Prepare().run(job(tmp_path, source, data, name="b"))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_finalized_set_is_copied_and_checked(tmp_path, source, data):
    facts = Prepare().run(job(tmp_path, source, data))
    made = tmp_path / "a" / "answers"
    assert Prepare().run(job(tmp_path, source, made, name="b")) == facts
    assert tree(tmp_path / "b" / "answers") == tree(made)
    shard = made / "records" / "val.jsonl"
    shard.write_text(shard.read_text() + "\n")
    with pytest.raises(UsageError, match=r"val\.jsonl"):
        Prepare().run(job(tmp_path, source, made, name="c"))


def test_a_set_of_another_tokenizer_is_refused_with_both_hashes(tmp_path, source, data):
    Prepare().run(job(tmp_path, source, data))
    other = other_tokenizer(source, tmp_path)
    with pytest.raises(UsageError, match=r"hash \w{16}.*hash \w{16}"):
        Prepare().run(job(tmp_path, other, tmp_path / "a" / "answers", name="b"))


def test_a_teacher_of_another_tokenizer_is_refused_before_generation(tmp_path, source, data, monkeypatch):
    monkeypatch.setattr(Local, "answer", lambda *a: pytest.fail("asked"))
    other = other_tokenizer(source, tmp_path)
    with pytest.raises(UsageError, match=r"teacher\.model=other.*258 tokens, hash \w{16}.*257, hash \w{16}"):
        Prepare().run(job(tmp_path, source, data, model=str(other)))


def test_another_teacher_answers_in_its_own_words(tmp_path, source, data):
    teacher = shutil.copytree(source, tmp_path / "teacher")
    model = tiny_model(seed=4, initializer_range=0.3, tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight[0] *= 3
    model.save_pretrained(teacher)
    Prepare().run(job(tmp_path, source, data))
    Prepare().run(job(tmp_path, source, data, name="b", model=str(teacher)))
    mine, theirs = (records.read(tmp_path / n / "answers", "train") for n in "ab")
    assert [r.ids for r in mine] != [r.ids for r in theirs]
    assert {r.rid for r in mine}.isdisjoint(r.rid for r in theirs)


def other_tokenizer(source: Path, tmp_path: Path) -> Path:
    other = shutil.copytree(source, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["zz"] = 257
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    return other


def test_d12_too_few_prompts_are_refused_before_the_teacher_is_asked(tmp_path, source, data, monkeypatch):
    monkeypatch.setattr(Local, "answer", lambda *a: pytest.fail("asked"))
    for n in (0, 1, 2):
        data.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS[:n]))
        with pytest.raises(UsageError, match=rf"need at least 3 prompts .*got {n}"):
            Prepare().run(job(tmp_path, source, data, name=f"n{n}"))


def test_answers_that_never_end_are_an_error_with_a_hint(tmp_path, source, data):
    with pytest.raises(TeacherError, match=r"12 of 12 .*truncated 12.*teacher\.max_tokens"):
        Prepare().run(job(tmp_path, source, data, max_tokens=1, sampling="greedy"))


def test_several_greedy_samples_are_refused(tmp_path, source, data):
    with pytest.raises(UsageError, match="greedily"):
        Prepare().run(job(tmp_path, source, data, samples=2, sampling="greedy"))


def test_samples_of_a_prompt_share_its_split_and_differ(tmp_path, source, data):
    Prepare().run(job(tmp_path, source, data, samples=2))
    manifest = records.validate(tmp_path / "a" / "answers")
    found = [r for s in ("train", "val", "test") for r in records.read(tmp_path / "a" / "answers", s)]
    assert {r.sample for r in found} == {0, 1} and len({tuple(r.ids) for r in found}) == len(found)
    assert sum(n["prompts"] for n in manifest["splits"].values()) <= 12


def test_the_models_own_advice_is_followed(tmp_path, source):
    folder = shutil.copytree(source, tmp_path / "advised")
    local = Local(**{k: v for k, v in options().items() if k != "_target_"})
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.6, "top_k": 20}')
    assert local.recommended(folder) == {"temperature": 0.6, "top_k": 20}
    (folder / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.6}')
    assert local.recommended(folder) == {}


def test_a_folder_that_is_no_set_is_refused(tmp_path, source):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=r"manifest\.json"):
        Prepare().run(job(tmp_path, source, tmp_path / "folder"))
