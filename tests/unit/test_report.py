import copy
import json
import re
from html.parser import HTMLParser

import pytest
from report_fixtures import HOSTILE, realistic

from prune.gates import GateOptions, judge, passed
from prune.report import dumps, html, markdown, model_card, next_commands, summary_table, write
from prune.report.markdown import escape, fence
from prune.report.view import view

SPEED = {"source": 31.25, "fold": 38.0, "quant": 44.1, "stages": {"illuminate": 83.2, "eval": 7.0}}


class Tags(HTMLParser):
    """Elements, attributes and text of a page; fails on one that is not closed."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def refused():
    report = realistic()
    final = next(c for c in report["candidates"] if c["role"] == "final")
    final.update(nll=0.9, delta={"mean": 0.469, "low": 0.41, "high": 0.52})
    results = judge(report, vars(GateOptions()))
    return {**report, "gates": [r.as_dict() for r in results], "passed": passed(results)}


def quant_only():
    report = realistic()
    for key in ("plan", "curves", "fold"):
        del report[key]
    report["target"].update(asked="", neurons_after=46080, params_after=134_515_008, share_pruned=0.0)
    report["candidates"] = [c for c in report["candidates"] if c["name"] not in {"fold", "tiny-90m"}]
    for candidate in report["candidates"]:
        candidate.update(generation=None, general_perplexity=None)
    report["samples"] = []
    report["gates"] = [r.as_dict() for r in judge(report, vars(GateOptions()))]
    return report


@pytest.mark.parametrize("make", [realistic, refused, quant_only])
def test_the_page_is_well_formed_self_contained_and_without_script(make):
    page = html(make(), SPEED)
    found = Tags(page)
    assert not {"script", "img", "link", "iframe", "object", "base", "form"} & set(found.tags)
    assert not [a for a, _ in found.attributes if a.startswith("on") or a in {"src", "action"}]
    assert all(v.startswith("#") for a, v in found.attributes if a.endswith("href"))
    visible = page.replace("https://evil.example/x.png", "")
    assert "http:" not in visible and "https:" not in visible and "@import" not in visible
    assert re.findall(r"url\((?!#)", page) == []
    ids = [v for a, v in found.attributes if a == "id"]
    assert len(ids) == len(set(ids))


def test_model_output_is_escaped_wherever_it_may_appear():
    report = realistic()
    report["source"]["name"] = report["data"]["name"] = HOSTILE
    report["candidates"][3]["name"] = HOSTILE
    report["data"]["warnings"] = report["plan"]["warnings"] = report["next"] = [HOSTILE]
    report["gates"].append({"gate": HOSTILE, "value": None, "limit": None, "passed": False, "why": HOSTILE})
    page = html(report)
    found = Tags(page)
    assert "script" not in found.tags and "img" not in found.tags
    assert HOSTILE in found.text, "shown as text, to the letter"
    text = outside_fences(markdown(report)) + outside_fences(model_card(report).split("---\n", 2)[2])
    assert "<script>" not in text.replace("\\<script\\>", "") and "](" not in text.replace("\\](", "")


def outside_fences(text):
    kept, closing = [], ""
    for line in text.splitlines():
        run = re.match(r"`{3,}", line)
        if closing:
            closing = "" if line == closing else closing
        elif run:
            closing = run.group()
        else:
            kept.append(line)
    assert not closing
    return "\n".join(kept)


def test_no_answer_can_close_its_code_block():
    text = "a\n```\n# not a heading\n````\nb"
    block = fence(text)
    assert block[0] == "`````text" and block[-2] == "`````" and outside_fences("\n".join(block)).strip() == ""
    report = realistic()
    report["samples"][0]["answers"]["quant"] = text
    assert "# not a heading" not in outside_fences(markdown(report))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b 0.5 (x)", "a_b 0.5 (x)"),
        ("_it_ a|b", "\\_it\\_ a\\|b"),
        ("# one\ntwo", "\\# one two"),
        ("1. x", "1\\. x"),
        ("---", "\\---"),
        ("+0.007", "+0.007"),
        ("[a](b) <b> `c` *d*", "\\[a\\](b) \\<b\\> \\`c\\` \\*d\\*"),
    ],
)
def test_markdown_escapes_what_is_markup_and_only_that(text, shown):
    assert escape(text) == shown


def test_all_pictures_are_drawn_in_the_colours_of_the_page():
    page = html(realistic())
    assert page.count("<svg") == 3
    for picture in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        assert "<metadata" not in picture and "var(--ink)" in picture
        assert not re.search(r"#0[1-5]0[1-5]0[1-5]", picture)
    widths = page[page.index('<svg class="widths"') :]
    bars = re.findall(r"clip-path=[^>]*var\(--(accent|mark|line)\)", widths[: widths.index("</svg>")])
    assert (bars.count("line"), bars.count("accent"), bars.count("mark")) == (30, 29, 1)


def test_a_width_error_curve_has_a_line_and_a_dot_a_layer():
    from prune.report._figures import figures

    curves = figures(realistic())["curves"]
    assert len(re.findall(r'id="curves-line2d_', curves)) >= 59  # 30 lines, 29 dots: layer 0 is not narrowed


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(copy.deepcopy(realistic()), tmp_path / folder)
    for name in ("report.json", "report.md", "report.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert json.loads((tmp_path / "a" / "report.json").read_text()) == realistic()


def test_speed_shows_only_where_it_was_measured():
    for render in (html, markdown, terminal):
        without, with_speed = render(realistic()), render(realistic(), SPEED)
        assert "tokens/s" not in without and "illuminate" not in without
        assert "tokens/s" in with_speed and "44.1" in with_speed
    assert "1 min 23 s" in markdown(realistic(), SPEED)


def terminal(report, speed=None, width=80):
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    Console(file=out, width=width).print(summary_table(report, speed))
    return out.getvalue()


def test_the_headline_says_passed_smaller_and_how_much_worse():
    shown = view(realistic())
    assert shown.verdict == "Passed: 51.0 % smaller on disk, +0.007 nats per answer token."
    assert shown.tiles[1] == ("14.8 % smaller", "in parameters", "135 M → 115 M")
    assert "passed" in html(realistic()) and shown.final_row == 2


def test_a_refusal_names_its_gates_everywhere():
    report = refused()
    assert not report["passed"]
    for text in (html(report), markdown(report), terminal(report), model_card(report)):
        assert "Refused by nll_ratio, nll_rise" in text
    assert 'class="verdict bad"' in html(report)


def test_quant_only_says_what_was_not_done_and_not_measured():
    text = markdown(quant_only())
    assert "Nothing was pruned in this run." in text
    assert "Not measured: general perplexity, loops, length, stops." in text
    assert "eval.prompts=0" in text and "No answers were generated" in text
    page = html(quant_only())
    assert page.count("<svg") == 1 and "Widths" not in page
    assert '"pruned"' not in model_card(quant_only())


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(-0.1, 0.2, "no difference"), (0.1, 0.2, "measurably worse"), (-0.2, -0.1, "better than the source")],
)
def test_the_interval_is_read_out_in_words(low, high, says):
    report = realistic()
    report["candidates"][2]["delta"].update(low=low, high=high)
    assert says in " ".join(view(report).evidence)


def test_weak_evidence_is_called_weak():
    report = realistic()
    assert "Weak" not in " ".join(view(report).evidence)
    report["candidates"][2].update(
        records=5, delta={"mean": 0.1, "low": None, "high": None, "why": "one prompt"}
    )
    said = " ".join(view(report).evidence)
    assert "Weak evidence: 5 test records" in said and "There is no 95 % interval: one prompt." in said
    html(report), terminal(report)


@pytest.mark.parametrize("through_json", [False, True])
def test_d05_numbers_that_are_not_finite_are_shown_and_stay_valid_json(through_json):
    report, nan = realistic(), float("nan")
    report["candidates"][2].update(nll=nan, perplexity=nan, delta={"mean": nan, "low": nan, "high": nan})
    report["candidates"][1].update(perplexity=float("inf"), general_perplexity=None)
    report["plan"]["layers"][2]["rel_val"] = report["curves"]["rel"][2][3] = nan
    report.update(gates=[r.as_dict() for r in judge(report, vars(GateOptions()))], passed=False)
    if through_json:
        report = json.loads(dumps(report), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    for text in (html(report), markdown(report), terminal(report), model_card(report)):
        assert "nan" in text and "inf" in text
    assert "not finite: nothing follows" in " ".join(view(report).evidence)


def test_the_terminal_fits_and_takes_brackets_as_text():
    report = realistic()
    report["candidates"][3]["name"] = "[red]x[/red]"
    for width in (60, 80, 120):
        text = terminal(report, SPEED, width)
        assert max(map(len, text.splitlines())) <= width
    assert "[red]x[/red]" in text and "+0.007" in text and "next:" in text


def test_the_card_states_source_use_table_and_command():
    card = model_card(realistic(), "prune source=x output=y")
    front = card.split("---\n")[1]
    assert 'base_model: "some-org/Model-135M"' in front and "pipeline_tag: text-generation" in front
    assert "AutoModelForCausalLM.from_pretrained" in card and "prune source=x output=y" in card
    assert "(−0.003 to +0.018)" in card and "Other tasks" in card
    assert "Reproduce" not in model_card(realistic())


def test_next_commands_go_narrower_where_there_is_room():
    report = realistic()
    load, narrower = next_commands(report, "some org/M", "a.jsonl", "out")
    assert narrower == "prune 'source=some org/M' data=a.jsonl ffn=0.65 codec=q8 output=out-0.65-q8"
    assert 'pipeline("text-generation", "out")' in load
    report["candidates"][2]["delta"]["high"] = 0.1
    assert next_commands(report, "m", "d", "out") == [load]


def test_next_commands_after_a_refusal_undo_what_cost_the_most():
    report = refused()
    codec_lost, look = next_commands(report, "m", "d", "out")
    assert "codec=f16" in codec_lost and "ffn=0.75" in codec_lost
    assert look.endswith("codec=q8 output=out") is False and "write_on_fail=true output=out" in look
    report["candidates"][1]["nll"] = 0.89
    assert "ffn=0.85" in next_commands(report, "m", "d", "out")[0]


def test_no_advice_is_built_on_nothing():
    report = {**realistic(), "candidates": []}
    results = judge(report, vars(GateOptions()))
    report.update(gates=[r.as_dict() for r in results], passed=passed(results))
    assert next_commands(report, "m", "d") == []
    assert "not both scored" in view(report).verdict
    assert "No final model was scored." in html(report)


def test_a_model_that_no_step_changed_has_no_source_to_compare_with():
    report = quant_only()
    report["candidates"] = [{**report["candidates"][1], "delta": None}]
    off = dict.fromkeys(vars(GateOptions()))
    report["gates"] = [r.as_dict() for r in judge(report, off)]
    for ok in (True, False):
        report["passed"] = ok
        assert "not both scored" in html(report) and "The difference to the source was not measured" in html(
            report
        )
        assert len(next_commands(report, "m", "d", "out")) == 1


def test_a_source_made_of_a_quantized_file_says_so():
    report = realistic()
    assert "Made from" not in markdown(report)
    report["source"]["origin"] = {"file": "m.Q4_1.gguf", "bits_per_weight": 5.03}
    for text in (markdown(report), html(report)):
        assert "Made from" in text and "m.Q4_1.gguf, 5 bits a weight" in text


def searched(**target):
    report = realistic()
    whole = report["target"]["neurons_before"]
    trials = [
        {"neurons": whole * k // 4, "nll": 1 + rise, "rise": rise, "within": rise < 0.05}
        for k, rise in ((1, 0.4), (2, 0.06), (3, 0.01))
    ]
    report["target"] |= {"asked": "target.max_nll_rise=5%"} | target
    return {**report, "search": {"source_nll": 1.0, "bound": 0.05, "trials": trials}}


def test_a_search_is_drawn_with_its_bound():
    from prune.report._figures import figures
    from prune.report.evidence import facts

    report = searched()
    drawn = figures(report)["search"]
    assert "bound" in drawn and drawn.count("<use") >= 3
    assert ("Search", "3 folds tried, bound 0.050 nats on val") in facts(report)
    size = next(g for g in judge(report, vars(GateOptions())) if g.gate == "size_tolerance")
    assert size.passed is None


def test_unequal_widths_are_loaded_by_prune():
    report = searched(loader="prune")
    assert "prune.nn.model import load" in next_commands(report, "S", "D")[0]
    card = model_card(report)
    assert "model = load(folder)" in card and "AutoModelForCausalLM" not in card
