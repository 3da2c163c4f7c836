"""Which columns of sampled rows judge: verdicts on two answers, numbers of answers, ratings of
steps, by one judge or by several."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stages.contract import Row
from stages.formats import _rated_steps, _ratings, _turns
from stages.normalize import role_names
from stages.normalize.role_columns import Columns, paths_of
from stages.rows import column_names, judgements, signals
from stages.rows.column_names import EMPTY
from stages.rows.judgements import are_numbers, is_marked, of_several
from stages.rows.selection import lookup

_VERDICTS = 5  # different values of a verdict: each side, its name, a tie
_SOME = 0.5  # of the rows, in which a verdict must stand: who judged may have skipped others
_MOST_PATHS = 1000
_FAMILY = 3  # columns that differ in their number alone: step_1, step_2, step_3
_GIVEN = 'Give rows such as {"problem": "...", "steps": ["...", "..."], "labels": [1, 0]}'
_SCALES = (3, 4, 5, 6, 7, 10, 100)  # the best mark of a scale that begins at 0 or 1


def columns_of(rows: Sequence[Row], answers_alone: bool, guess: bool = False) -> "Judging":
    """The columns of some rows.

    Args:
        answers_alone: every answer is trained, so one of two sides is no answer.
        guess: see ``Judging``.
    """
    paths = Counter(path for row in rows for path in paths_of(row))
    if len(paths) > _MOST_PATHS:  # keys that are data, such as ids
        paths = Counter({path: n for path, n in paths.items() if 2 * n > len(rows)})
    values = {path: [lookup(row, path) for row in rows] for path in paths}
    return Judging(values, answers_alone, guess)


def _are_marks(value: Any) -> bool:
    """Whether a value is a list of ratings, on whatever scale."""
    several = isinstance(value, list) and bool(value)
    return several and all(is_marked(one) or _ratings.is_rating(one) for one in value)


def _turned_round(path: str) -> str:
    """The ending of numbers of which a low one is good; empty for others."""
    return "[low]" if signals.is_low(judgements.bare(path)) else ""


def _measures(path: str) -> str:
    """The role of a column of numbers; also of those that measure what is bad, or are verdicts."""
    role = role_names.role_of(path)
    rates = column_names.is_rating(path) and (role == "" or signals.is_low(path))
    return "number" if rates else role


@dataclass(frozen=True)
class Judging(Columns):
    """The columns of sampled rows, and which of them judge.

    Attributes:
        guess: the one text that has no role by its name may be the question.
    """

    guess: bool = False

    @cached_property
    def questions(self) -> list[str]:
        """The texts that may be asked."""
        named = super().questions
        if named or not self.guess:
            return named
        sides = {path for role in ("chosen", "first answer") for path in self._sided(role)}
        open_ = [p for p in self._alone if p not in sides and not role_names.role_of(p)]
        able = [p for p in open_ if self._is_varied(p) and self._long(p)]
        return able if len(able) == 1 else []

    def _sided(self, role: str) -> Iterator[str]:
        return itertools.chain.from_iterable(self.couples(role))

    # Columns that differ in their number alone.

    @cached_property
    def _families(self) -> list[str]:
        """Three columns and more that differ in their number alone, as one path."""
        families: dict[tuple[str, ...], dict[int, str]] = {}
        for path in self.values:
            parts = role_names.parts(path)
            if sum(map(str.isdigit, parts)) == 1 and {*path}.isdisjoint(",[="):
                number = int(next(filter(str.isdigit, parts)))
                key = tuple("#" if part.isdigit() else part for part in parts)
                families.setdefault(key, {}).setdefault(number, path)
        found = []
        for members in families.values():
            first = min(members)
            if first in (0, 1) and sorted(members) == [*range(first, first + len(members))]:
                found.append(",".join(members[number] for number in sorted(members)))
        return [path for path in found if path.count(",") >= _FAMILY - 1]

    # Rated steps.

    def _steps(self) -> list[str]:
        able = [*super()._steps(), *filter(self._are_texts_of, self._families)]
        able = [p for p in able if not self._all(p, _are_marks)]
        return self._called("steps", able) or able

    def _are_texts_of(self, path: str) -> bool:
        return self._all(path, lambda v: isinstance(v, list) and all(type(o) is str for o in v))

    def _tagged_steps(self) -> list[str]:
        """Texts with a step tag, or with as many paragraphs or lines as a list has numbers."""
        texts = [path for path in self._texts if "[]" not in path]
        tagged = [p for p in texts if self._all(p, _rated_steps.is_tagged)]
        counts = [self._lengths(path) for path in self._where(_are_marks)]
        return tagged or [p for p in texts if self._broken(p, counts)]

    def _broken(self, path: str, counts: Sequence[list[int]]) -> bool:
        said = self.values[path]
        return any(
            max(lengths) > 1
            and all(_rated_steps.pieces_of(text, n) for text, n in zip(said, lengths, strict=True))
            for lengths in counts
        )

    def _lengths(self, path: str) -> list[int]:
        return [len(value) if isinstance(value, list) else 0 for value in self.told(path)]

    def _ratings_of_text(self) -> list[str]:
        return self._where(_are_marks)

    def _ratings(self) -> list[str]:
        """Lists of ratings that are as long as the steps; of several judges, what they say
        together; on another scale, brought to 0 to 1."""
        found, several = [], self._where(of_several)
        means = [f"{p}[mean]" for p in several if self._all(p, lambda v: all(map(are_numbers, v)))]
        votes = [f"{p}[most]" for p in several if f"{p}[mean]" not in means]
        for path in (*self._where(_are_marks), *self._families, *means, *votes):
            if signals.is_low(judgements.bare(path)):
                continue  # true says that something is bad, or not there
            if self._all(path, _are_marks) and self._as_long(path, self._steps()):
                scale = self._scale(path)
                found += [f"{path}[{scale}]" if scale else path]
        return found

    def _scale(self, path: str) -> str:
        """The scale of numbers that do not run from -1 or 0 to 1; empty for all others."""
        bare = judgements.bare(path)
        if role_names.role_of(bare) not in ("number", "verdict", "rank"):
            return ""
        told = map(judgements.spelled, judgements.flat(self.told(bare)))
        said = [number for number in told if number is not None]
        if not said or max(said) <= 1 or min(said) < 0 or not all(n.is_integer() for n in said):
            return ""
        best = next((one for one in _SCALES if one >= max(said)), None)
        return "" if best is None or "," in path else f"{min(1, int(min(said)))}..{best}"

    def _first_error(self) -> list[str]:
        whole = self._where(lambda value: type(value) is int, 0.0)
        spelled = self._where(judgements.is_place, 0.0)
        whole += [f"{path}[place]" for path in spelled if path not in whole]
        return [p for p in whole if role_names.mentions(p, "error") or role_names.is_worse(p)]

    def _wrong_steps(self) -> list[str]:
        """Lists of numbers of steps under a name that says that they are wrong."""
        numbers = self._where(lambda v: isinstance(v, list) and {*map(type, v)} == {int}, 0.0)
        return [p for p in numbers if role_names.mentions(p, "error") or role_names.is_worse(p)]

    # Numbers of answers.

    def _numbers_of(self, roles: tuple[str, ...]) -> list[str]:
        several = [f"{path}[mean]" for path in self._where(of_several)]
        paths = [*self._where(are_numbers), *self._families, *several]
        paths = [p for p in paths if _measures(judgements.bare(p).split(",")[0]) in roles]
        lists = self._list_of_answers()
        able = [p for p in paths if self._all(p, are_numbers)]
        able = [p for p in able if self._as_long(p, lists) and self._in_order(p, lists)]
        return [p + _turned_round(p) for p in able]

    def _list_of_answers(self) -> list[str]:
        named = [p for p in self._families if role_names.role_of(p.split(",")[0]) == "answer"]
        return [*super()._list_of_answers(), *filter(self._are_texts_of, named)]

    def _in_order(self, path: str, others: Iterable[str]) -> bool:
        """Whether a list of objects stands in the order of other lists: a key of both, such as a
        name, says the same in both."""
        mine = path.partition("[]")[0]
        for other in (one.partition("[]")[0] for one in others):
            for key in self._keys(mine) & self._keys(other) if other != mine else ():
                left, right = self.values[f"{mine}[].{key}"], self.values[f"{other}[].{key}"]
                for a, b in zip(left, right, strict=True):
                    if a != b and sorted(map(repr, a or ())) == sorted(map(repr, b or ())):
                        return False
        return True

    def _keys(self, path: str) -> set[str]:
        return {one.rpartition(".")[2] for one in self.values if one.startswith(f"{path}[].")}

    def _scores(self) -> list[str]:
        return self._numbers_of(("number", "verdict"))

    def _ranks(self) -> list[str]:
        return self._numbers_of(("rank",))

    def _two_numbers(self) -> list[str]:
        pairs = self._where(lambda value: are_numbers(value) and len(value) == 2)
        return [path for path in pairs if role_names.role_of(path) in ("number", "verdict")]

    def _numbers_of_sides(self) -> list[str]:
        numbers = [p for p in self._where(is_marked) if _measures(p) == "number"]
        couples = [both for both in role_names.by_side(numbers) if "[]" not in both[0]]
        return [",".join(path + _turned_round(path) for path in both) for both in couples]

    # Verdicts on two answers.

    def _verdict(self) -> list[str]:
        scalars = self._where(lambda value: isinstance(value, (str, int, float)), _SOME)
        named = [p for p in scalars if role_names.mentions(p, "verdict")]
        named += [p for p in scalars if p not in named and role_names.role_of(p) == "number"]
        of_sides = {path for pair in role_names.by_side(scalars) for path in pair}
        few = [p for p in named if p not in of_sides and self._is_few(p)]
        said = self._one_hot() or self._named_winners(scalars) or [*few, *self._votes()]
        return said or [p for p in scalars if self.guess and self._names_sides(p)]

    def _names_sides(self, path: str) -> bool:
        """Whether a column of any name says left and right, or A and B."""
        said = [v for v in self.told(path) if v not in EMPTY and not judgements.is_tie(v)]
        return {judgements.side_of(value) for value in said} == {0, 1}

    def _strength(self) -> list[str]:
        """Numbers below 0 in some rows and above in others, under the name of a verdict."""
        numbers = self._where(lambda v: type(v) in (int, float), _SOME)
        named = [p for p in numbers if role_names.role_of(p) in ("number", "verdict")]
        told = {p: [v for v in self.values[p] if v is not None] for p in named}
        return [p for p, v in told.items() if min(v) < 0 < max(v)]

    def _is_few(self, path: str) -> bool:
        """Whether all values of a column are few short ones."""
        said = {*map(str, judgements.flat(self.values[path]))}
        return len(said) <= _VERDICTS and max(map(len, said), default=0) <= signals.SHORT

    def _votes(self) -> list[str]:
        """Lists with the verdicts of several judges, as what most of them say."""
        lists = self._where(lambda v: isinstance(v, list) and [*judgements.flat(v)] != [], _SOME)
        named = [p for p in self._called("verdict", lists) if self._is_few(p)]
        found = []
        for path in named:
            said = [value for value in self.values[path] if value not in EMPTY]
            hot = all(judgements.one_hot(value) is not None for value in said)
            found.append(path if hot else path + "[most]" * max(map(judgements.depth, said)))
        return found

    def _named_winners(self, scalars: Iterable[str]) -> list[str]:
        """A column with the name of one of two, and the columns with both names."""
        texts = [p for p in self._where(lambda v: isinstance(v, str)) if "[]" not in p]
        each = itertools.product(scalars, role_names.by_side(texts))
        able = [(path, *both) for path, both in each if path not in both]
        return [",".join(some) for some in able if self._are_winners(some)]

    def _are_winners(self, some: Sequence[str]) -> bool:
        """Whether the first of three columns says one of the two others, sometimes each."""
        each = zip(*(self.values[path] for path in some), strict=True)
        said = [one for one in each if not judgements.is_tie([*one])]
        return {judgements.side_of([*one]) for one in said} == {0, 1}

    def _named_sides(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Two texts whose columns a verdict names: ``answer_ours`` where it says ``ours``."""
        verdicts = [self.told(path) for path in self._verdict() if "," not in path]
        found = []
        for both in itertools.combinations(texts, 2):
            for values in verdicts:
                said = [v for v in values if v not in EMPTY and not judgements.is_tie(v)]
                if {judgements.named_by(value, both) for value in said} == {0, 1}:
                    found.append(both)
                    break
        return found

    def _one_hot(self) -> list[str]:
        """Columns that say of one side each, or of a tie, whether it won: 1 in one of them."""
        flags = [p for p in self._where(lambda v: v in (0, 1, "0", "1")) if "[]" not in p]
        found = []
        for left, right in role_names.by_side(flags):
            ties = [p for p in flags if "tie" in role_names.parts(p)]
            for some in ([left, right, *ties[:1]], [left, right]):
                each = zip(*(self.values[path] for path in some), strict=True)
                if all(sum(map(int, one)) == 1 for one in each):
                    found.append(",".join(some))
                    break
        return found

    def couples(self, role: str) -> list[tuple[str, str]]:
        """The two paths that may be the two sides of a role."""
        found = self._of_two(super().couples(role))
        if role == "first answer":
            named = self._named_sides([p for p in self._texts if "[]" not in p])
            found += [both for both in named if both not in found]
        return found

    def _of_two(self, couples: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Couples of columns that are not two of three or more."""
        families = [{*path.split(",")} for path in self._families]
        return [both for both in couples if not any(some.issuperset(both) for some in families)]

    def _sides(self) -> list[str]:
        couples = self._of_two(role_names.by_side([p for p in self._texts if "[]" not in p]))
        return [f"{a},{b}" for a, b in couples]

    # What is missing.

    def without_ratings(self) -> tuple[str, str] | None:
        """Why rows with steps say nothing about each of them, and what would; None where they
        have no steps."""
        steps = next(iter(self._steps()), None)
        if steps is None:
            return self._one_step_each() or self._judged()
        lists = [p for p in self._where(lambda v: isinstance(v, list)) if p != steps]
        for path in (one for one in lists if self._as_long(one, [steps])):
            odd = [v for v in judgements.flat(self.told(path)) if not _ratings.is_rating(v)]
            if odd and not isinstance(odd[0], dict) and role_names.role_of(path):
                shown = " and ".join([*dict.fromkeys(map(repr, odd))][:2])
                what = f"{path} has a value for each of {steps}, but {shown} are no ratings"
                return what, "Write + or -, true or false, correct, incorrect or neutral, or 0 to 1"
        return f"{steps} has steps, and nothing rates each of them", _GIVEN

    def _one_step_each(self) -> tuple[str, str] | None:
        """Whether each row is one step of a problem that others repeat."""
        texts = [p for p in self._alone if role_names.mentions(p, "steps") and self._long(p)]
        asked = [p for p in self._called("question", self._alone) if p not in texts]
        repeated = [p for p in asked if len({*self.values[p]}) * 2 <= len(self.values[p])]
        if not texts or not repeated:
            return None
        what = f"each row is one step ({texts[0]}) of a problem ({repeated[0]}) that others repeat"
        return what, f"Join the rows of one problem. {_GIVEN}"

    def _judged(self) -> tuple[str, str] | None:
        """Whether answers in turns are the texts of a judge, which end with a verdict each."""
        for path in self._turns():
            each = (one if type(one) is list else _turns.turns_in(one) for one in self.values[path])
            turns = [*itertools.chain.from_iterable(filter(None, each))]
            answers = [said for who, said in _rated_steps.spoken(turns) if who == "assistant"]
            ends = [judgements.last_word(said) for said in answers if isinstance(said, str)]
            if ends and all(map(_ratings.is_rating, ends)):
                what = f"the answers in {path} end with a verdict each, as a judge's texts do"
                return what, f"Write the steps without the judge's texts. {_GIVEN}"
        return None
