"""The ways in which a conversation is printed, so that its answers follow their prompts.

Most templates print a conversation so that it begins with the prompt of each answer. Some do so
only with the keywords of that prompt (Gemma 4 opens the system turn otherwise), or print reasoning
only then. And some print the turns of a prompt otherwise than in a conversation that goes on
(gpt-oss drops the reasoning of calls once an answer follows): there the last turn is put behind the
prompt that inference would feed.
"""

import functools
import itertools
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from jinja2 import nodes

from stages.chat_template import appended, printed_fields, reasoning, segments, turn_ends
from stages.chat_template.template import Template, parsed_tree
from stages.chat_template.trained_spans import Chat, Found, Seen, Spans
from stages.chat_template.turn_ends import Ends, asks
from stages.contract import Message
from stages.errors import RowError

UNPROMPTED = "not_prefix_stable"  # the code of rows whose answers do not follow their prompts
_LOST = "lost_in_template"
_THOUGHT, _QUESTION = "\ue004a thought\ue004", "\ue005a question\ue005"
SWITCHES = ("enable_thinking", "thinking")  # template arguments that turn reasoning on or off
_ASKED = [asks("x")]
Keywords: TypeAlias = tuple[tuple[str, object], ...]


class Behind(Template):
    """Prints the last turn, an answer, behind its prompt, as it is printed behind a plain question.

    A prompt may close an empty block of reasoning that answers are printed without: one that has
    none goes behind that.

    Args:
        prompted: prints prompts; ``printed``: prints turns.
        thought: the turn is printed with this field of reasoning, whose text is then taken out: so
            a turn without reasoning closes the block that its prompt opens.
    """

    def __init__(self, prompted: Template, printed: Template, thought: str | None) -> None:
        self.source = prompted.source
        self._prompted, self._printed, self._thought = prompted, printed, thought

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """As of ``Template``.

        Raises:
            RowError: the turn is printed otherwise there.
        """
        before, last, question = messages[:-1], messages[-1], asks("x")
        if self._thought and not last.keys() & {*reasoning.SPELLINGS}:
            last = {**last, self._thought: _THOUGHT}
        prompt, opened = (
            self._prompted.render(asked, tools, add_generation_prompt=True)
            for asked in (before, [question])
        )
        alone, whole = (
            self._printed.render([*asked, last], tools) for asked in ([question], before)
        )
        turn = self._turn(alone, opened)
        if turn is None or not whole.endswith(turn):
            raise RowError(UNPROMPTED, "its last turn is printed otherwise behind its prompt")
        return prompt + turn.replace(_THOUGHT, "")

    def _turn(self, alone: str, opened: str) -> str | None:
        """What of an answer's text stands behind its prompt; None where it begins otherwise."""
        if alone.startswith(opened):
            return alone.removeprefix(opened)
        opening, block = self._closed
        begun = opened.removesuffix(block)
        turn = alone.removeprefix(begun)
        alike = begun == opened or turn == alone or turn.lstrip().startswith(opening)
        return None if alike else turn

    @functools.cached_property
    def _closed(self) -> tuple[str, str]:
        """How a block of reasoning opens, and that block as prompts close it, with nothing in it,
        where answers are printed without one; empty where they are not."""
        name = reasoning.spelled_by(printed_fields.printed_fields(self.source))
        thought = {name: _THOUGHT} if name else {}
        opened = _behind_question(self._prompted, add_generation_prompt=True)
        answer = _behind_question(self._printed, turn_ends.answers(_THOUGHT))
        begun = opened[: appended.shared(opened, answer)]
        block = opened.removeprefix(begun)
        turns = (turn_ends.answers("y", **thought), turn_ends.calls("quince", **thought))
        for turn in turns if answer.startswith(_THOUGHT, len(begun)) else ():
            shown = _behind_question(self._printed, turn).removeprefix(begun)
            opening, _, closing = shown.partition(_THOUGHT)
            opens, closes = ("".join(text.split()) for text in (opening, block))
            around = "".join((opening + closing).split())
            if len(opens) < len(closes) and around.startswith(closes):
                return opening.strip(), block
        return "", ""


def _behind_question(template: Template, *last: dict[str, Any], **told: Any) -> str:
    """What is printed behind a question; empty where the template refuses it."""
    tools = turn_ends.TOOLS if any(turn_ends.CALLS in turn for turn in last) else None
    try:
        text = template.render([asks(_QUESTION), *last], tools, **told)
    except RowError:
        return ""
    return text.rpartition(_QUESTION)[2]


class Way:
    """One way in which conversations are printed.

    Args:
        prompts: the template with the keywords of each generation prompt.
    """

    def __init__(
        self, template: Template, prompts: Sequence[Template], ends: Ends, train_all: bool
    ) -> None:
        self.template, self.spans = template, Spans(template, prompts, ends, train_all)
        self._printed = printed_fields.Printed(template)
        self.proved: dict[Hashable, bool | None] = {}

    def rendered(self, turns: Sequence[Message], seen: Seen, tools: list[Any] | None) -> str:
        """What the template prints, and what ends the last turn if that does not."""
        return self.template.render(seen, tools) + self.spans.appended(turns)

    def read(self, chat: Chat) -> tuple[str, list[segments.Span]]:
        """A conversation's text, and its trained spans."""
        printed = self.template.render(chat.seen, chat.tools)
        text = printed + self.spans.appended(chat.turns)
        spans = self.spans(chat, text)
        self._printed.require(chat, printed)
        if not chat.placed:  # placeholders are counted
            self._printed.require_texts(chat, printed)
        return text, spans


class Ways:
    """All ways in which a template prints a conversation.

    Args:
        ends, variants, train_all: as of ``compile.Compiler``.
    """

    def __init__(
        self, template: Template, ends: Ends, variants: Sequence[dict[str, Any]], train_all: bool
    ) -> None:
        prompts = [template.given(one) if one else template for one in variants]
        named = [template, *(one for one in prompts if one is not template)]
        self._all = [Way(one, prompts, ends, train_all) for one in _templates(named)]
        self.plain = self._all[0]
        self._train_all = train_all

    def first(self, turns: Sequence[Message], read: Callable[[Way], Found]) -> Found:
        """What is read in the first way that prints all, and answers behind their prompts.

        Raises:
            RowError: what is lost; that of the way without keywords, where nothing is.
        """
        last = len(turns) - 1
        alone = not self._train_all and [i for i, t in enumerate(turns) if t.trained] == [last]
        errors: list[RowError] = []
        for way in self._all:
            behind = isinstance(way.template, Behind)
            if behind and not alone:
                continue
            try:
                return read(way)
            except RowError as error:
                errors.append(error)
                if error.code not in (UNPROMPTED, _LOST) and not behind:
                    break  # other keywords change nothing about it
        raise max(errors, key=lambda error: error.code == _LOST)

    def rank(self, turns: Sequence[Message], tools: list[Any] | None) -> int | None:
        """Which of the ways prints a conversation, the preferred first; None where none does."""
        try:
            return self._all.index(self.located(turns, tools)[0])
        except RowError:
            return None

    def located(
        self, turns: Sequence[Message], tools: list[Any] | None
    ) -> tuple[Way, str, list[segments.Span]]:
        """A conversation's text and trained spans, and the way in which it is printed."""
        return self.first(turns, lambda way: (way, *way.read(Chat(turns, tools, placed=False))))


def _templates(named: Sequence[Template]) -> Iterator[Template]:
    """A template with each set of keywords, its prompts with each of its turns behind; and last the
    prompts with turns that close the block of reasoning that was opened."""
    for prompted in named:
        yield prompted
        yield from (Behind(prompted, printed, None) for printed in named)
    thought = reasoning.spelled_by(printed_fields.printed_fields(named[0].source))
    if thought:
        yield from (Behind(a, b, thought) for a, b in itertools.product(named, repeat=2))


# What of this a template is found to need.


def variants(template: Template) -> tuple[Keywords, ...]:
    """Keyword sets that give a template's different generation prompts; no keywords come first.

    Where an answer, or one with reasoning, follows none of them, the first keywords are added whose
    prompt it does follow.
    """
    found = list(_switched(template))
    for thought in (False, True):
        if not any(follows(template, thought, one) for one in found):
            every = ((pair,) for pair in keywords(template))
            found += [one for one in every if follows(template, thought, one)][:1]
    return tuple(found)


def _switched(template: Template) -> Iterable[Keywords]:
    """Keyword sets of the usual switches that give different generation prompts."""
    by_text: dict[str, Keywords] = {}
    for name in SWITCHES:
        if name not in template.source:
            continue
        for told in ((), ((name, False),), ((name, True),)):
            try:
                text = template.render(_ASKED, None, add_generation_prompt=True, **dict(told))
            except RowError:
                continue
            by_text.setdefault(text, told)
        if len(by_text) > 1:
            return by_text.values()
    return ((),)


def keywords(template: Template) -> list[tuple[str, object]]:
    """Names of a template that speak of reasoning, each with the values that it compares them with,
    or with no and yes."""
    tree = parsed_tree(template.source)
    values: dict[str, dict[object, None]] = {
        name.name: {}
        for name in tree.find_all(nodes.Name)
        if name.ctx == "load" and re.search("think|reason", name.name)
    }
    for compared in tree.find_all(nodes.Compare):
        if isinstance(compared.expr, nodes.Name) and compared.expr.name in values:
            told = (one.value for one in compared.find_all(nodes.Const))
            values[compared.expr.name].update(dict.fromkeys(told))
    return [(name, value) for name, own in values.items() for value in own or (False, True)]


def follows(template: Template, thought: bool, told: Keywords) -> bool:
    """Whether an answer follows the prompt that some keywords give; or one with reasoning, where
    the template prints that."""
    name = reasoning.spelled_by(printed_fields.printed_fields(template.source)) if thought else None
    answer = turn_ends.answers("y", **({name: "A thought."} if name else {}))
    given = template.given(dict(told))
    try:
        prompt, text = (
            given.render(turns, None, add_generation_prompt=asked)
            for turns, asked in ((_ASKED, True), ([*_ASKED, answer], False))
        )
    except RowError:
        return False
    return text.startswith(prompt) and (name is None or "A thought." in text)


def _dialogues() -> Iterator[tuple[list[dict[str, Any]], list[Any] | None]]:
    """Conversations of three exchanges, and their tools: as plain as can be, with reasoning in each
    place where rows have it, with tools, and with calls of them."""

    def every(think: str = "", looks_up: bool = False, field: str = "") -> list[dict[str, Any]]:
        turns, fields = [], {field: "A thought."} if field else {}
        for n in range(3):
            turns.append(asks(f"question {n}"))
            if looks_up:
                turns += [turn_ends.calls(f"word {n}", **fields), turn_ends.result("a fruit")]
            turns.append(turn_ends.answers(f"{think}answer {n}", **fields))
        return turns

    yield every(), None
    yield every(think="<think>\nA thought.\n</think>\n\n"), None
    for name in reasoning.SPELLINGS:
        yield every(field=name), None
    yield every(), turn_ends.TOOLS
    yield every(looks_up=True), turn_ends.TOOLS
    for name in reasoning.SPELLINGS:
        yield every(looks_up=True, field=name), turn_ends.TOOLS


def rewrites(template: Template, ends: Sequence[str]) -> bool:
    """Whether a template prints an earlier turn of an assistant, or what stands before it,
    otherwise once later turns follow, or otherwise than behind its prompt: each trained turn must
    then be an example of its own.

    Args:
        ends: the tokens that end turns, see ``ModelProfile.ends``.
    """
    dialogues = list(_dialogues())
    if any(_changes(template, *dialogue, ends=ends) for dialogue in dialogues):
        return True
    known = turn_ends.declared(template, segments.controls_pattern(ends), ends)
    ways = Ways(template, known, [dict(one) for one in variants(template)], train_all=False)
    return any(_apart(ways, *dialogue) for dialogue in dialogues)


def _apart(ways: Ways, turns: list[dict[str, Any]], tools: list[Any] | None) -> bool:
    """Whether each answer of a conversation follows its prompt, but not all of them in one text, or
    only with other keywords than a server's defaults."""
    told = [Message(t.pop("role"), t.pop("content"), t or None) for t in map(dict, turns)]
    said = [i for i, turn in enumerate(told) if turn.role == "assistant"]

    def rank(stop: int, which: Collection[int]) -> int | None:
        own = [replace(turn, trained=i in which) for i, turn in enumerate(told[:stop])]
        return ways.rank(own, tools)

    whole = rank(len(turns), said)
    alone = (rank(i + 1, [i]) for i in said)
    return whole != 0 and all(one is not None and (whole is None or one < whole) for one in alone)


def _changes(
    template: Template, turns: list[dict[str, Any]], tools: list[Any] | None, ends: Sequence[str]
) -> bool:
    before = ""
    for i, turn in enumerate(turns):
        if turn["role"] != "assistant":
            continue
        own = turn_ends.last_text(turn)
        try:
            text = template.render(turns[: i + 1], tools)
        except RowError:  # rows of this kind are refused
            return False
        at = text.rfind(own)
        if at < 0:  # which other probes say
            return False
        if not text.startswith(before):
            return True
        stops = [stop + len(end) for end in ends if (stop := text.find(end, at)) >= 0]
        before = text[: min(stops, default=at + len(own))]
    return False
