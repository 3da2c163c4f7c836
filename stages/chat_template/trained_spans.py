"""Where the turns of a conversation start and stop in its rendered text.

An answer is trained from the end of its generation prompt. To find it, the turns before the answer
are rendered with ``add_generation_prompt``, as inference would do; the conversation's text must
begin with exactly that prompt, and the answer starts where it ends.

A rendering per answer makes a conversation of n turns cost n times n turns. So most answers of a
long conversation are proved on an excerpt of it instead (see ``excerpts``): what the excerpt prints
between the last text before the answer and the answer's start must stand at the same place in the
whole text.
"""

import functools
import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from stages.chat_template.segments import SLOT, Guard, Placeholder, Span
from stages.chat_template.template import Excerpts, Template
from stages.chat_template.turn_ends import Ends
from stages.contract import Message
from stages.errors import RowError

# How many turns the extra renderings of one conversation may print in all.
MOST_PRINTED = 1 << 17
_MOST_KINDS = 4096  # excerpts whose result is remembered
_SHOWN = 40  # characters of a text in a message
Seen: TypeAlias = list[dict[str, Any]]
Found = TypeVar("Found")


class _Lead(NamedTuple):
    """The text before a trained turn, as an excerpt shows it.

    Attributes:
        place: index in the excerpt of the turn whose text is the last one before the trained turn.
        text: what is printed from the end of that text to the start of the trained turn.
        opening: what is printed from there to the next text or to the end of the turn.
        guards: what the template asked about texts; slots are indices in the excerpt.
    """

    place: int
    text: str
    opening: str
    guards: tuple[Guard, ...]


class Chat:
    """One conversation while it is rendered.

    Attributes:
        placed: its texts are placeholders.
    """

    def __init__(self, turns: Sequence[Message], tools: list[Any] | None, placed: bool) -> None:
        self.turns, self.tools, self.placed = turns, tools, placed
        self.seen: Seen = [turn.seen() for turn in turns]
        self._left = MOST_PRINTED

    @functools.cached_property
    def excerpts(self) -> Excerpts:
        """Short conversations that stand for this one."""
        return Excerpts([turn.role for turn in self.turns])

    @functools.cached_property
    def _kinds(self) -> list[Hashable]:
        return [
            (t.role, t.content and (self.placed or t.content), t.fields and json.dumps(t.fields))
            for t in self.turns
        ]

    @functools.cached_property
    def _tools(self) -> str:
        return json.dumps(self.tools)

    def kind(self, picked: Sequence[int], index: int) -> Hashable:
        """The shape of an excerpt: everything that a template can print, apart from the texts."""
        return (self._tools, picked.index(index), tuple(self._kinds[i] for i in picked))

    def in_excerpt(
        self,
        index: int,
        known: dict[Hashable, Found | None],
        find: Callable[[list[int]], Found | None],
    ) -> tuple[list[int], Found | None]:
        """What an excerpt shows of a turn; excerpts of one kind are rendered once.

        Args:
            known: what was found before, by kind.
            find: finds it in an excerpt, of which it gets the turns.

        Returns:
            The turns of the excerpt, and what it shows: None where no excerpt can show it, or the
            template refuses the excerpt.
        """
        picked = self.excerpts.of(index)
        if picked is None:
            return [], None
        kind = self.kind(picked, index)
        if kind not in known:
            if len(known) >= _MOST_KINDS:
                known.clear()
            # The excerpt's renderings get a list of guards of their own.
            outer_guards, Placeholder.guards = Placeholder.guards, []
            try:
                known[kind] = find(picked)
            except RowError:
                known[kind] = None
            finally:
                Placeholder.guards = outer_guards
        return picked, known[kind]

    def spend(self, turns: int) -> None:
        """Count turns that are rendered again.

        Raises:
            RowError: ``too_many_turns``.
        """
        self._left -= turns
        if self._left < 0:
            detail = (
                f"to find where its {len(self.turns):,} turns start, more than {MOST_PRINTED:,} "
            )
            detail += "turns would be rendered; split the conversation into "
            raise RowError("too_many_turns", detail + "several rows, or use --train-on last")


class Spans:
    """Finds the trained spans of conversations; remembers the results of excerpts.

    Args:
        prompts: print the prompts that inference would feed.
        ends, train_all: as of ``compile.Compiler``.
    """

    def __init__(
        self, template: Template, prompts: Sequence[Template], ends: Ends, train_all: bool
    ) -> None:
        self._template, self._prompts, self._ends = template, prompts, ends
        self._any_end = re.compile("|".join(map(re.escape, ends.tokens)))
        self._train_all = train_all
        self._leads: dict[Hashable, _Lead | None] = {}

    def __call__(self, chat: Chat, text: str) -> list[Span]:
        """The trained spans of a conversation's rendered text.

        Raises:
            RowError: ``not_prefix_stable``, ``no_end_of_turn``, ``untrainable_turn``,
                ``too_many_turns``.
        """
        # The end of each turn's text in the rendered text, by the turn's index.
        places = {int(m[1]): m.end() for m in SLOT.finditer(text)} if chat.placed else {}
        answers = [
            self._answer(chat, text, i, places)
            for i, turn in enumerate(chat.turns)
            if turn.role == "assistant" and (turn.trained or self._train_all)
        ]
        if not self._train_all:
            return answers
        ends = None
        if not all(turn.trained for turn in chat.turns):
            ends = self.turn_ends(chat, text)
        return self._all_turns(text, chat.turns, answers, ends)

    def appended(self, turns: Sequence[Message]) -> str:
        """What the text of a conversation needs behind it, for its last turn to end."""
        last = turns[-1]
        trained = last.role == "assistant" and (last.trained or self._train_all)
        return self._ends.of(last.fields).appended if trained else ""

    def turn_ends(self, chat: Chat, text: str) -> list[int]:
        """Where each turn stops in the rendered text.

        Raises:
            RowError: the template does not print one turn after the other.
        """
        if self._ends.answer.follower:
            detail = "a turn is left out, and the template ends a turn where the next one opens"
            raise RowError("untrainable_turn", detail)
        ends = []
        for i in range(len(chat.seen)):
            chat.spend(i)
            prefix = self._template.render(chat.seen[: i + 1], chat.tools)
            if not text.startswith(prefix):
                detail = f"a turn is left out, and the template joins turn {i + 1} with others"
                raise RowError("untrainable_turn", detail)
            ends.append(len(prefix))
        return ends

    def _all_turns(
        self, text: str, turns: Sequence[Message], answers: list[Span], ends: list[int] | None
    ) -> list[Span]:
        """Every turn up to its end-of-turn token, cut where answers start.

        Text behind the last end-of-turn token is not trained, and neither are turns that the row
        leaves out.

        Args:
            ends: where each turn stops in the text; None where no turn is left out.
        """
        stops = [match.end() for match in self._any_end.finditer(text)]
        starts = [start for start, _ in answers]
        spans = []
        # The turn that each end-of-turn token belongs to: the first one that stops there or later.
        own = [] if ends is None else [bisect_left(ends, stop) for stop in stops]
        for at, (start, stop) in enumerate(itertools.pairwise([0, *stops])):
            # Two ends that belong to turn 0: the template has added a system turn before it.
            added = own[at : at + 2] == [0, 0]
            if not own or added or turns[own[at]].trained:
                inner = starts[bisect_left(starts, start) : bisect_left(starts, stop)]
                spans += [(a, b) for a, b in itertools.pairwise([start, *inner, stop]) if a < b]
        return spans

    def _answer(self, chat: Chat, text: str, index: int, places: dict[int, int]) -> Span:
        """Where a trained turn starts and stops in the rendered text."""
        start = None
        if chat.placed and not chat.excerpts.whole(index):
            start = self._by_excerpt(chat, text, index, places)
        if start is None:
            chat.spend(index * len(self._prompts))
            start = self._start(text, chat.seen[:index], chat.tools, index)
        return start, self.stop(chat, text, index, max(start, places.get(index, 0)))

    def stop(self, chat: Chat, text: str, index: int, begin: int) -> int:
        """Where a turn stops whose last text ends at ``begin``, or later.

        Raises:
            RowError: ``no_end_of_turn``.
        """
        end, turns = self._ends.of(chat.turns[index].fields), chat.turns
        following = turns[index + 1].role if index + 1 < len(turns) else None
        if end.appended and following not in (None, end.follower):
            detail = f"turn {index + 1} ends where a turn of the role {end.follower!r} opens, and "
            raise RowError("no_end_of_turn", f"{detail}one of the role {following!r} follows")
        # A turn may print its end inside of it as well: the last one in the text is its own.
        stop = (text.rfind if following is None else text.find)(end.token, begin)
        if stop < 0:
            shown = SLOT.sub("...", text[begin : begin + _SHOWN])
            detail = f"the template does not end turn {index + 1} with {end.token!r}: there stands "
            raise RowError("no_end_of_turn", f"{detail}{shown!r}")
        return stop + len(end.token)

    def _start(self, text: str, before: Seen, tools: list[Any] | None, index: int) -> int:
        """Where a turn starts: behind the prompt that inference would feed."""
        prompts = [one.render(before, tools, add_generation_prompt=True) for one in self._prompts]
        fitting = [len(prompt) for prompt in prompts if text.startswith(prompt)]
        if not fitting:
            detail = f"turn {index + 1} is not rendered after the prompt that inference would feed"
            shown = SLOT.sub("...", prompts[0][-_SHOWN:])
            raise RowError("not_prefix_stable", f"{detail}: that ends in {shown!r}")
        return max(fitting)

    def _by_excerpt(self, chat: Chat, text: str, index: int, places: dict[int, int]) -> int | None:
        """The start of a turn as an excerpt shows it; None where no excerpt can show it."""
        picked, lead = chat.in_excerpt(
            index, self._leads, lambda picked: self._lead(chat, picked, index)
        )
        # Where the excerpt has its last text, the whole text must go on as the excerpt does.
        behind = places.get(picked[lead.place]) if lead else None
        if lead is None or behind is None:
            return None
        if not text.startswith(lead.text + lead.opening, behind):
            return None
        # What the template asked in the excerpt, it asks of these texts too; slots become the
        # turns' indices in the whole conversation.
        Placeholder.guards += [replace(guard, slot=picked[guard.slot]) for guard in lead.guards]
        return behind + len(lead.text)

    def _lead(self, chat: Chat, picked: list[int], index: int) -> _Lead | None:
        """The text before a turn of an excerpt; None where no text stands there."""
        seen, at = [chat.seen[i] for i in picked], picked.index(index)
        text = self._template.render(seen, chat.tools)
        start = self._start(text, seen[:at], chat.tools, index)
        guards = dict.fromkeys(Placeholder.guards)
        before = list(SLOT.finditer(text, 0, start))
        stop = text.find(self._ends.of(chat.turns[index].fields).token, start)
        if not before or stop < 0:
            return None
        following = SLOT.search(text, start, stop)
        place = {turn: number for number, turn in enumerate(picked)}
        return _Lead(
            place=place[int(before[-1][1])],
            text=text[before[-1].end() : start],
            opening=text[start : following.start() if following else stop],
            guards=tuple(replace(guard, slot=place[guard.slot]) for guard in guards),
        )
