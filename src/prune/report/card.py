"""The model card: ``README.md`` of an output, with nothing in it that was not measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .evidence import evidence, facts
from .markdown import escape, fence, table
from .tables import candidate_table
from .view import verdict

Report = Mapping[str, Any]


def model_card(report: Report, command: str = "") -> str:
    """Front matter and text.

    :param command: the line that reproduces this model; left out of the card where it is empty.
    """
    return "\n".join([*_front(report), *_what(report), *_how_good(report), *_use(report, command)]) + "\n"


def _front(report: Report) -> Iterator[str]:
    tags = ["prune", report["source"]["layout"]]
    tags += ["pruned"] if report.get("plan", {}).get("layers") else []
    tags += ["quantized", report["codec"]["name"]] if report["target"]["share_quantized"] else []
    yield "---"
    yield f"base_model: {json.dumps(report['source']['name'], ensure_ascii=False)}"
    yield "library_name: transformers"
    yield "pipeline_tag: text-generation"
    yield "tags:"
    yield from (f"- {json.dumps(tag, ensure_ascii=False)}" for tag in dict.fromkeys(tags))
    yield from ("---", "")


def _what(report: Report) -> Iterator[str]:
    name, data = escape(report["source"]["name"]), escape(report["data"]["name"])
    yield from (f"# {name}, made small for one task", "")
    yield f"Made from {name} by `prune`, for prompts like those of {data} and for nothing else."
    yield "The source's licence and the warnings of its own card apply."
    yield from ("", "## How it was made", "")
    yield from (f"* **{key}**: {escape(text)}" for key, text in facts(report))
    yield ""


def _how_good(report: Report) -> Iterator[str]:
    candidates = candidate_table(report, None)
    yield from ("## Evaluation", "", f"{escape(verdict(report))}", "", *table(candidates))
    if candidates.missing:
        yield f"Not measured: {escape(', '.join(candidates.missing))}.\n"
    yield from (f"{escape(text)}\n" for text in evidence(report))
    refused = [g for g in report["gates"] if g["passed"] is False]
    yield from (f"* **Refused by {escape(g['gate'])}**: {escape(g['why'])}" for g in refused)


def _use(report: Report, command: str) -> Iterator[str]:
    yield from ("## Limits", "")
    yield "* Only answers to held-out prompts of that data were scored. Other tasks, languages and long"
    yield "  conversations were not, and pruning removes what the task's data did not use."
    yield "* Nothing was tested for safety or bias; assume the source's behaviour at best."
    yield from ("", "## Use", "", "```python")
    ours = report["target"]["loader"] == "prune"
    if ours:
        yield "from prune.nn.model import load  # each layer has a width of its own"
        yield "from transformers import AutoTokenizer"
    else:
        yield "from transformers import AutoModelForCausalLM, AutoTokenizer"
    yield ""
    yield 'folder = "."  # this folder'
    yield "tokenizer = AutoTokenizer.from_pretrained(folder)"
    model = "load(folder)" if ours else 'AutoModelForCausalLM.from_pretrained(folder, dtype="auto")'
    yield f"model = {model}"
    yield 'inputs = tokenizer("Hello", return_tensors="pt")'
    yield "print(tokenizer.decode(model.generate(**inputs, max_new_tokens=64)[0]))"
    yield "```"
    if command:
        yield from ("", "## Reproduce", "", *fence(command)[:-1])
