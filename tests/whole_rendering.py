"""What a conversation's tokens must be, by Hugging Face's template and tokenizer alone.

The template prints the whole conversation, and the prompt of each answer. The text is cut where a
prompt ends, since inference encodes the prompt by itself, and each piece is encoded as it stands.
Control tokens in a content are first replaced by characters that the row does not have, so that the
template's own can be told from them; then the pieces between those are encoded as plain text.
Where the template prints a prompt otherwise than in the conversation that goes on, its last answer
stands behind the prompt, as it is printed behind a plain question.
"""

import datetime
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jinja2
from tokenizers import Tokenizer
from transformers.utils import chat_template_utils

from stages import columns, profile

_SIGNS = range(0x100000, 0x10FFFE)  # private-use characters, which stand for control tokens
_EVERY = 16  # conversations of which the template is asked for ids as well as for the text
_DAY = datetime.datetime(2024, 7, 26)  # on which every conversation is printed
_CLOCK = SimpleNamespace(now=lambda: _DAY)
Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Expected:
    """One sequence.

    Attributes:
        merged: cuts across which the tokenizer merges, so that ids are not those of the whole text.
        whole: ids of the whole text; None where a content has the text of a control token, or where
            the last answer is put behind its prompt.
    """

    ids: list[int]
    labels: list[int]
    merged: int
    whole: list[int] | None


class UnprintableError(Exception):
    """The template does not print this conversation, or not its answers behind their prompts."""


class WholeRendering:
    """Reads conversations of one model.

    Args:
        tokenizer: the emitted one, as ``AutoTokenizer`` loads it.
    """

    def __init__(self, model: profile.TargetModel, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._text = Tokenizer.from_str(model.tokenizer_json.decode())
        self._text.encode_special_tokens = True
        names = sorted(model.controls, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, names)))
        self._asked = 0
        self._tools: Any = None  # of the conversation that is read
        self._variants = [dict(variant) for variant in model.profile.template_variants]

    def sequences(
        self, row: dict[str, Any], system: str | None, last: bool
    ) -> list[Expected | None]:
        """The sequences of a conversation; None for each that cannot be printed.

        Args:
            system: the system text of conversations without one.
            last: the last answer alone is trained, and not every one.
        """
        messages, self._tools = row["messages"], row.get("tools")
        if system is not None and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": system}, *messages]
        answers = [i for i, turn in enumerate(messages) if turn["role"] == "assistant"]
        answers = answers[-1:] if last else answers
        if self._model.profile.one_example_per_turn:
            return [self._or_none(messages[: i + 1], [i]) for i in answers]
        return [self._or_none(messages, answers)]

    def _or_none(self, messages: Messages, answers: list[int]) -> Expected | None:
        try:
            return self._expected(messages, answers)
        except (UnprintableError, jinja2.TemplateError, IndexError):
            return None

    def _applied(self, messages: Messages, **options: Any) -> Any:
        with mock.patch.object(chat_template_utils, "datetime", _CLOCK):
            return self._tokenizer.apply_chat_template(
                messages, tools=self._tools, date_string=f"{_DAY:%d %b %Y}", **options
            )

    def _printed(self, messages: Messages, **variables: Any) -> str:
        return str(self._applied(messages, tokenize=False, **variables))

    def _expected(self, messages: Messages, answers: list[int]) -> Expected:
        every = "".join(turn["content"] or "" for turn in messages)
        found = list(dict.fromkeys(self._controls.findall(every)))
        signs = {
            name: chr(code)
            for name, code in zip(found, (c for c in _SIGNS if chr(c) not in every), strict=False)
        }
        shown = messages
        if signs:
            texts = [turn["content"] for turn in messages]
            hidden = [t and self._controls.sub(lambda m: signs[m[0]], t) for t in texts]
            shown = [{**t, "content": h} for t, h in zip(messages, hidden, strict=True)]
        text = self._printed(shown)
        if signs and self._restored(text, signs) != self._printed(messages):
            raise UnprintableError
        try:
            cuts = [self._start(text, shown[:i]) for i in answers]
        except UnprintableError:
            if answers != [len(shown) - 1]:
                raise
            whole = None
            text, cuts = self._behind_prompt(shown, text)
        else:
            whole = None if signs else self._whole(messages, text)
        ids, labels = self._cut(text, cuts, signs)
        return Expected(ids, labels, sum(self._merges(text, cut, signs) for cut in cuts), whole)

    def _behind_prompt(self, messages: Messages, text: str) -> tuple[str, list[int]]:
        """The last answer behind the prompt that a server would print, and where it starts."""
        question = [{"role": "user", "content": "x"}]
        alone = self._printed([*question, messages[-1]])
        found = []
        for variant in self._variants:
            asked = self._printed(question, add_generation_prompt=True, **variant)
            answer = alone.removeprefix(asked)
            if alone.startswith(asked) and text.endswith(answer) and messages[:-1]:
                prompt = self._printed(messages[:-1], add_generation_prompt=True, **variant)
                found.append((prompt + answer, [len(prompt)]))
        if not found:
            raise UnprintableError
        return max(found, key=lambda one: one[1])  # what a prompt supplies is never trained

    def _whole(self, messages: Messages, text: str) -> list[int]:
        """Ids of what ``apply_chat_template`` prints; now and then it is asked for the ids."""
        ids = self._ids(text, {})
        self._asked += 1
        if self._asked % _EVERY == 1:
            given = self._applied(messages, tokenize=True, return_dict=False)
            assert list(given) == ids, messages
        return ids

    def _start(self, text: str, before: Messages) -> int:
        if not before:  # of which nothing can be asked
            raise UnprintableError
        prompts = (
            self._printed(before, add_generation_prompt=True, **variant)
            for variant in self._variants
        )
        fitting = [len(prompt) for prompt in prompts if text.startswith(prompt)]
        if not fitting:
            raise UnprintableError
        return max(fitting)

    def _cut(
        self, text: str, cuts: list[int], signs: dict[str, str]
    ) -> tuple[list[int], list[int]]:
        """Ids and labels: an answer is trained from its cut to its end of turn or of its calls."""
        ids = self._ids(text[: cuts[0] if cuts else None], signs)
        labels = [columns.IGNORED] * len(ids)
        for a, b in itertools.pairwise([*cuts, len(text)]):
            tail = self._ids(text[a:b], signs)
            size = next(i for i, one in enumerate(tail, 1) if one in self._model.end_ids)
            ids += tail
            labels += tail[:size] + [columns.IGNORED] * (len(tail) - size)
        return ids, [columns.IGNORED, *labels[1:]]

    def _restored(self, text: str, signs: dict[str, str]) -> str:
        for name, sign in signs.items():
            text = text.replace(sign, name)
        return text

    def _pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """Control tokens (True) and texts between them, empty ones left out."""
        at = 0
        for match in self._controls.finditer(text):
            if match.start() > at:
                yield text[at : match.start()], False
            yield match[0], True
            at = match.end()
        if text[at:]:
            yield text[at:], False

    def _ids(self, text: str, signs: dict[str, str]) -> list[int]:
        if not signs:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        for piece, control in self._pieces(text):
            if control:
                ids.append(self._model.controls[piece])
            else:
                ids += self._text.encode(self._restored(piece, signs), add_special_tokens=False).ids
        return ids

    def _merges(self, text: str, cut: int, signs: dict[str, str]) -> bool:
        """Whether the texts on both sides of a cut, as one text, have other ids."""
        before = list(self._pieces(text[:cut]))
        behind = list(self._pieces(text[cut:]))
        if not before or not behind or before[-1][1] or behind[0][1]:
            return False
        left, right = (self._restored(one, signs) for one in (before[-1][0], behind[0][0]))
        alone = [
            self._text.encode(one, add_special_tokens=False).ids
            for one in (left, right, left + right)
        ]
        return bool(alone[0] + alone[1] != alone[2])
