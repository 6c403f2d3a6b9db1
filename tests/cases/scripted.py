"""A teacher for tests: its answer is a function of the prompt, and it remembers what it was asked."""

from dataclasses import dataclass

from prune import hookimpl
from prune.parts import Answer

asked = []  #: the last turn of every question so far


@dataclass
class ScriptedOptions:
    _target_: str = "scripted.Scripted"
    reasoning: str = ""  # given beside each answer, as APIs do


class Scripted:
    name, max_tokens, samples, sampling, think = "scripted", 64, 1, "greedy", True

    def __init__(self, reasoning):
        self.reasoning = reasoning

    def identity(self, source):
        return f"scripted {self.reasoning}".ljust(64, "-")

    def recommended(self, source):
        return {}

    def answer(self, questions, done, source, device):
        for q in questions:
            if q.rid not in done:
                asked.append(q.messages[-1]["content"])
                meta = {"reasoning": self.reasoning} if self.reasoning else {}
                yield Answer(q.rid, [], f"I heard: {asked[-1]}", "stop", meta)


@hookimpl
def prune_teachers():
    return {"scripted": ScriptedOptions}
