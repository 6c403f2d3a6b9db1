"""What is refused before any work."""

import pytest

from prune import config as schema
from prune import preflight
from prune.tiny import tiny


@pytest.fixture
def found(config, tmp_path):
    """(findings by place, the text) of a tiny source under some options."""
    source = tiny(tmp_path / "m")

    def look(*argv):
        plain = schema.check(
            config(f"source={source}", "data=x", "output=out", "ffn=0.75", "plan.align=16", *argv)
        )
        told = preflight.inspect(plain, source, None)
        return {f.where: f.what for f in told["findings"]}, told["text"]

    return look


@pytest.mark.parametrize("until", [(), ("until=eval",)])
def test_answers_that_do_not_fit_in_memory_are_refused(found, until):
    findings, _ = found("stream.resident=never", *until)
    assert "give eval.prompts=0" in findings["eval"]


@pytest.mark.parametrize("given", ["until=fold", "eval.prompts=0", "stream.resident=always"])
def test_a_run_that_asks_for_no_answers_is_not(found, given):
    assert found("stream.resident=never", given)[0] == {}


def test_a_search_is_announced_with_its_reach(found):
    findings, text = found("ffn=null", "target.max_nll_rise=5%")
    assert findings == {}
    assert (
        "target.max_nll_rise=5% is found by folding and scoring at most 4 of 9 widths, from 96 to 352" in text
    )
    assert "output, if nothing can be cut: " in text
