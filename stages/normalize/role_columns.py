"""What is in the columns of sampled rows, at any depth, and which of them ask and answer.

A path is a column, a key of an object in it (``info.post``), or a key of every object in a list
(``answers[].score``), as ``--map`` takes it. A name suggests a role; values that cannot play it
take it back: a question differs from row to row, and a reference is repeated at the end of the
answer that is checked against it. Columns that differ in their number alone are one path too.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from stages.contract import Row
from stages.formats import _turns
from stages.normalize import inside, role_names
from stages.rows import judgements, shapes, signals, speakers, words
from stages.rows.column_names import EMPTY
from stages.rows.selection import WHOLE, lookup

_DEEPEST = 5
_MOST_PATHS = 300
ENOUGH = 8  # rows, of which a question and an answer are not nearly all the same text
_FEW = 0.2  # different texts in that many rows: a category, a name, a constant
_SHORT = 16  # characters of what may only be checked against
_END = 200  # characters of an answer in which it repeats the reference
ONLY, JSON = "[only]", "[json]"  # the endings of a path of lists of one, of JSON lists of texts

Fits: TypeAlias = Callable[[Any], object]


def paths_of(row: Row, before: str = "", depth: int = 1) -> Iterator[str]:
    """The paths of a row, at any depth."""
    for key, value in row.items():
        path = f"{before}{key}"
        if before and not {*".,"}.isdisjoint(key):
            continue
        yield path
        if not before and isinstance(value, list) and [*map(type, value)] == [str]:
            yield f"{path}{ONLY}"
        if depth < _DEEPEST and isinstance(value, dict):
            yield from paths_of(value, f"{path}.", depth + 1)
        elif depth < _DEEPEST and isinstance(value, list) and not _turns.are_turns(value):
            inner = [one for one in value if isinstance(one, dict)]
            merged = {k: v for one in inner for k, v in one.items() if v not in EMPTY}
            yield from paths_of(merged if inner == value else {}, f"{path}[].", depth + 1)


def columns_of(rows: Sequence[Row], answers_alone: bool, guess: bool = False) -> "Columns":
    """The columns of some rows; see ``Columns``."""
    names = dict.fromkeys(name for row in rows for name in row if not name.endswith(WHOLE))
    kept = {name: shapes.usual([row.get(name) for row in rows]) for name in names}
    said = {} if answers_alone else {n: told for n in names if (told := inside.said_in(n, kept[n]))}
    rows = [{n: kept[n][at] for n in row if n in names} for at, row in enumerate(rows)]
    shown = [{**r, **{n: said[n][at] for n in said if n in r}} for at, r in enumerate(rows)]
    paths = Counter(f"{p}[]" if p in said else p for row in shown for p in paths_of(row))
    paths -= Counter(dict.fromkeys((f"{name}{ONLY}" for name in said), len(rows)))
    if len(paths) > _MOST_PATHS:  # keys that are data, such as ids
        often = {path: n for path, n in paths.items() if 2 * n > len(rows)}
        paths = Counter(often if len(often) <= _MOST_PATHS else {})
    values = {path: shapes.usual([lookup(row, path) for row in rows]) for path in paths}
    for path in [p for p in values if p.endswith(ONLY)]:  # a text where lists have one alone
        there = sum(value not in EMPTY for value in values[judgements.bare(path)])
        if paths[path] < shapes.NEARLY_ALL * there:
            del values[path]
    sides = itertools.chain(*role_names.by_better([*values]))
    listed = dict.fromkeys([*filter(role_names.may_be_listed, values), *sides])
    lists = [p for p in listed if inside.are_lists(p, values[p])]
    asked = {p for p in listed if role_names.role_of(p) == "question"}
    if not asked <= {*lists}:  # beside a question, what looks like another belongs to it
        lists = [p for p in lists if p not in asked]
    for path in lists:  # what is said stands inside
        told = shapes.usual([judgements.together(one, "json") for one in values.pop(path)])
        if any(isinstance(one, list) for one in told):
            told = [[one] if shapes.is_text(one) else one for one in told]
        values[f"{path}{JSON}"] = told
    return Columns(values, answers_alone, guess)


@dataclass(frozen=True)
class Columns:
    """The values of every path, one for each row.

    Attributes:
        answers_alone: every answer is trained, so one of two sides is no answer.
        guess: the one text that has no role by its name may be the question, or the answer.
        playing: the paths that may play each role that was asked for.
    """

    values: Mapping[str, list[Any]]
    answers_alone: bool
    guess: bool = False
    playing: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def _rows(self) -> list[Row]:
        each = zip(*self.values.values(), strict=True)
        return [dict(zip(self.values, values, strict=True)) for values in each]

    def told(self, path: str) -> list[Any]:
        """The values at a path, also at several paths together, and with endings."""
        known = self.values.get(path)
        return [lookup(row, path) for row in self._rows] if known is None else known

    def all(self, path: str, fits: Fits, share: float = shapes.NEARLY_ALL) -> bool:
        """Whether nearly every row has a value at a path that fits, and nearly all values do: a
        build refuses the other rows one by one."""
        told = self.told(path)
        there = [value for value in told if value not in EMPTY]
        count = sum(map(bool, map(fits, there)))
        return count >= max(1, share * len(told), shapes.NEARLY_ALL * len(there))

    def where(self, fits: Fits, share: float = shapes.NEARLY_ALL) -> list[str]:
        """The paths of which that is true."""
        return [path for path in self.values if self.all(path, fits, share)]

    @cached_property
    def texts(self) -> list[str]:
        """The texts that are no names of something else."""
        texts = self.where(shapes.is_text)
        return [p for p in texts if not role_names.is_about(p) or self._is_told(p)]

    def _is_told(self, path: str) -> bool:
        """Whether a source is a text, and not the name of one."""
        return role_names.is_origin(path) and self.is_spoken(path) and self.is_varied(path)

    @property
    def single(self) -> list[str]:
        """Those that are not in a list."""
        return [path for path in self.texts if "[]" not in path]

    def called(self, roles: str, paths: Iterable[str]) -> list[str]:
        """Those of some paths whose name suggests a role, or one of several."""
        named = (p for p in paths if role_names.role_of(p) in roles.split())
        told = (p for p in named if not role_names.is_letter(p, self.values))
        return [path for path in told if not speakers.may_be_people(path, self.told(path))]

    def varied(self, paths: list[str]) -> list[str]:
        """Those that are not the same few texts in all rows; all of them where none is."""
        return [path for path in paths if self.is_varied(path)] or paths

    def asking(self, paths: list[str]) -> list[str]:
        """Those with nearly as many different values as the one that has most: a
        question differs from row to row, and what a task is called does not."""
        many = {path: len({repr(one) for one in self.told(path)}) for path in paths}
        most = max(many.values(), default=0)
        return [path for path in self.varied(paths) if 2 * many[path] >= most]

    def is_varied(self, path: str) -> bool:
        """Whether a path has not the same few values in all rows."""
        told = self.told(path)
        return len(told) < ENOUGH or len({repr(one) for one in told}) > _FEW * len(told)

    def distinct(self, paths: list[str]) -> list[str]:
        """One of those that say the same in every row."""
        return list({repr(self.told(path)): path for path in reversed(paths)}.values())[::-1]

    def long(self, path: str) -> bool:
        """Whether most texts at a path are more than a word or two."""
        return shapes.mostly(len(v) > _SHORT or len(v.split()) > 2 for v in self.values[path] if v)

    def is_spoken(self, path: str) -> bool:
        """Whether most texts at a path are more than a name."""
        return shapes.mostly(signals.is_prose(value) for value in self.told(path) if value)

    def are_most(self, paths: Collection[str]) -> bool:
        """Whether some texts hold more than half of all that is said."""
        bare = {*map(judgements.bare, paths)}
        size = {path: sum(map(len, filter(None, self.values[path]))) for path in self.single}
        own = [n for path, n in size.items() if judgements.bare(path) in bare]
        return 2 * sum(own) >= sum(size.values())

    def is_dialogue(self, path: str) -> bool:
        """Whether most texts at a path are dialogues, whose speakers stand before what they say."""
        return shapes.mostly(speakers.is_dialogue(value) for value in self.told(path) if value)

    def as_long(self, path: str, others: Iterable[str], least: float = shapes.NEARLY_ALL) -> bool:
        """Whether lists at a path are as long as those at one of some others, in nearly all rows,
        or in the ``least`` share of them."""
        mine = self.told(path)
        for other in others:
            both = zip(mine, self.told(other), strict=True)
            lists = [(a, b) for a, b in both if isinstance(a, list) and isinstance(b, list)]
            if sum(len(a) == len(b) for a, b in lists) >= least * len(lists):
                return True
        return False

    @cached_property
    def families(self) -> list[str]:
        """Three columns and more that differ in their number, or letter, alone, as one path; and
        each key that three objects and more have, where they have the same keys, and names that
        play one role, or none."""
        objects: dict[tuple[str, ...], list[str]] = {}
        for path in (p for p in self.where(lambda value: isinstance(value, dict)) if "." not in p):
            inner = (p.removeprefix(path) for p in self.values if p.startswith(f"{path}."))
            objects.setdefault((*inner,), []).append(path)
        several = ((keys, names) for keys, names in objects.items() if len(names) >= words.FAMILY)
        alike = [
            ",".join(f"{name}{key}" for name in names)
            for keys, names in several
            for key in keys
            if len({*map(role_names.role_of, names)}) == 1 and not role_names.by_better(names)
        ]
        return [*words.families(self.values), *alike]

    @property
    def texts_of_families(self) -> list[str]:
        """Those of them that are texts."""
        return [p for p in self.families if self.all(p, lambda v: {*map(type, v)} == {str})]

    def of_two(self, couples: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Couples of columns that are not two of three or more, and no numbers beside texts."""
        families = [{*path.split(",")} for path in self.families]
        two = [both for both in couples if not any(some.issuperset(both) for some in families)]
        told = [itertools.chain(*map(self.told, both)) for both in two]
        texts = [None in map(judgements.spelled, values) for values in told]
        return [*itertools.compress(two, texts)] or two

    @cached_property
    def alone(self) -> list[str]:
        """Texts in columns of their own, but those of a numbered family that some rows have more
        of: ``user_1`` beside a ``user_2`` that only long rows have."""
        some = self.where(shapes.is_text, 0.0)
        more = {role_names.without_numbers(path) for path in some if path not in self.texts}
        return [path for path in self.single if role_names.without_numbers(path) not in more]

    @cached_property
    def questions(self) -> list[str]:
        """The texts that may be asked."""
        each = [self.called(role, self.alone) for role in ("question", "topic")]
        varied = [[*filter(self.is_varied, some)] for some in each]  # no names of tasks
        named, said = next(filter(None, (*varied, *each)), []), [*filter(self.long, self.answers)]
        open_ = [q for q in named if not any(self._holds(q, answer) for answer in said)]
        spoken = list(filter(self.is_spoken, open_))
        told = spoken or self.unnamed or [*filter(self.is_varied, open_)]
        return self.distinct(self.asking(told))

    @cached_property
    def unnamed(self) -> list[str]:
        """Texts of no known role in front of the first answer, which are more than names and differ
        from row to row. Where some rows lack one of them, the first that a row has."""
        answers = self.answers if self.answers_alone else []
        before = list(self.values)[: list(self.values).index(answers[0])] if answers else []
        texts = [p for p in before if "." not in p and self.all(p, shapes.is_text, 0.0)]
        free = [p for p in texts if role_names.may_be_asked(p) and self.is_spoken(p)]
        if not all(self.all(p, shapes.is_text) for p in free):
            return self.first_of({*self.values}.difference(texts))
        alone = len(free) == 1 and self.is_varied(free[0])
        return [p for p in free if alone or 2 * len({*self.values[p]}) > len(self.values[p])]

    def first_of(self, others: Collection[str]) -> list[str]:
        """Texts of which some rows have one and some another, as one path: the first that a row
        has, the rarest first. None where they leave rows without any; ``others`` are none of them.
        """
        texts = [p for p in self.where(shapes.is_text, 0.0) if "[]" not in p and p not in others]
        free = [p for p in texts if role_names.may_be_told(p) and self.is_spoken(p)]
        said = {p: [value for value in self.values[p] if value] for p in free}
        free.sort(key=lambda p: (len(said[p]), -sum(map(len, said[p]))))
        left = [*range(len(self._rows))]
        found: list[str] = []
        for path in free:
            rest = [at for at in left if not self.values[path][at]]
            if len(rest) < len(left):
                found, left = [*found, path], rest
        return [f"{','.join(found)}[first]"] if found[1:] and not left else []

    @cached_property
    def answers(self) -> list[str]:
        """The texts that may be answers, without those that one of these is checked against."""
        called = self.called("answer", self.alone)
        named = [path for path in called if not role_names.says(path, "reference")]
        named = [p for p in named if self._is_given(p) and not self.is_dialogue(p)]
        if self.answers_alone:
            sides = {path for pair in role_names.by_better(self.texts) for path in pair}
            named = [p for p in named if not role_names.is_failed(p) and p not in sides]
        named = self.varied(named)
        if self.guess and self.answers_alone and not named:
            failed = [*filter(role_names.is_failed, self.alone)]
            open_ = [p for p in self.alone if not role_names.role_of(p) and p not in failed]
            open_ = [p for p in open_ if self.is_varied(p) and self.is_spoken(p) and self.long(p)]
            open_ = [p for p in open_ if not self.all(p, signals.nested_in)]
            return open_ if len(open_) == 1 else []
        free = [path for path in named if not role_names.says(path, "reference checked")]
        return self.distinct([path for path in free or named if path not in self.references])

    @cached_property
    def references(self) -> set[str]:
        """The columns of answers that a longer one beside them ends with."""
        named = self.called("answer", self.single)
        return {p for p in named if any(self._repeats(o, p) for o in named if o != p)}

    @property
    def reasoning(self) -> list[str]:
        """The texts that are reasoning by their names, and no flags."""
        said = {p: [*filter(None, self.told(p))] for p in self.called("reasoning", self.texts)}
        return self.distinct([p for p, told in said.items() if not signals.are_flags(told)])

    def _is_given(self, path: str) -> bool:
        """Whether an answer is given: it is no word for all rows."""
        given = "final" not in role_names.parts(path) or self.long(path) or bool(self.reasoning)
        several = len({*map(repr, self.values[path])}) > 1 or len(self._rows) < ENOUGH
        return given and (several or self.is_spoken(path))

    def _holds(self, whole: str, part: str) -> bool:
        """Whether a text has another one in it in nearly all rows, or at its end in most."""
        pairs = zip(self.values[whole], self.values[part], strict=True)
        both = [(a, b) for a, b in pairs if a and b]
        ends = shapes.mostly(a.rstrip().endswith(b.strip()) for a, b in both)
        return ends or sum(b in a for a, b in both) >= max(1, shapes.NEARLY_ALL * len(both))

    def _repeats(self, long: str, short: str) -> bool:
        """Whether a longer text ends with what a shorter one says, in most rows."""
        both = zip(self.values[long], self.values[short], strict=True)
        told = [(a.strip(), b.strip()) for a, b in both if shapes.is_text(a) and shapes.is_text(b)]
        ends = ((len(a) > 2 * len(b), b in a[-max(_END, 2 * len(b)) :]) for a, b in told if b)
        return shapes.mostly(map(all, ends))


# Turns, questions and answers.


def talks(held: Columns, asks: bool = False) -> list[str]:
    """Turns that have an answer, or end with a question, whatever names say who speaks and what."""
    paths = (*held.values, *held.families)
    plain = [p for p in paths if held.all(p, lambda value: _turns.ends_with(value, asks))]
    others = held.where(lambda v: isinstance(v, list | dict) and not _turns.are_turns(v))
    turned = [f"{path}[turns]" for path in others]
    turned += [] if asks else _exchanges(held)
    return plain + [p for p in turned if held.all(p, lambda value: _turns.are_talks(value, asks))]


def _exchanges(held: Columns) -> Iterator[str]:
    """Each list of questions with each list of as many answers, some with more than one."""
    lists = held.where(shapes.is_list_of_texts)
    for both in itertools.product(held.called("question", lists), held.called("answer", lists)):
        path, several = ",".join(both), any(map(shapes.are_texts, held.told(both[0])))
        if several and "[]." not in path and held.as_long(both[0], both[1:]):
            yield f"{path}[exchanges]"


def conversation(held: Columns) -> list[str]:
    """Turns that have an answer, and are no side of a pair."""
    sides = {path for pair in role_names.by_better([*held.values]) for path in pair}
    own = [p for p in talks(held) if p not in sides and not role_names.says(p, "worse")]
    return [p for p in own if held.all(p, lambda value: _turns.are_talks(value, False))]
