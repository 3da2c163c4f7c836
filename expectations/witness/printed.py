"""What a published chat template prints for turns, and where answers begin in it.

A template is asked by ``transformers`` over a build's folder ``tokenizer/``.
"""

import datetime
import functools
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from expectations.witness.hugging_face import tokenizer_of
from expectations.witness.raw import UnreadError
from expectations.witness.turns import Turn

# A template's function that gives the day; its library takes nothing but plain values.
_ASKED_DAY = re.compile(r"strftime_now\(\s*(?:'([^']*)'|\"([^\"]*)\")\s*\)")
_DAY = "{% macro strftime_now(format) %}{{ days[format] }}{% endmacro %}{{ '' }}"
_REASONING = ("reasoning_content", "reasoning", "thinking")
MARKS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "[INST]")
_FREE = range(0xF0000, 0xFFFFE)  # private-use characters
NEAR = 16  # characters
_THOUGHT = "\ue004a thought\ue004"


class BrokenError(Exception):
    """A row that the published tokenizer and template cannot have given."""


def calls(turn: Turn) -> bool:
    """Whether a turn calls tools."""
    return bool(turn.get("tool_calls"))


class Printer:
    """The template of a build.

    Args:
        folder: ``tokenizer/``; ``words``: what else the user was told of the model.

    Attributes:
        printed: the names in the template.
        ends: the ids that end a turn of text, and one of calls.
        merged: texts that the tokenizer would have merged where an answer begins.
        marked: whether a text of the row that is read has a marker of a template.
    """

    def __init__(self, folder: str, words: dict[str, Any]) -> None:
        self.tokenizer = tokenizer_of(folder)
        self.words, self._folder = words, Path(folder)
        added = self.tokenizer.added_tokens_decoder
        self._swallow = {t.content for t in added.values() if t.lstrip or t.rstrip}
        self.controls = {t.content: int(i) for i, t in added.items() if t.special}
        every = sorted(self.controls, key=len, reverse=True)
        self.spelled = re.compile("|".join(map(re.escape, every)) or r"(?!)")
        plain = [name for name in self.controls if name not in self._swallow]
        self._anchor = max(plain, key=len, default="")
        self.ends = [self.id_of(token) for token in words["ends"]]
        self.merged, self.marked = 0, False
        # Both sides of a pair have one prompt, and few tokens stand before an answer.
        self._ids = functools.lru_cache(64)(self._of_backend)
        told = str(self.tokenizer.chat_template)
        date = datetime.datetime.fromisoformat(words["date"])
        asked = [one or other for one, other in _ASKED_DAY.findall(told)]
        self._days = {one: date.strftime(one) for one in asked}
        self._template = _DAY + told if asked else told
        self._unread_day = "strftime_now(" in _ASKED_DAY.sub("", told)
        self._reasoning = next((name for name in _REASONING if name in told), "")
        self.printed = {*re.findall(r"[A-Za-z_]\w*", told)}
        self.printed |= {"tool_call_id"} if self._prints_ids() else set()

    def _prints_ids(self) -> bool:
        """Whether a tool's result is printed with its call's id; also where none is printed."""
        function = {"name": "f", "arguments": {"x": "y"}}
        call = {"id": "abcdefghi", "type": "function", "function": function}
        result: Turn = {"role": "tool", "name": "f", "content": "z", "tool_call_id": "ihgfedcba"}
        turns: list[Turn] = [{"role": "user", "content": "x"}]
        turns += [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
        try:
            return "ihgfedcba" in self.rendered(turns, None)
        except (BrokenError, UnreadError):
            return True

    def unlike(self) -> list[str]:
        """The parts of ``tokenizer.json`` in which the tokenizer's class has others."""
        told = json.loads((self._folder / "tokenizer.json").read_bytes())
        loaded = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return [n for n in ("normalizer", "pre_tokenizer") if told.get(n) != loaded.get(n)]

    def id_of(self, token: str) -> int:
        """The id of a token."""
        (found,) = self.tokenizer.convert_tokens_to_ids([token])
        return int(found)

    def _encoded(self, text: str) -> list[int]:
        return list(self._ids(text))

    def _of_backend(self, text: str) -> Sequence[int]:
        """The ids of a text as the tokenizer's class loads its backend, without its checks."""
        backend = self.tokenizer.backend_tokenizer
        return tuple(backend.encode(text, add_special_tokens=False).ids)

    def _piece(self, text: str, before: str) -> list[int]:
        """A text that stands behind another, whose last control token decides how it begins."""
        if not before or not text:
            return self._encoded(text) if text else []
        swallowed = before.rstrip()
        last = next(
            (t for t in self.controls if (swallowed if t in self._swallow else before).endswith(t)),
            self._anchor,
        )
        return self._encoded(last + text)[len(self._encoded(last)) :]

    def _as_data(self, text: str) -> list[int]:
        """A text whose control tokens are text."""
        backend = self.tokenizer.backend_tokenizer
        backend.encode_special_tokens = True
        found = list(backend.encode(text, add_special_tokens=False).ids)
        backend.encode_special_tokens = False
        return found

    def _hidden(self, text: str, hidden: dict[str, str]) -> list[int]:
        """A rendered text with characters in the place of hidden spellings."""
        ids, at = [], 0
        for match in [*self.spelled.finditer(text), None]:
            own = text[at : match.start() if match else len(text)]
            for spelling, sign in hidden.items():
                own = own.replace(sign, spelling)
            ids += self._as_data(own) if own else []
            if match:
                ids.append(self.controls[match.group()])
                at = match.end()
        return ids

    def hide(self, texts: Iterable[str]) -> dict[str, str]:
        """A character for each control token that texts spell."""
        every = "".join(texts)
        self.marked = self.marked or any(mark in every for mark in MARKS)
        spelled = list(dict.fromkeys(self.spelled.findall(every)))
        if spelled and (self._swallow or self._encoded("a") != self._piece("a", " ")):
            raise UnreadError("control tokens as text, with a tokenizer that looks around them")
        free = (chr(code) for code in _FREE if chr(code) not in every)
        return dict(zip(spelled, free, strict=False))

    def cut(self, text: str, cuts: Sequence[int], hidden: dict[str, str]) -> list[list[int]]:
        """The ids of each piece of a text."""
        bounds = list(itertools.pairwise([0, *cuts, len(text)]))
        if hidden:
            return [self._hidden(text[a:b], hidden) for a, b in bounds]
        found = [self._piece(text[a:b], text[:a]) for a, b in bounds]
        near = any(self._joins(text[max(at - NEAR, 0) : at], text[at : at + NEAR]) for at in cuts)
        self.merged += near and self._encoded(text) != [*itertools.chain.from_iterable(found)]
        return found

    def _joins(self, before: str, behind: str) -> bool:
        """Whether a token may stand on both sides of a cut; far from one nothing is joined."""
        return self._encoded(before + behind) != self._encoded(before) + self._encoded(behind)

    def rendered(self, turns: Sequence[Turn], tools: list[Any] | None, **more: Any) -> str:
        if self._unread_day:
            raise UnreadError("a day whose format is no text in the template")
        shown = []
        for turn in turns:
            if "reasoning" in turn:
                if not self._reasoning:
                    if any("think" in name or "reason" in name for name in self.printed):
                        raise UnreadError("reasoning in a field")
                    raise BrokenError("reasoning: the template prints none")
                turn = {**turn, self._reasoning: turn["reasoning"]}
                turn.pop("reasoning") if self._reasoning != "reasoning" else None
            shown.append(turn)
        try:
            text = self.tokenizer.apply_chat_template(
                shown,
                tools=tools,
                tokenize=False,
                chat_template=self._template,
                days=self._days,
                **more,
            )
        except Exception as error:  # whatever a template raises
            raise BrokenError(f"template: it refuses the row: {error}") from error
        return str(text)

    def ended(self, turns: Sequence[Turn], tools: list[Any] | None, **more: Any) -> str:
        """A conversation's text, up to the end of its last turn at least."""
        text = self.rendered(turns, tools, **more)
        end = self.words["ends"][calls(turns[-1])]
        if turns[-1]["role"] != "assistant" or text.rstrip().endswith(end):
            return text
        # What follows may change how reasoning is printed, so the turn is followed without it.
        following: Turn = {"role": "user", "content": "x"}
        for call in turns[-1].get("tool_calls") or ():
            named = {"name": call["function"]["name"], "tool_call_id": call.get("id")}
            following = {**following, "role": "tool", **named}
        plain = {name: value for name, value in turns[-1].items() if name != "reasoning"}
        last: list[Turn] = [{"role": "user", "content": "x"}, plain]
        try:
            alone, longer = (self.rendered(x, tools, **more) for x in (last, [*last, following]))
        except BrokenError:
            return text
        behind = longer.removeprefix(alone)
        opens = self.spelled.search(behind)
        if not longer.startswith(alone) or not opens or opens.group() != end:
            return text
        return text + behind[: opens.end()]

    def _start(self, text: str, before: Sequence[Turn], tools: list[Any] | None) -> int | None:
        """Where an answer begins: behind the longest generation prompt that the text has there."""
        prompts = (
            self.rendered(before, tools, add_generation_prompt=True, **variant)
            for variant in self.words["variants"]
        )
        return max((len(one) for one in prompts if text.startswith(one)), default=None)

    def conversation(
        self, turns: Sequence[Turn], trained: Sequence[int], tools: list[Any] | None
    ) -> tuple[str, list[int]]:
        """A conversation that begins with the prompt of each trained answer, and where they begin.

        Some templates print it so only with the keywords of a prompt; or only the last answer does
        not change what is before it, which is then put behind its prompt. Where all prompts open a
        block of reasoning, an answer without any closes it.
        """
        if self.words["appended"]:
            return self._appended(turns, trained, tools)
        keywords = [{}, *(one for one in self.words["variants"] if one)]
        alone = list(trained) == [len(turns) - 1]
        for given in keywords:
            text = self.ended(turns, tools, **given)
            starts = [self._start(text, turns[:i], tools) for i in trained]
            thought = [str(turns[i].get("reasoning", "")).strip() for i in trained]
            if None not in starts and all(one in text for one in thought):
                return text, [start for start in starts if start is not None]
            for other in keywords if alone else ():
                if (found := self._behind(turns, tools, given, other)) is not None:
                    return found
        pairs = itertools.product(keywords, keywords) if alone and self._reasoning else ()
        for given, other in pairs:
            closing = [*turns[:-1], {"reasoning": _THOUGHT, **turns[-1]}]
            if (found := self._behind(closing, tools, given, other)) is not None:
                return found
        raise BrokenError("template: an answer is not behind its generation prompt")

    def _appended(
        self, turns: Sequence[Turn], trained: Sequence[int], tools: list[Any] | None
    ) -> tuple[str, list[int]]:
        """The same where earlier answers stay as they were printed when nothing followed them, and
        behind each stands what is printed behind one that has nothing to rewrite."""
        answers = [i for i, turn in enumerate(turns) if turn["role"] == "assistant"]
        opening = turns[: answers[0]]
        text = self.rendered(turns[: answers[0] + 1], tools)
        starts = {answers[0]: self._start(text, opening, tools)}
        for at, following in itertools.pairwise([*answers, len(turns)]):
            between = turns[at + 1 : following + 1]
            if not between:
                break
            end, plain = self.words["ends"][calls(turns[at])], {**turns[at]}
            plain.pop("reasoning", None)
            if plain.get("content") or not calls(plain):
                plain["content"] = _THOUGHT
            prompt = self.rendered(opening, tools, add_generation_prompt=True)
            longer = self.rendered([*opening, plain, *between], tools)
            alike = zip(longer, prompt, strict=False)
            said = next((i for i, (a, b) in enumerate(alike) if a != b), len(prompt))
            cut = longer.find(end, max(said, longer.find(_THOUGHT)))
            own = text.rfind(end)
            if cut < 0 or own < 0:
                raise UnreadError("a history that is appended to turns without an end")
            before, cut = [*opening, plain, *between[:-1]], cut + len(end)
            if following < len(turns):
                start = self._start(longer, before, tools)
                starts[following] = start and own + len(end) + start - cut
            text = text[: own + len(end)] + longer[cut:]
        found = [starts[i] for i in trained]
        if None in found:
            raise BrokenError("template: an answer is not behind its generation prompt")
        return text, [start for start in found if start is not None]

    def _behind(
        self,
        turns: Sequence[Turn],
        tools: list[Any] | None,
        given: dict[str, Any],
        other: dict[str, Any],
    ) -> tuple[str, list[int]] | None:
        """A prompt with some keywords, and the last turn as others print it behind a question."""
        asked: list[Turn] = [{"role": "user", "content": "x"}]
        prompt, opened = (
            self.rendered(before, tools, add_generation_prompt=True, **given)
            for before in (turns[:-1], asked)
        )
        alone = self.ended([*asked, turns[-1]], tools, **other)
        if not alone.startswith(opened) and "reasoning" not in turns[-1]:
            plain = self.ended([*asked, {"role": "assistant", "content": _THOUGHT}], tools, **other)
            alike = itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(opened, plain, strict=False)
            )
            opened = self._unclosed(opened, opened[: len([*alike])], other)
        turn = alone.removeprefix(opened)
        if not alone.startswith(opened) or str(turns[-1].get("reasoning", "")).strip() not in turn:
            return None
        text = prompt + turn.replace(_THOUGHT, "")
        return text, [self._start(text, turns[:-1], tools) or len(prompt)]

    def _unclosed(self, opened: str, begun: str, given: dict[str, Any]) -> str:
        """A prompt without the empty block of reasoning that it closes, where answers are printed
        without one: what closes it is printed behind the reasoning of a call."""
        function = {"name": "f", "arguments": {"x": "y"}}
        call = {"id": "abcdefghi", "type": "function", "function": function}
        turn: Turn = {"role": "assistant", "content": "", "tool_calls": [call]}
        turn |= {"reasoning": _THOUGHT} if self._reasoning else {}
        try:
            text = self.rendered([{"role": "user", "content": "x"}, turn], None, **given)
        except BrokenError:
            return opened
        behind = text.partition(_THOUGHT)[2].lstrip()
        block = opened[len(begun) :].rstrip()
        closes = any(behind.startswith(block[at:]) for at in range(len(block)))
        return begun if closes else opened


def veiled(text: str, hidden: dict[str, str]) -> str:
    """A text with characters in the place of control tokens that it spells."""
    for spelling, sign in hidden.items():
        text = text.replace(spelling, sign)
    return text
