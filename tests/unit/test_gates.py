import copy

import pytest
from report_fixtures import realistic

from prune.gates import GateOptions, judge, passed

LIMITS = vars(GateOptions())


def verdicts(report, **limits):
    return {r.gate: r for r in judge(report, {**LIMITS, **limits})}


def edited(role="final", **fields):
    report = copy.deepcopy(realistic())
    candidate = next(c for c in report["candidates"] if c["role"] == role)
    generation = {k: fields.pop(k) for k in list(fields) if k in (candidate["generation"] or {})}
    candidate.update(fields)
    if generation:
        candidate["generation"] = {**candidate["generation"], **generation}
    return report


def test_a_good_report_passes_every_gate():
    results = judge(realistic(), LIMITS)
    assert [r.gate for r in results] == [*LIMITS, "finite"]
    assert all(r.passed for r in results) and passed(results)


def source(field):
    return next(c for c in realistic()["candidates"] if c["role"] == "source")[field]


@pytest.mark.parametrize(
    ("gate", "edge", "beyond"),
    [
        ("nll_ratio", {"nll": source("nll") * 1.3499}, {"nll": source("nll") * 1.3501}),
        ("nll_rise", {"nll": source("nll") + 0.1499}, {"nll": source("nll") + 0.1501}),
        ("loops", {"loops": 1}, {"loops": 2}),
        ("stop_rate", {"stop_rate": 0.7875}, {"stop_rate": 0.7874}),
        ("length_low", {"median_length_ratio": 0.5}, {"median_length_ratio": 0.49}),
        ("length_high", {"median_length_ratio": 2.0}, {"median_length_ratio": 2.01}),
    ],
)
def test_a_gate_holds_exactly_its_limit(gate, edge, beyond):
    assert verdicts(edited(**edge))[gate].passed is True
    refused = verdicts(edited(**beyond))[gate]
    assert refused.passed is False
    assert not passed(judge(edited(**beyond), LIMITS))


@pytest.mark.parametrize("gate", LIMITS)
def test_null_switches_a_gate_off_and_says_so(gate):
    bad = edited(nll=99.0, loops=16, stop_rate=0.0, median_length_ratio=9.0)
    off = verdicts(bad, **{gate: None})[gate]
    assert off.passed is None and off.why == f"off: eval.gates.{gate}=null"


@pytest.mark.parametrize("role", ["source", "final"])
def test_a_gate_computed_on_nothing_fails(role):
    for nothing in ({"records": 0}, {"tokens": 0}, {"nll": None}):
        found = verdicts(edited(role, **nothing))
        assert found["nll_ratio"].passed is False and found["nll_rise"].passed is False
        assert "nothing" in found["nll_rise"].why
    missing = verdicts(edited(role, generation=None))
    assert missing["loops"].passed is False and missing["stop_rate"].passed is False
    none = verdicts(edited(role, prompts=0))
    assert none["loops"].passed is False


def test_no_candidate_at_all_fails():
    report = {**realistic(), "candidates": []}
    assert verdicts(report)["nll_rise"].passed is False


def test_generation_that_was_not_asked_is_off_and_not_passed():
    report = realistic()
    for candidate in report["candidates"]:
        candidate["generation"] = None
    found = verdicts(report)
    for gate in ("loops", "stop_rate", "length_low", "length_high"):
        assert found[gate].passed is None and "eval.prompts=0" in found[gate].why


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_d05_a_number_that_is_not_finite_fails_its_gates(bad):
    found = verdicts(edited(nll=bad))
    assert found["nll_rise"].passed is False and found["nll_ratio"].passed is False
    assert found["finite"].passed is False and "nll" in found["finite"].why
    report = realistic()
    report["plan"]["layers"][3]["rel_val"] = bad
    assert verdicts(report)["finite"].why.endswith("plan.layers[3].rel_val")


def test_a_compared_model_does_not_refuse_this_output():
    assert verdicts(edited("compare", nll=float("nan")))["finite"].passed is True


@pytest.mark.parametrize(
    ("asked", "good"),
    [
        ("ffn=0.75", True),
        ("ffn=0.7", False),
        ("ffn=1152", True),
        ("ffn=1100", False),
        ("size=114.7M", True),
        ("size=0.1B", False),
        ("ratio=0.86", True),
        ("ratio=0.8", False),
    ],
)
def test_the_size_gate_reads_every_form_of_target(asked, good):
    report = realistic()
    report["target"]["asked"] = asked
    assert verdicts(report)["size_tolerance"].passed is good


def test_no_target_no_size_gate():
    report = realistic()
    report["target"]["asked"] = ""
    assert verdicts(report)["size_tolerance"].passed is None


def test_an_unknown_limit_is_refused():
    with pytest.raises(TypeError, match="nl_rise"):
        judge(realistic(), {"nl_rise": 1})
