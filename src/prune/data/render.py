"""Prompts and answers as token ids of the source's tokenizer, with its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune.errors import UsageError

from .canonical import digest
from .think import CLOSE, OPEN, Marks, divide

if TYPE_CHECKING:
    from .records import Record

PLAIN = "plain"  #: stands for the template of a tokenizer that has none


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder; code in the folder is never run.

    :raises UsageError: the folder has no tokenizer that loads.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # tokenizers and the validators of a config raise kinds of their own
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        raise UsageError(f"{folder}: the tokenizer does not load: {reason}") from None


def tokenizer_hash(tokenizer: Any) -> str:
    """Hash of vocabulary, merges and added tokens: equal hashes turn equal text into equal ids."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    model = json.loads(backend.to_str())["model"] if backend is not None else {}
    return digest([tokenizer.get_vocab(), model.get("merges")])


def same_tokenizer(mine: Any, other: Any, name: str) -> None:
    """:raises UsageError: ``other``, the tokenizer of ``name``, differs from the source's."""
    ours, theirs = tokenizer_hash(mine), tokenizer_hash(other)
    if ours != theirs:
        raise UsageError(
            f"{name}: another tokenizer than the source's: {len(other)} tokens, hash {theirs[:16]}, against "
            f"{len(mine)}, hash {ours[:16]}; give a teacher with the source's tokenizer"
        )


class Renderer:
    """Token ids of prompts and of finished answers.

    Without a chat template a prompt is its turns' text, joined by blank lines, after the BOS that the
    tokenizer adds (where it does).
    """

    def __init__(self, tokenizer: Any, think: bool = True) -> None:
        self.tokenizer = tokenizer
        self.template: str | None = tokenizer.get_chat_template() if tokenizer.chat_template else None
        self._switch: dict[str, Any] = {} if think else {"enable_thinking": False}
        self.marks = self._marks()
        self.end = self._end()  #: id that ends an assistant turn, None where there is none

    @property
    def template_hash(self) -> str:
        """Hash of what, beside the tokenizer, decides a rendering."""
        return digest([self.template or PLAIN, self._switch])

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids a model is asked with: the template's own tokenized form, so its BOS is the only one.

        :raises ValueError: the template refuses the messages.
        """
        if self.template is None:
            return self._plain("\n\n".join(turn["content"] for turn in messages))
        return list(self._templated(messages, add_generation_prompt=True))

    def answer(self, prompt: Sequence[int], text: str, reasoning: str = "") -> list[int]:
        """The ids of an answer that a teacher gave as text, without end-of-turn token.

        Reasoning, in its own field or inside the text, is put once between the marks; the opening mark is
        left to a prompt that ends with it, and without marks, or where the prompt closed them, it is dropped.
        """
        inside, rest = divide(text)
        reasoning = (reasoning or inside).strip()
        if self.marks is None or not reasoning:
            return self._encode(rest)
        if self.marks.opened_by(prompt):
            return self._encode(f"{reasoning}\n{CLOSE}\n\n{rest}")
        return self._encode(f"{OPEN}\n{reasoning}\n{CLOSE}\n\n{rest}")

    def _templated(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Any:
        from jinja2 import TemplateError

        turns = [dict(turn) for turn in messages]
        try:
            return self.tokenizer.apply_chat_template(turns, return_dict=False, **self._switch, **options)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses it: {error}"[:200]) from None

    def _plain(self, text: str) -> list[int]:
        ids, bos = self._encode(text), self.tokenizer.bos_token_id
        adds = bos is not None and self.tokenizer("a").input_ids[:1] == [bos]
        return [bos, *ids] if adds and ids[:1] != [bos] else ids

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def _marks(self) -> Marks | None:
        vocabulary = self.tokenizer.get_vocab()
        if (OPEN in vocabulary and CLOSE in vocabulary) or CLOSE in (self.template or ""):
            return Marks(tuple(self._encode(OPEN)), tuple(self._encode(CLOSE)))
        return None

    def _end(self) -> int | None:
        """The special token that the template prints after an assistant's text, else the EOS."""
        eos: int | None = self.tokenizer.eos_token_id
        if self.template is None:
            return eos
        special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
        turns = [{"role": "user", "content": "no"}, {"role": "assistant", "content": "yes"}]
        try:
            text = str(self._templated(turns, tokenize=False))
        except ValueError:
            return eos
        return next((i for i in self._encode(text.rpartition("yes")[2]) if i in special), eos)


def sample_text(record: Record, tokenizer: Any, loss_on: str) -> str:
    """One record as text, the part that the loss counts between ⟦ and ⟧."""
    start, stop = record.span(loss_on)
    before, counted, after = record.ids[:start], record.ids[start:stop], record.ids[stop:]
    return f"{tokenizer.decode(before)}⟦{tokenizer.decode(counted)}⟧{tokenizer.decode(after)}"
