"""An output folder that already holds a model is refused, or replaced as a whole."""

import json

from product import plain, tensors, tree

from prune.tiny import save_tiny, tiny_model

INDEX = "model.safetensors.index.json"


def old_model(folder):
    """A model of another size in several shards."""
    model = tiny_model(num_hidden_layers=3, intermediate_size=208)
    model.save_pretrained(folder, max_shard_size="150KB")
    assert len(list(folder.glob("*.safetensors"))) >= 6
    return folder


def check_listing(out):
    """Exactly the manifest's files, and an index that tells of each tensor once."""
    files = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert files == {*json.loads((out / "manifest.json").read_text())["files"], "manifest.json"}
    shards = {p.name for p in out.glob("*.safetensors")}
    if len(shards) == 1:
        assert shards == {"model.safetensors"} and INDEX not in files
        return
    index = json.loads((out / INDEX).read_text())
    assert set(index["weight_map"].values()) == shards
    stored = tensors(out)
    assert index["weight_map"].keys() == stored.keys()
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in stored.values())


def test_d02_without_overwrite_it_stays_as_it_is(refused, model, answers, tmp_path):
    old_model(tmp_path / "out")
    line = refused(f"source={model}", f"data={answers}", "ffn=0.75", "output=out")
    assert "output=" in line and "overwrite=true" in line


def test_d02_with_overwrite_nothing_of_the_old_model_is_left(squeeze, model, tmp_path):
    old_model(tmp_path / "out")
    out = squeeze(model, "ffn=0.75", "overwrite=true")
    check_listing(out)
    assert len(plain(out).model.layers) == 2


def test_d02_many_shards_over_many_shards(squeeze, model, tmp_path):
    old_model(tmp_path / "out")
    out = squeeze(model, "ffn=0.75", "overwrite=true", "save.shard=100KB")
    assert len(list(out.glob("*.safetensors"))) > 2
    check_listing(out)
    plain(out)


def test_d02_a_file_that_no_model_owns_is_not_lost_in_silence(refused, model, answers, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("three years of work")
    assert "overwrite=true" in refused(f"source={model}", f"data={answers}", "ffn=0.75", "output=out")


def test_d02_the_source_is_never_its_own_output(refused, answers, tmp_path):
    save_tiny(tiny_model(), tmp_path / "model")
    refused("source=model", f"data={answers}", "ffn=0.75", "output=model")


def test_d02_a_refused_run_leaves_the_old_output_whole(prune, model, answers, tmp_path):
    """A gate that refuses comes after all the work, and before anything is replaced."""
    before = tree(old_model(tmp_path / "out"))
    run = (f"source={model}", f"data={answers}", "ffn=0.75", "output=out", "overwrite=true", "eval.prompts=0")
    ended = prune(*run, "eval.gates.nll_rise=-1")
    assert ended.code == 5
    assert tree(tmp_path / "out") == before
