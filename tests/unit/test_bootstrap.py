import math
import random

import pytest

from prune.nn.bootstrap import Scores, _blocks, delta_interval
from prune.nn.text_stats import distinct_ngrams, generation_stats, loops


def draw(prompts=60, samples=1, rise=0.1, noise=0.02, seed=0):
    """Source and candidate scores: prompts differ by 1 nat, candidate and source by ``rise`` ± noise."""
    rng = random.Random(seed)
    ids, tokens, source, candidate = [], [], [], []
    for p in range(prompts):
        level = rng.gauss(2.0, 1.0)
        for _ in range(samples):
            n = rng.randrange(20, 200)
            ids.append(f"p{p}")
            tokens.append(n)
            source.append(level * n)
            candidate.append((level + rise + rng.gauss(0, noise)) * n)
    return Scores(candidate, tokens, ids), Scores(source, tokens, ids)


def alone_interval(scores):
    """The interval of one candidate's own NLL: against a source that loses nothing anywhere."""
    return delta_interval(scores, Scores([0.0] * len(scores.nll), scores.tokens, scores.prompts))


def test_the_mean_is_weighted_by_tokens():
    assert Scores([10.0, 1.0], [100, 1], ["a", "b"]).mean == pytest.approx(11 / 101)


def test_the_paired_interval_holds_the_rise_and_is_far_narrower_than_the_plain_one():
    candidate, source = draw()
    delta, alone = delta_interval(candidate, source), alone_interval(candidate)
    assert delta.low < 0.1 < delta.high and delta.low < delta.mean < delta.high
    assert alone.low < alone.mean < alone.high
    assert (delta.high - delta.low) * 10 < alone.high - alone.low


def test_it_covers_the_truth_about_95_times_in_100():
    hits = sum(
        interval.low <= 0.1 <= interval.high
        for interval in (delta_interval(*draw(noise=0.3, seed=s), draws=400) for s in range(200))
    )
    assert 178 <= hits <= 199  # 190 expected; the percentile interval is known to be a little narrow


def test_samples_of_a_prompt_move_together():
    one, base = draw(prompts=30, noise=0.2)
    copies = [Scores(list(s.nll) * 8, list(s.tokens) * 8, list(s.prompts) * 8) for s in (one, base)]
    once, eight = delta_interval(one, base), delta_interval(*copies)
    assert (eight.low, eight.high) == (pytest.approx(once.low), pytest.approx(once.high))


def test_it_is_seeded():
    assert delta_interval(*draw()) == delta_interval(*draw())
    assert delta_interval(*draw(), seed=1) != delta_interval(*draw())


def test_blocks_do_not_change_the_draws(monkeypatch):
    assert _blocks(2000, 10, cells=5000) == [500] * 4 and _blocks(5, 10, cells=1) == [1] * 5
    whole = delta_interval(*draw())
    monkeypatch.setattr("prune.nn.bootstrap._blocks", lambda draws, count: _blocks(draws, count, 6000))
    cut = delta_interval(*draw())
    assert (cut.low, cut.high) == (pytest.approx(whole.low), pytest.approx(whole.high))


def test_one_prompt_has_no_interval_and_says_why():
    scores = Scores([3.0, 4.0], [2, 2], ["a", "a"])
    interval = alone_interval(scores)
    assert (interval.mean, interval.low, interval.high) == (1.75, None, None)
    assert "one prompt" in interval.as_dict()["why"]
    assert "why" not in delta_interval(*draw()).as_dict()


@pytest.mark.parametrize("tokens", [[], [3, 0], [-1, 2]])
def test_zero_tokens_are_an_error(tokens):
    with pytest.raises(ValueError, match="zero tokens"):
        Scores([1.0] * len(tokens), tokens, ["a"] * len(tokens))


def test_unequal_lengths_and_other_records_are_errors():
    with pytest.raises(ValueError, match="one entry a record"):
        Scores([1.0], [1, 2], ["a", "b"])
    with pytest.raises(ValueError, match="same records"):
        delta_interval(Scores([1.0], [1], ["a"]), Scores([1.0], [1], ["b"]))


def test_a_number_that_is_not_finite_stays_so():
    interval = alone_interval(Scores([1.0, math.nan], [1, 1], ["a", "b"]))
    assert math.isnan(interval.mean) and math.isnan(interval.high)


def test_loops():
    assert not loops(list(range(200)))
    assert loops([1, 2, 3] * 50) and loops([7] * 12)
    assert loops(list(range(500)) + [1, 2] * 64), "only the last 128 tokens count"
    assert not loops([7, 7, 7]) and distinct_ngrams([1, 2]) is None and not loops([])
    assert distinct_ngrams([1] * 6) == 0.5


def test_generation_stats_measure_length_against_what_was_possible():
    stats = generation_stats([[1] * 50, list(range(100))], [True, False], [50, 4000], max_tokens=100)
    assert stats == {"prompts": 2, "loops": 1, "median_length_ratio": 1.0, "stop_rate": 0.5}
    nothing = generation_stats([], [], [], 10)
    assert nothing["median_length_ratio"] is None and nothing["stop_rate"] is None
