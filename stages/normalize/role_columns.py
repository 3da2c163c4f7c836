"""What is in the columns of sampled rows, at any depth, and which roles that allows.

A path is a column, a key of an object in it (``info.post``), or a key of every object in a list
(``answers[].score``), as ``--map`` takes it. A name suggests a role; values that cannot play it
take it back: a question differs from row to row, a number is one for each answer, a reference is
repeated at the end of the answer that is checked against it.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stages.contract import Row
from stages.formats import _messages, _turns
from stages.normalize import role_names
from stages.rows import column_names, judgements, shapes, signals
from stages.rows.column_names import EMPTY
from stages.rows.judgements import are_numbers
from stages.rows.selection import lookup

_DEEPEST = 5
_MOST = 0.9  # of the rows, that must have a value where a format needs one
_ENOUGH = 8  # rows, of which a question and an answer are not nearly all the same text
_FEW = 0.2  # different texts in that many rows: a category, a name, a constant
_SHORT = 16  # characters of what may only be checked against
_VERDICTS = 5  # different values of a verdict: each side, its name, a tie
_END = 200  # characters of an answer in which it repeats the reference


def _ends_with(value: Any, asks: bool) -> bool:
    """Whether a value is turns that end with a question, or with an answer."""
    turns = value if isinstance(value, list) else _turns.turns_in(value)
    if not turns or not _turns.are_turns(turns):
        return False
    roles = [_messages.role_of(turn) for turn in turns]
    return (roles[-1] == "user" and "assistant" not in roles[:1]) if asks else "assistant" in roles


def _are_talks(value: Any) -> bool:
    """Whether a value is turns of both sides, and not answers of which each names its model."""
    return _ends_with(value, asks=False) and "user" in map(_messages.role_of, value)


def _is_said(value: Any) -> bool:
    """Whether a value can be an answer: a text, a turn, or turns."""
    turns = [value] if isinstance(value, dict) else value
    return isinstance(value, str) or _turns.are_turns(turns)


def _are_answers(value: Any) -> bool:
    if not isinstance(value, list) or len(value) < 2 or _turns.are_turns(value):
        return False
    return shapes.are_texts(value) or all(isinstance(one, dict) for one in value)


def _are_verdicts(value: Any) -> bool:
    """Whether a value is a list that says of each thing whether it is good."""
    return isinstance(value, list) and all(judgements.is_good(one) is not None for one in value)


def paths_of(row: Row, before: str = "", depth: int = 1) -> Iterator[str]:
    """The paths of a row, at any depth."""
    for key, value in row.items():
        path = f"{before}{key}"
        if before and not {*".,"}.isdisjoint(key):
            continue
        yield path
        if depth < _DEEPEST and isinstance(value, dict):
            yield from paths_of(value, f"{path}.", depth + 1)
        elif depth < _DEEPEST and isinstance(value, list) and not _turns.are_turns(value):
            inner = [one for one in value if isinstance(one, dict)]
            if inner and len(inner) == len(value):
                merged = {k: v for one in inner for k, v in one.items() if v not in EMPTY}
                yield from paths_of(merged, f"{path}[].", depth + 1)


@dataclass(frozen=True)
class Columns:
    """The values of every path, one for each row.

    Attributes:
        answers_alone: every answer is trained, so one of two sides is no answer.
    """

    values: Mapping[str, list[Any]]
    answers_alone: bool

    @cached_property
    def _rows(self) -> list[Row]:
        each = zip(*self.values.values(), strict=True)
        return [dict(zip(self.values, values, strict=True)) for values in each]

    def told(self, path: str) -> list[Any]:
        """The values at a path, also at several paths together, and with endings."""
        known = self.values.get(path)
        return [lookup(row, path) for row in self._rows] if known is None else known

    def _all(self, path: str, fits: Any, share: float = _MOST) -> bool:
        told = self.told(path)
        there = [value for value in told if value not in EMPTY]
        enough = len(there) >= max(1, share * len(told))
        return enough and all(map(fits, there))

    def _where(self, fits: Any, share: float = _MOST) -> list[str]:
        return [path for path in self.values if self._all(path, fits, share)]

    @cached_property
    def _texts(self) -> list[str]:
        return [path for path in self._where(shapes.is_text) if not role_names.is_about(path)]

    def _called(self, role: str, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if role_names.role_of(path) == role]

    def _varied(self, paths: list[str]) -> list[str]:
        """Those that are not the same few texts in all rows; all of them where none is."""
        return [path for path in paths if self._is_varied(path)] or paths

    def _is_varied(self, path: str) -> bool:
        told = self.values[path]
        return len(told) < _ENOUGH or len({repr(one) for one in told}) > _FEW * len(told)

    @cached_property
    def _alone(self) -> list[str]:
        """Texts in columns of their own, but those of a numbered family that some rows have more
        of: ``user_1`` beside a ``user_2`` that only long rows have."""
        some = self._where(shapes.is_text, 0.0)
        more = {role_names.without_numbers(path) for path in some if path not in self._texts}
        able = [path for path in self._texts if "[]" not in path]
        return [path for path in able if role_names.without_numbers(path) not in more]

    @cached_property
    def questions(self) -> list[str]:
        """The texts that may be asked."""
        named = self._called("question", self._alone) or self._called("topic", self._alone)
        said = [path for path in self.answers if self._long(path)]
        open_ = [q for q in named if not any(self._holds(q, answer) for answer in said)]
        spoken = list(filter(self._is_spoken, open_))
        return self._distinct(self._varied(spoken or self._unnamed or open_))

    def _is_given(self, path: str) -> bool:
        """Whether a final answer is there to be given, not to check others against."""
        bare = "final" in role_names.parts(path) and not self._long(path)
        return not bare or bool(self._reasoning())

    def _is_spoken(self, path: str) -> bool:
        """Whether most texts of a column are more than a name."""
        return shapes.mostly(signals.is_prose(value) for value in self.values[path] if value)

    @cached_property
    def _unnamed(self) -> list[str]:
        """Texts of no known role in front of the first answer, which may be what it answers: they
        are more than names, and differ from row to row. None where some rows lack one of them."""
        answers = self.answers if self.answers_alone else []
        before = list(self.values)[: list(self.values).index(answers[0])] if answers else []
        texts = [p for p in before if "." not in p and self._all(p, shapes.is_text, 0.0)]
        free = [p for p in texts if role_names.may_be_asked(p) and self._is_spoken(p)]
        if not all(self._all(p, shapes.is_text) for p in free):
            return []
        return [p for p in free if 2 * len({*self.values[p]}) > len(self.values[p])]

    def _holds(self, whole: str, part: str) -> bool:
        """Whether a text has another one in it, in most rows: an answer, which it does not ask."""
        both = zip(self.values[whole], self.values[part], strict=True)
        return shapes.mostly(b in a for a, b in both if a and b)

    @cached_property
    def answers(self) -> list[str]:
        """The texts that may be answers, without those that one of these is checked against."""
        named = self._called("answer", self._alone)
        named = [p for p in named if not role_names.is_reference(p) and self._is_given(p)]
        if self.answers_alone:
            sides = {path for pair in role_names.by_better(self._texts) for path in pair}
            named = [p for p in named if not role_names.is_worse(p) and p not in sides]
        named = self._varied(named)
        free = [path for path in named if not role_names.may_be_checked_against(path)]
        return self._distinct([path for path in free or named if path not in self.references])

    @cached_property
    def references(self) -> set[str]:
        """The columns of answers that a longer one beside them ends with."""
        named = [p for p in self._called("answer", self._texts) if "[]" not in p]
        return {p for p in named if any(self._repeats(o, p) for o in named if o != p)}

    def _distinct(self, paths: list[str]) -> list[str]:
        """One of those that say the same in every row."""
        return list({repr(self.values[path]): path for path in reversed(paths)}.values())[::-1]

    def _repeats(self, long: str, short: str) -> bool:
        """Whether a longer text ends with what a shorter one says, in most rows."""
        both = zip(self.values[long], self.values[short], strict=True)
        told = [(a.strip(), b.strip()) for a, b in both if shapes.is_text(a) and shapes.is_text(b)]
        return shapes.mostly(
            b in a[-max(_END, 2 * len(b)) :] and len(a) > 2 * len(b) for a, b in told if b
        )

    def able(self, role: str) -> list[str]:
        """The paths that may play a role, in the order of the rows."""
        found: list[str] = getattr(self, f"_{role.replace(' ', '_')}")()
        return found

    def _question(self) -> list[str]:
        return self.questions

    def _answer(self) -> list[str]:
        """Answers in columns of their own, or the first of each list; first of lists of one."""
        listed = self._called("answer", self._where(shapes.is_list_of_texts))
        listed.sort(key=lambda path: not self._all(path, lambda value: len(value) == 1))
        if self.answers or self._good_answer():
            return self.answers
        return [f"{path}.0" for path in listed if "[]" not in path]

    def _good_answer(self) -> list[str]:
        """The first good one of several answers, where a list says of each whether it is good."""
        answers = [p for p in self._list_of_answers() if self._all(p, shapes.are_texts)]
        verdicts = [p for p in self._where(_are_verdicts) if column_names.is_rating(p)]
        each = itertools.product(answers, verdicts)
        able = [(a, v) for a, v in each if self._as_long(v, [a]) and not signals.is_low(v)]
        return [f"{answer},{verdict}[good]" for answer, verdict in able]

    def _spoken_answer(self) -> list[str]:
        """Answers of more than a word or two, which would be there to check others against."""
        return [path for path in self.answers if self._long(path)]

    def _long(self, path: str) -> bool:
        said = (value for value in self.values[path] if value)
        return shapes.mostly(len(v) > _SHORT or len(v.split()) > 2 for v in said)

    def _prompt(self) -> list[str]:
        turns = self._asking_turns()
        return [*turns, *(q for q in self.questions if not turns or self._is_varied(q))]

    def _asking_turns(self) -> list[str]:
        return self._where(lambda value: _ends_with(value, asks=True))

    def _turns(self) -> list[str]:
        sides = {path for pair in role_names.by_better([*self.values]) for path in pair}
        able = self._talks()
        return [path for path in able if path not in sides and not role_names.is_worse(path)]

    def _talks(self) -> list[str]:
        """Turns that have an answer, also where who speaks and what stand under other names."""
        able = self._where(lambda value: _ends_with(value, asks=False))
        others = self._where(lambda v: isinstance(v, list | dict) and not _turns.are_turns(v))
        turned = [f"{path}[turns]" for path in others]
        return able + [p for p in turned if self._all(p, _are_talks)]

    def _spoken_turns(self) -> list[str]:
        """Texts of turns: in one list, or in numbered columns (``user_1``, ``assistant_1``)."""
        lists = [p for p in self._where(_turns.are_spoken) if role_names.is_talk(p)]
        even = [p for p in lists if self._all(p, lambda value: len(value) % 2 == 0)]
        return even or role_names.numbered_turns(self._where(shapes.is_text, 0.0))

    def _weights_of_turns(self) -> list[str]:
        """Lists of weights, or of flags, that are as long as the turns."""
        lists = [p for p in self._where(are_numbers) if self._as_long(p, self._turns())]
        return list(filter(column_names.weighs_turns, lists))

    def _as_long(self, path: str, others: Iterable[str]) -> bool:
        mine = self.told(path)
        return any(
            all(
                len(a) == len(b)
                for a, b in zip(mine, self.told(other), strict=True)
                if isinstance(a, list) and isinstance(b, list)
            )
            for other in others
        )

    def _reasoning(self) -> list[str]:
        return self._distinct(self._called("reasoning", self._texts))

    def _input(self) -> list[str]:
        texts = self._where(shapes.is_text, 0.0)
        said = self._called("context", self._where(shapes.is_passages, 0.0))
        asked = [path for path in texts if "input" in role_names.parts(path)]
        topics = [] if self._called("question", texts) else self._called("topic", texts)
        return [*said, *asked, *(p for p in topics if "title" not in role_names.parts(p))]

    def _instruction(self) -> list[str]:
        """What an input belongs to; it may be the same in many rows. A title goes before a text."""
        titles = [p for p in self._called("topic", self._alone) if "title" in role_names.parts(p)]
        named = self._called("question", self._alone)
        spoken = [p for p in named if not self._unnamed or self._is_spoken(p)]
        return self._distinct(spoken or titles)

    def _system_text(self) -> list[str]:
        return self._called("system", self._where(shapes.is_text, 0.0))

    def _history(self) -> list[str]:
        return self._called("history", self._where(lambda value: isinstance(value, list), 0.0))

    def _tools(self) -> list[str]:
        return self._called("tools", self._where(lambda value: isinstance(value, (list, str)), 0.0))

    def _steps(self) -> list[str]:
        able = [p for p in self._where(shapes.are_texts) if not role_names.is_about(p)]
        able = [p for p in able if not role_names.are_answers(p)]
        return self._called("steps", able) or able

    def _list_of_answers(self) -> list[str]:
        return self._called("answer", self._where(_are_answers))

    def _two_answers(self) -> list[str]:
        return [p for p in self._list_of_answers() if self._all(p, lambda one: len(one) == 2)]

    def couples(self, role: str) -> list[tuple[str, str]]:
        """The two paths that may be the two sides of a role."""
        if role.endswith(" turns"):
            both = self._talks()
            return role_names.by_side(both) if role == "first turns" else role_names.by_better(both)
        if role == "chosen score":
            return role_names.by_better(self._where(shapes.is_number))
        said = [path for path in self._where(_is_said) if not role_names.is_about(path)]
        texts = self._varied([path for path in said if "[]" not in path])
        return role_names.by_side(texts) if role == "first answer" else role_names.by_better(texts)
