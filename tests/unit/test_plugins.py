import sys
from dataclasses import dataclass

import pytest

from prune import hookimpl, plugins
from prune.errors import PluginError


@dataclass
class Options:
    _target_: str = "x.Y"
    bits: int = 3


def part(hook, **offers):
    """A plugin with one hook."""

    def offer(self):
        return offers

    offer.__name__ = hook
    return type("Part", (), {hook: hookimpl(offer)})()


def test_a_plugin_of_a_test_is_an_option(config, plugin):
    plugin(part("prune_codecs", zfoo=Options), "foo")
    plugin(part("prune_teachers", ztoy=Options), "toy")
    assert config("codec=zfoo", "codec.bits=5", "teacher=ztoy").codec.bits == 5


def test_one_name_from_two_plugins_is_refused(plugin):
    plugin(part("prune_codecs", zfoo=Options), "foo")
    plugin(part("prune_codecs", zfoo=Options), "bar")
    with pytest.raises(PluginError, match=r"'zfoo' comes from '(foo|bar)' too"):
        plugins.known("codec")


@pytest.mark.parametrize("offer", [dict, dataclass(type("NoTarget", (), {})), 3])
def test_options_must_be_a_dataclass_with_a_target(plugin, offer):
    plugin(part("prune_codecs", zfoo=offer), "foo")
    with pytest.raises(PluginError, match=r"'foo'.*_target_"):
        plugins.known("codec")


BROKEN = {
    "import": "raise RuntimeError('no\\nGPU')",
    "exit": "import sys; sys.exit(0)",
    "syntax": "def",
    "hook": "from prune import hookimpl\n@hookimpl\ndef prune_codec(): return {}",
    "argument": "from prune import hookimpl\n@hookimpl\ndef prune_stage_done(stepp): pass",
    "offer": "from prune import hookimpl\n@hookimpl\ndef prune_codecs(): raise KeyError('x')",
}


@pytest.fixture
def broken(tmp_path, environment):
    """The environment of a ``prune`` with a broken plugin installed."""

    def make(kind):
        info = tmp_path / "site" / "prune_bad-0.3.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: prune-bad\nVersion: 0.3\n")
        (info / "entry_points.txt").write_text("[prune]\nbad = prune_bad\n")
        (tmp_path / "site" / "prune_bad.py").write_text(BROKEN[kind])
        return {"PYTHONPATH": f"{tmp_path / 'site'}:{environment['PYTHONPATH']}"}

    return make


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_one_line_and_the_way_round_works(broken, toy_run, cli, inputs, kind):
    env = broken(kind)
    done = toy_run("isolate=false", **env)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "plugin 'bad' of prune-bad 0.3" in done.stderr
    assert "PRUNE_DISABLE_PLUGINS=bad goes on without it" in done.stderr
    assert {p.name for p in inputs.iterdir()} == {"m", "p.jsonl", "site"}
    listed = cli("plugins", **env)
    assert listed.returncode == 0 and "prune-bad 0.3" in listed.stdout and "codec=toy" in listed.stdout
    disabled = {**env, "PRUNE_DISABLE_PLUGINS": "bad,observer.summary"}
    assert "disabled by PRUNE_DISABLE_PLUGINS" in cli("plugins", **disabled).stdout
    assert toy_run("isolate=false", **disabled).returncode == 0


def test_the_listing_says_what_is_broken(broken, cli):
    env = broken("import")
    assert "broken: no GPU" in cli("plugins", **env).stdout
    assert "Not in use: plugin 'bad' of prune-bad 0.3: no GPU" in cli("--help", **env).stdout


def test_third_parties_are_told_by_module(monkeypatch):
    found = [
        plugins.Found("q8", "prune", "1", "prune_plugins.codec.q8"),
        plugins.Found("foo", "prune-foo", "2", "foo"),
    ]
    monkeypatch.setattr(plugins.plugged(), "found", found)
    assert plugins.third_party(("torch.nn", "prune_plugins.codec.q8")) == ""
    assert plugins.third_party(("torch.nn", "foo.inner")) == "'foo' of prune-foo 2"
    assert plugins.third_party(("foolish",)) == ""


def test_our_own_parts_do_not_carry_a_version(monkeypatch):
    assert plugins.choice("heal", "prune_plugins.heal.none.NoHeal") == {"name": "none"}
    found = [plugins.Found("heal.none", "prune-heal-none", "2", "x")]
    monkeypatch.setattr(plugins.plugged(), "found", found)
    origin = {"name": "none", "distribution": "prune-heal-none 2"}
    assert plugins.choice("heal", "prune_plugins.heal.none.NoHeal") == origin


def test_listing_imports_no_torch(cli, environment):
    import subprocess

    code = "import sys, prune.plugins as p; p.register_options(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
