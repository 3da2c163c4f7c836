"""Which columns of a file play the roles of a format, where they do not have its names.

A column may play a role where its name suggests it (``role_names``) and its values can (``table``).
What the columns of a row could be, all together, is a *candidate*: a format, and the column of each
of its names. Every candidate is run on the sampled rows, and counts where the format reads nearly
all of them; two that read equal examples are one."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stages import formats, kinds
from stages.contract import FormatOptions, Refused, Row
from stages.errors import RowError, counted
from stages.format import Format
from stages.formats import _fields
from stages.normalize import finders, role_names, step_columns
from stages.normalize.role_columns import JSON, Columns, columns_of
from stages.rows import judgements
from stages.rows.loss_mask import NOTHING_SAID
from stages.rows.selection import renamed
from stages.rows.shapes import NEARLY_ALL, is_text, mostly, spread
from stages.rows.unread import differs_from

MOST = 24  # candidates of one format
_REFUSED_AS = "tie two_orders two_margins unrated_answer empty_answer".split()  # read, and refused
_UNPARTED = "no_first_step"  # an option says where the problem ends
_OPTIONS = FormatOptions(already_templated=True)
_SIGNS = ("negative", "positive")  # of a strength, for the first answer


@dataclass(frozen=True)
class Candidate:
    """One way to read the columns of some rows.

    Attributes:
        format: the name of the format; ``roles``: which role each of its names plays.
        renamed: where its names stand in the rows.
        read: how many of the sampled rows it reads, of ``rows``.
        named: the renamed rows look like other formats too, so that their names do not say it.
        guessed: no column's name says that it is the question.
    """

    format: str
    roles: Mapping[str, str]
    renamed: Mapping[str, str]
    read: int = 0
    rows: int = 0
    named: bool = False
    guessed: bool = False

    @property
    def open(self) -> tuple[str, str] | None:
        """What a user must know before rows are read so, and the options that say it."""
        strength = self.renamed.get("preference_strength")
        if strength is not None:
            what = f"nothing says which answer {strength} prefers where it is below 0"
            other = self.options.replace(*_SIGNS, 1)
            return what, f"Say which with {self.options}, or with {other}"
        if said := sorted({judgements.bare(path) for path in self.paths if JSON in path}):
            what = f"lists stand as text in {' and '.join(said)}"
            if "[first]" not in self.options:
                return what, f"Read what is inside with {self.options}"
            plain = role_names.maps([*self.renamed], [*map(judgements.bare, self.renamed.values())])
            ways = f"{self.options}, or the text as it stands with {plain}"
            return what, f"Read the first of each with {ways}"
        for path in self.renamed.values():
            before, how = judgements.ended(path)
            *some, last = before.split(",")
            low, _, high = how.partition("..")
            how = "scale" if high else "several" if how == "first" and not some else how
            if how in role_names.OPEN:
                names = {"path": before, "some": ", ".join(some), "last": last, "low": low}
                names |= {"high": high, "options": self.options}
                what, way = role_names.OPEN[how]
                return what.format_map(names), way.format_map(names)
        told = [path for name, path in self.renamed.items() if self.roles[name].startswith("told ")]
        if self.guessed or not all(role_names.mentions(path, "verdict") for path in told):
            what = f"only the values say that {self.words} can be read"
            return what, f"If they are, add {self.options}"
        return None

    @property
    def reading(self) -> str:
        """What ``formats.load`` takes."""
        return formats.reading_of(self.format, "", self.renamed)

    @property
    def paths(self) -> set[str]:
        """Every path that it reads."""
        return {path for some in self.renamed.values() for path in some.split(",")}

    @property
    def is_mixed(self) -> bool:
        """Whether answers stand in columns and what orders them in a list, or the other way."""
        both = (self.renamed.get(name, "") for name in ("responses", "scores"))
        return len({"," in path for path in both if path}) > 1

    @property
    def is_of_turns(self) -> bool:
        """Whether it reads turns under names of their own, or that wait for an answer."""
        asking = "asking turns" in (self.roles[name] for name in self.renamed)
        return asking or any(path.endswith("[turns]") for path in self.paths)

    @property
    def words(self) -> str:
        """Which column plays which role."""
        said = {name: role_names.SAID.get(role, role) for name, role in self.roles.items()}
        each = [f"{path} as {said[name]}" for name, path in self.renamed.items()]
        return f"{', '.join(each[:-1])} and {each[-1]}" if each[1:] else each[0]

    @property
    def evidence(self) -> str:
        """The same, and in how many rows."""
        return f"{self.words} in {self.read:,} of {counted(self.rows, 'sampled row')}"

    @property
    def options(self) -> str:
        """The options that read the rows so."""
        way = f"/{_SIGNS[0]}-is-first" * ("preference_strength" in self.renamed)
        said = role_names.maps([*self.renamed], [*self.renamed.values()])
        said = f"--format {self.format}{way} {said}" if self.named or way else said
        good = next((path for path in self.renamed.values() if path.endswith("[good]")), "")
        return f"{said} {differs_from(good, '')}" if good else said


def find(
    rows: Sequence[Row], kind: kinds.Kind, columns: Mapping[str, str], only: str = ""
) -> list[Candidate]:
    """Every way to read some rows by the roles of their columns, but those that say less than
    another one.

    Args:
        rows: after ``columns`` (``--map``) was applied to them; what is named there is decided.
        only: the name of the one format that is wanted.
    """
    some = spread(rows)
    by_name = _found(some, kind, columns, only, guess=False)
    return by_name or _found(some, kind, columns, only, guess=True)


def _found(
    some: Sequence[Row], kind: kinds.Kind, columns: Mapping[str, str], only: str, guess: bool
) -> list[Candidate]:
    """See ``find``; ``guess`` as ``Columns`` has it."""
    free = [{name: value for name, value in row.items() if name not in columns} for row in some]
    held = columns_of(free, kind.trains_answers, guess)
    lists = {name for row in free for name, value in row.items() if isinstance(value, list)}
    turns = set(filter(role_names.is_talk, lists))
    found: dict[str, Candidate] = {}
    for shape in role_names.SHAPES.get(kind.formats, ()):
        if only in ("", shape.format):
            for one in itertools.islice(_candidates(shape, held, columns), MOST):
                # A guess reads most of what is said, and all turns.
                whole = held.are_most(one.paths) and turns <= {*map(judgements.bare, one.paths)}
                if (guess and not whole) or _is_told_twice(one, held):
                    continue
                read, said = _run(one, some, columns) if not _is_crossed(one, some) else (0, "")
                if read and read >= NEARLY_ALL * len(some):
                    found.setdefault(said, replace(one, read=read, rows=len(some), guessed=guess))
    talks = {said: one for said, one in found.items() if one.is_of_turns}
    every = [*talks.values()]
    every += [one for one in found.values() if one not in every and not _is_in(one, held, talks)]
    every = _nearest(every, held) if kind.marks else every
    best = [one for one in every if not any(other.paths > one.paths for other in every)]
    size = {one.reading: _text_of_answers(one, held) for one in best}
    best = [o for o in best if not size[o.reading] or 2 * size[o.reading] >= max(size.values())]
    best = [one for one in best if not one.is_mixed] or best
    return [replace(one, named=_looks_like_others(one, some[0], kind)) for one in best]


def _nearest(every: Sequence[Candidate], held: Columns) -> list[Candidate]:
    """Those that read ratings with the steps that are nearest to them: in one list of objects."""
    near: dict[str, tuple[str, int]] = {}
    for one in every:
        whose = judgements.bare(one.renamed.get("labels", one.reading)).partition("[]")[0]
        steps = one.renamed.get("steps", one.renamed.get("input", ""))
        sure = step_columns.are_surely_steps(held, steps)
        near[one.reading] = whose, 2 * sure + (one.format == "nested_steps")
    most = dict(sorted(near.values()))
    return [one for one in every if most[near[one.reading][0]] == near[one.reading][1]]


def _text_of_answers(one: Candidate, held: Columns) -> int:
    """Characters of the answers that a candidate ranks: what is cut out of answers has fewer."""
    path = one.renamed.get("responses", one.renamed.get("chosen", ""))
    texts = judgements.flat(held.told(path)) if path else ()
    return sum(len(text) for text in texts if isinstance(text, str))


def _is_crossed(one: Candidate, rows: Sequence[Row]) -> bool:
    """Whether the reasoning is that of somebody who gave another answer."""
    by_role = {one.roles[name]: path for name, path in one.renamed.items()}
    own = role_names.answer_beside(by_role.get("reasoning", ""), rows[0])
    return own not in ("", by_role.get("answer", ""))


_AHEAD = ("system", "instruction", "input", "prompt", "question")


def _is_told_twice(one: Candidate, held: Columns) -> bool:
    """Whether a text that stands before the answer has another such text in it."""
    texts = [held.told(path) for name, path in one.renamed.items() if name in _AHEAD]
    pairs = (zip(*both, strict=True) for both in itertools.permutations(texts, 2))
    return any(mostly(a in b for a, b in both if a and is_text(a) and is_text(b)) for both in pairs)


def _is_in(one: Candidate, held: Columns, talks: Mapping[str, Candidate]) -> bool:
    """Whether turns have a column that a candidate reads, or say its answers."""
    paths = [path for name, path in one.renamed.items() if one.roles[name] == "answer"]
    told = [repr(value)[1:-1] for path in paths for value in held.told(path) if value]
    repeats = bool(told) and all(text in "".join(talks) for text in told)
    return repeats or any(one.paths & talk.paths for talk in talks.values())


def misses(
    format_: Format, rows: Sequence[Row], kind: kinds.Kind, columns: Mapping[str, str]
) -> bool:
    """Whether a format that fits rows reads few of them, or trains what answers are checked
    against."""
    some = spread(rows)
    read, _ = _run(Candidate(format_.name, {}, {}), some, columns)
    if read * 2 < len(some):
        return True
    free = [{name: value for name, value in row.items() if name not in columns} for row in some]
    own, held = formats.names_of(format_), columns_of(free, kind.trains_answers)
    if any(path.endswith(JSON) and judgements.bare(path) in own for path in held.values):
        return True
    if not kind.trains_answers:
        return False
    if "text" in format_.columns:  # no text alone where a column answers it
        return bool(held.answers and held.questions)
    answers = {*format_.columns.get("answer", ())}
    turns = {*format_.columns.get("turns", ())}
    if turns and turns.isdisjoint(columns) and finders.able(held, "answer"):
        # Turns that end with a question, which another column answers.
        return bool(finders.able(held, "asking turns"))
    return answers.isdisjoint(columns) and not answers.isdisjoint(held.references)


def _looks_like_others(one: Candidate, row: Row, kind: kinds.Kind) -> bool:
    given = renamed(row, one.renamed)
    return any(f.matches(given) for f in formats.usable_for(kind) if f.name != one.format)


def _run(candidate: Candidate, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[int, str]:
    """How many rows a candidate reads, and all that it reads."""
    format_ = formats.load(candidate.reading)
    options = format_.told(replace(_OPTIONS, columns=columns))
    ways = [format_, *format_.variants.values()]
    given = (renamed(row, candidate.renamed) for row in rows)
    fitting = [row for row in given if format_.matches(row) is not None]
    said = [next(filter(None, (read_of(way, row, options) for way in ways)), "") for row in fitting]
    made = any(one not in ("", *_REFUSED_AS) for one in said)
    return sum(map(bool, said)) * made, "\n".join(said)


def by_numbers(
    format_: Format, ways: Sequence[str], rows: Sequence[Row], columns: Mapping[str, str]
) -> list[str]:
    """The variants of a format of pairs, first the one whose better answers have the higher numbers
    where columns have one for each side."""
    some = spread(rows)
    held = columns_of(some, answers_alone=False)
    numbers = finders.able(held, "numbers of sides")[:1] if kinds.PAIR in format_.kinds else []
    texts = [held.told(path) for both in finders.couples(held, "first answer")[:1] for path in both]
    if not numbers or not texts:
        return [*ways]
    options = format_.told(replace(_OPTIONS, columns=columns))

    def agreeing(way: str) -> int:
        count = 0
        for row, told, *both in zip(some, held.told(numbers[0]), *texts, strict=True):
            known = [float(v) if isinstance(v, bool) else judgements.spelled(v) for v in told]
            marks = [one for one in known if one is not None]
            better, worse = both if marks[:1] > marks[1:] else both[::-1]
            read = read_of(format_.variants[way], row, options) if len(marks) > 1 else ""
            count += 0 <= read.find(repr(better)) < read.find(repr(worse))
        return -count

    return sorted(ways, key=agreeing)


def read_of(way: Format, row: Row, options: FormatOptions) -> str:
    """A row's examples, or as what it is refused; empty where it cannot be read so."""
    made = _fields.tried(way, row, options)
    if isinstance(made, list):
        return "" if mostly(isinstance(one, Refused) for one in made) else repr(made)
    code = made.code if isinstance(made, RowError) else ""
    silent = isinstance(made, RowError) and made.detail.endswith(NOTHING_SAID)
    return code if silent or code in (*_REFUSED_AS, _UNPARTED) else ""


def _candidates(
    shape: role_names.Shape, held: Columns, columns: Mapping[str, str]
) -> Iterator[Candidate]:
    """What the columns could be for one format, the most that they can say first."""
    settled = formats.settled_by(formats.load(shape.format), columns)
    both = (shape.needs, shape.may)
    needs, may = ({n: role for n, role in some.items() if n not in settled} for some in both)
    beside = [some[0] for some in _groups(may, held) if len(some) == 1]
    for choice in itertools.product(*_groups(needs, held)):
        chosen = {name: path for one in choice for name, path in one.items()}
        if len({*chosen.values()}) != len(chosen):
            continue
        more = {name: path for one in beside for name, path in one.items()}
        more = {name: path for name, path in more.items() if path not in chosen.values()}
        for extra in (more, {}) if more else ({},):
            if chosen or extra:
                said = {**role_names.INSTEAD, **shape.needs, **shape.may}
                yield Candidate(shape.format, said, {**chosen, **extra})


def _groups(names: Mapping[str, str], held: Columns) -> list[list[dict[str, str]]]:
    """For each name, or two that are sides of one role, the columns that each may have."""
    groups: list[list[dict[str, str]]] = []
    places = {role: name for name, role in names.items()}
    for name, role in names.items():
        other = places.get(role_names.COUPLES.get(role, ""))
        if other is not None:
            counted = role_names.COUNTED if role.startswith("first ") else {}
            paths = finders.couples(held, role)
            own = [counted.get((a[-1], b[-1]), (name, other)) for a, b in paths]
            groups.append([dict(zip(*two, strict=True)) for two in zip(own, paths, strict=True)])
        elif role not in role_names.COUPLES.values():
            ways = [{name: path} for path in finders.able(held, role)]
            if name == "prompt":  # which is of two columns where one belongs to the other
                each = (finders.able(held, one) for one in ("instruction", "input"))
                ways += [{"instruction": a, "input": b} for a, b in itertools.product(*each)]
            groups.append(ways)
    return groups
