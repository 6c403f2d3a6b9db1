import json
import subprocess
import sys

import pytest
from product import contents

from prune import cache, locks
from prune.errors import BusyError, StageError
from prune.identity import Hashes


def fill(text):
    def write(scratch):
        (scratch / "deep").mkdir()
        (scratch / "deep" / "file").write_text(text)
        return {"facts": {"n": 1}}

    return write


def test_a_commit_is_complete_with_its_manifest(tmp_path):
    manifest = cache.commit(tmp_path / "place", fill("one"))
    assert cache.read(tmp_path / "place") == manifest
    assert manifest["files"]["deep/file"]["size"] == 3
    assert cache.intact(tmp_path / "place", manifest, Hashes(tmp_path / "h"))
    assert [p.name for p in tmp_path.iterdir()] == ["place"]


@pytest.mark.parametrize("exchange", [True, False])
def test_an_older_place_is_replaced_whole(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(cache, "_exchange", lambda a, b: False)
    place = tmp_path / "place"
    cache.commit(place, fill("one"))
    (place / "stray").write_text("x")
    cache.commit(place, fill("two"))
    assert set(contents(tmp_path)) == {"place/deep/file", "place/manifest.json"}
    assert (place / "deep" / "file").read_text() == "two"


def test_a_failing_fill_leaves_the_older_place(tmp_path):
    cache.commit(tmp_path / "place", fill("one"))
    before = contents(tmp_path)

    def broken(scratch):
        (scratch / "half").write_text("x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cache.commit(tmp_path / "place", broken)
    assert contents(tmp_path) == before


def test_what_killed_runs_left_is_swept_and_nobody_elses(tmp_path):
    (tmp_path / ".place.0123456789ab.part").mkdir()
    (tmp_path / ".place.rejected.0123456789ab.part").mkdir()
    moved = tmp_path / ".place.0123456789cd.old"
    moved.mkdir()
    (moved / "file").write_text("kept")
    cache.sweep(tmp_path / "place")
    assert {p.name for p in tmp_path.iterdir()} == {"place", ".place.rejected.0123456789ab.part"}
    assert (tmp_path / "place" / "file").read_text() == "kept"


@pytest.mark.parametrize("damage", ["truncate", "change", "remove", "manifest"])
def test_damage_is_seen(tmp_path, damage):
    place = tmp_path / "place"
    cache.commit(place, fill("one"))
    path = place / "deep" / "file"
    {
        "truncate": lambda: path.write_text("on"),
        "change": lambda: path.write_text("One"),
        "remove": path.unlink,
        "manifest": lambda: (place / "manifest.json").write_text("{"),
    }[damage]()
    manifest = cache.read(place)
    assert not (manifest and cache.intact(place, manifest, Hashes(tmp_path / "h")))


def test_links_are_refused(tmp_path):
    def link(scratch):
        (scratch / "link").symlink_to("/etc/hostname")
        return {}

    with pytest.raises(StageError, match="link"):
        cache.commit(tmp_path / "place", link)
    assert list(tmp_path.iterdir()) == []


def test_an_output_is_claimed_once_and_leaves_no_trace(tmp_path):
    place = tmp_path / "new" / "out"
    with locks.claim(place), pytest.raises(BusyError, match="another run"), locks.claim(place):
        pass
    with locks.claim(place):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_holder_frees_its_output(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from prune import locks\n"
        "with locks.claim(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=False)
    assert [p.name for p in tmp_path.iterdir()] == [".out.lock"]
    with locks.claim(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_hashes_are_remembered_until_a_file_changes(tmp_path, monkeypatch):
    from prune import identity

    (tmp_path / "f").write_text("one")
    hashes = Hashes(tmp_path / "cache" / "hashes.json")
    first = hashes.file(tmp_path / "f")
    assert not (tmp_path / "cache").exists()
    hashes.save()
    monkeypatch.setattr(identity, "sha256", lambda path: "computed")
    again = Hashes(tmp_path / "cache" / "hashes.json")
    assert again.file(tmp_path / "f") == first
    (tmp_path / "f").write_text("two!")
    assert again.file(tmp_path / "f") == "computed"


@pytest.mark.parametrize("damaged", ["", "[1]", "{", '{"a": 3}', "\x00"])
def test_a_damaged_memo_is_ignored(tmp_path, damaged):
    (tmp_path / "h").write_text(damaged)
    (tmp_path / "f").write_text("one")
    hashes = Hashes(tmp_path / "h")
    assert len(hashes.file(tmp_path / "f")) == 64
    hashes.save()
    assert list(json.loads((tmp_path / "h").read_text())) == [str(tmp_path / "f")]
