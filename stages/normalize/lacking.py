"""What to say of rows that no format fits: what is in them, what they lack, what would do."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages import contract, kinds
from stages.errors import DataError, counted
from stages.format import Format
from stages.formats import _fields, _pairs, _rated_steps, _ratings, _turns, unusable
from stages.formats._messages import as_role, role_of
from stages.normalize import finders, role_columns, role_names, step_columns
from stages.normalize.roles import Candidate
from stages.normalize.survey import MOST_OF_THE_TEXT, _text
from stages.rows import judgements, shapes, speakers, words
from stages.rows.column_names import EMPTY, is_a
from stages.rows.signals import is_about, is_low, is_prose, nested_in
from stages.rows.unread import mapped

NAMED = 12  # columns that a message names
SHOWN = 4  # ways that a question has
_WORDS = {"flag": "true or false", "json": "text", "turns": "list"}  # of the others their kind


def columns_named(rows: Iterable[contract.Row]) -> str:
    """The columns of rows with what is in them, for a message."""
    told: dict[str, Any] = {}
    for row in rows:
        told |= {name: value for name, value in row.items() if told.get(name) in EMPTY}
    kinds = {name: "empty" if one in EMPTY else shapes.kind_of(one) for name, one in told.items()}
    return ", ".join([f"{name} ({_WORDS.get(kind, kind)})" for name, kind in kinds.items()][:NAMED])


_ROLES = 4  # speakers that are told apart
_BESIDE = ("system", "reasoning")  # no question, and no answer
_WHICH = "Say which column is the question and which the answer"


def offer(rows: Sequence[contract.Row], kind: kinds.Kind) -> str:
    """A suggestion, as a sentence; empty where there is none."""
    if not kind.trains_answers or not rows:
        return ""
    if who := _speakers(rows):
        return f"Say who speaks in the turns with {who}."
    if all(speakers.is_turn(row) and role_of(row) for row in rows):
        return 'Each row is one turn; write the turns of a conversation as {"messages": [...]}.'
    held = role_columns.columns_of(rows, answers_alone=True)
    if choices := _of_choices(rows, held):
        return choices
    texts = [p for p in held.single if "." not in p and role_names.role_of(p) not in _BESIDE]
    texts = [p for p in texts if {"id", "ids"}.isdisjoint(role_names.parts(p))]
    sides = {*itertools.chain(*role_names.by_better(texts))}
    if any(role_names.is_failed(p) for p in texts if p not in sides):
        return ""  # no answer to be trained, and the other side is not there
    if made := role_names.revisions([p for p in texts if held.is_spoken(p)]):
        return _of_revision(held, *made[0])
    if len(texts) != 2:
        texts = [p for p in texts if held.is_spoken(p) and not is_about(p)]
    inside = [p for p in held.single if "." in p and held.is_spoken(p)]
    if not texts and len(inside) == 2 and all(map(held.is_varied, inside)):
        return _either(*inside)
    said = {p: [value for value in held.values[p] if value] for p in texts}
    if told := next(filter(held.is_dialogue, texts), ""):
        unknown = "holds dialogues under marks that are not known"
        return f'{told} {unknown}; write {{"messages": [...]}}.'
    others = {p: role_names.role_of(p) for p in held.values if p not in texts}
    if not texts or any(role == "answer" and held.told(p) for p, role in others.items()):
        return ""
    if len(texts) == 1:
        if role_names.role_of(texts[0]) in ("question", "answer"):
            return ""
        asked = [p for p, role in others.items() if role == "question"]
        if any(map(is_prose, itertools.chain(*(held.values[p] for p in asked)))):
            return ""  # what is asked about it
        much = sum(map(_text, said[texts[0]])) > MOST_OF_THE_TEXT * sum(map(_text, rows))
        why = f"If {texts[0]} is a text by itself, without a question, train it with "
        whole = much and held.is_varied(texts[0]) and not any(map(nested_in, said[texts[0]]))
        return f"{why}{mapped('text', texts[0])}." if whole else ""
    more = [p for p, role in others.items() if role not in _BESIDE and not is_about(p)]
    return "" if any(map(held.is_spoken, more)) else _of_several(rows, held, said)


def _of_revision(held: role_columns.Columns, made: str, draft: str) -> str:
    """The offer of a text and what was made of it, by what each other text may ask for."""
    free = [p for p in held.single if p not in (made, draft) and "." not in p and not is_about(p)]
    asks = [p for p in free if held.is_spoken(p) and held.is_varied(p) and not is_a(p, "critique")]
    ways = [role_names.maps(("instruction", "input", "output"), (p, draft, made)) for p in asks]
    ways = ways or [role_names.maps(("prompt", "completion"), (draft, made))]
    return f"If {made} was made of {draft}, have it read with {', or '.join(ways)}."


def _of_several(
    rows: Sequence[contract.Row], held: role_columns.Columns, said: Mapping[str, list[str]]
) -> str:
    """The offer of which text is the question, and which the answer."""
    # The name of the answer says which it is, or that it is one of a few labels, or one alone is a
    # question by its end; and nothing else is said.
    texts = [*said]
    labels = [p for p in texts if not held.is_varied(p) and not held.is_spoken(p)]
    keys = {p: _asking(p, said[p]) for p in texts}
    last, *_, first = sorted(texts, key=lambda p: (p not in labels, *keys[p]))
    known = labels == [last] or (keys[first] != keys[last] and not labels)
    sure = len(texts) == 2 and known and all(map(held.is_varied, {*texts}.difference(labels)))
    if sure:
        return f"{_WHICH}: {mapped('prompt', first)} {mapped('completion', last)}."
    if len(texts) == 2 and all(held.is_spoken(p) and held.is_varied(p) for p in texts):
        return _either(*texts)
    return f"{_WHICH}, with --map prompt=COLUMN --map completion=COLUMN."


def _either(*texts: str) -> str:
    """The offer of two texts of which each may answer the other, as a text and its translation."""
    each = itertools.permutations(texts)
    ways = [role_names.maps(("prompt", "completion"), both) for both in each]
    return f"{_WHICH} with {', or '.join(ways)}."


def _of_choices(rows: Sequence[contract.Row], held: role_columns.Columns) -> str:
    """The offer of a question with what an answer is chosen from, in a list or in columns, without
    which a letter says nothing; answered by an explanation, or by the letter."""
    several = [name for name in rows[0] if is_a(name, "context")]
    lists = [f"{n}[options]" for n in several if all(shapes.are_texts(row.get(n)) for row in rows)]
    lists += [n for n in several if all(_fields.are_options(row.get(n)) for row in rows)]
    families = [path.split(",") for path in held.texts_of_families if "." not in path]
    some = [names for names in families if is_a(names[0], "context") or names[0][-1].isalpha()]
    lists += [f"{','.join(names)}[options]" for names in some]
    beside = [p for p in held.where(shapes.is_text, 0.5) if p not in itertools.chain(*some)]
    letters = [p for p in beside if all(_fields.is_letter(one) for one in held.told(p) if one)]
    asked = [path for path in held.questions if path in beside]
    answers = [*held.called("reasoning", beside), *letters] if asked else []
    columns = ((asked[0], options, answer) for options in lists[:1] for answer in answers)
    ways = [role_names.maps(("instruction", "input", "output"), three) for three in columns]
    return f"{_WHICH} with {', or '.join(ways)}." if ways else ""


def _asking(path: str, texts: Iterable[str]) -> tuple[bool, bool]:
    """Whether texts have not the name of an answer, and most of them end as questions do."""
    ends = (text.rstrip()[-1:] in ("?", "？", "؟") for text in texts)
    return role_names.role_of(path) != "answer", shapes.mostly(ends)


def _speakers(rows: Sequence[contract.Row]) -> str:
    """The options after which rows have turns of both sides; empty where none do that."""
    who = speakers.guessed([*rows])
    told = [speakers.renamed(row, who) for row in rows] if len(who) <= _ROLES else []
    if not who or not role_columns.conversation(role_columns.columns_of(told, True)):
        return ""
    return " ".join(as_role(name, role) for name, role in who.items())


_TAGS = ("label", "kto_tag")


def refuse_unpaired(rows: Sequence[contract.Row], where: str) -> None:
    """Raise where every row has one answer and a label, and no second answer to compare with."""
    both = (_TAGS, unusable.ONE)
    single = not any(row.keys().isdisjoint(names) for row in rows for names in both)
    if rows and single and not any("rejected" in row for row in rows):
        what = f"{where} holds unpaired data: one completion and one label per row. A reward model "
        what += "is trained on pairs, and there is no second answer to compare with."
        how = "Give rows with chosen and rejected, or train with KTO, which reads unpaired data."
        raise DataError(what, how)


def unasked(
    format_: Format, rows: Sequence[contract.Row], columns: Mapping[str, str]
) -> tuple[str, str] | None:
    """Why answers have no question, and what would: a mark stands in its place in all rows."""
    if "turns" in format_.columns or len(rows) < role_columns.ENOUGH:
        return None
    names = format_.columns.get("question", ())
    told = [(name, row[name]) for row in rows for name in names if row.get(name)]
    one = len({str(said) for _, said in told}) == 1
    if not one or not columns.keys().isdisjoint(names) or not _is_mark(told[0][1]):
        return None
    name, said = told[0]
    what = f"nothing says what is asked: {name} is {said!r} in every row"
    return what, "Give each row its question"


def _is_mark(value: Any) -> bool:
    """Whether a text says nothing: a dash, dots, a word for none."""
    said = isinstance(value, str) and any(map(str.isalnum, value))
    return isinstance(value, str) and (_pairs.is_unrated(value) or not said)


def without_ratings(rows: Sequence[contract.Row]) -> tuple[str, str] | None:
    """Why rows with steps say nothing about each of them, and what would; None where they
    have no steps."""
    held = role_columns.columns_of(rows, answers_alone=False)
    steps = next(iter(step_columns.steps_of(held)), None)
    if steps is None:
        return _judged(held)
    lists = [p for p in held.where(lambda v: isinstance(v, list)) if p != steps]
    lists = [p for p in lists if not held.all(p, _counts)]
    for path in (one for one in lists if held.as_long(one, [steps])):
        each = [*judgements.flat(held.told(path), [None])]
        odd = [v for v in each if not _ratings.is_rating(v)]
        if odd and shapes.are_within(each, -1, 0):
            what = f"{path} has a value for each of {steps}, and these are below 0"
            return what, "Of numbers from 1 (the worst) to 0 (the best) write COLUMN[1..0]"
        if not odd and is_low(path) and shapes.are_within(each, 0, 1):
            what = f"{path} has a value for each of {steps}, of which a low one may be the good one"
            return what, f"If 0 is the best, add {mapped('labels', f'{path}[1..0]')}"
        if odd and not isinstance(odd[0], dict) and role_names.role_of(path):
            shown = " and ".join([*dict.fromkeys(map(repr, odd))][:2])
            what = f"{path} has a value for each of {steps}, but {shown} are no ratings"
            ways = "Write + or -, true or false, correct, incorrect or neutral, or 0 to 1"
            return what, f"{ways}, or have such rows refused with {mapped('labels', path)}"
    named = (path for path in lists if role_names.role_of(path) in ("number", "verdict"))
    uneven = (said for path in named if (said := _uneven(held, steps, path)))
    said = next(uneven, f"{steps} has steps, and nothing rates each of them")
    return said, role_names.GIVEN["step"]


def _counts(value: Any) -> bool:
    """Whether a list numbers what it stands beside."""
    return value in ([*range(len(value))], [*range(1, len(value) + 1)])


def _uneven(held: role_columns.Columns, steps: str, path: str) -> str:
    """In how many rows a list has more or fewer values than there are steps; empty for none."""
    pairs = zip(held.told(steps), held.told(path), strict=True)
    both = [(len(a), len(b)) for a, b in pairs if isinstance(a, list) and isinstance(b, list)]
    odd = [one for one in both if one[0] != one[1]]
    rows = f"{len(odd)} of {counted(len(both), 'row')}"
    return f"{path} has {odd[0][1]} values for {odd[0][0]} {steps}, and so in {rows}" if odd else ""


_FEW = 3  # rows that name another one: fewer may do so by chance


def in_pieces(rows: Sequence[contract.Row], kind: kinds.Kind) -> tuple[str, str] | None:
    """What each row is a piece of, where rows share an id or a question and each has one turn, one
    step or one answer of the whole; and what would do. None where rows are whole."""
    rows = rows[: shapes.SAMPLED]
    held = role_columns.columns_of(rows, answers_alone=False)
    names = [path for path in held.values if "." not in path]
    repeated = [path for path in names if 3 * _different(held.values[path]) <= 2 * len(rows)]
    spoken = [path for path in repeated if _are_speakers(held.values[path])]
    texts = [path for path in held.texts if path in names and held.is_spoken(path)]
    asked = [path for path in repeated if path in held.called("question", texts)]
    ids = [path for path in repeated if {"id", "uuid", "qid"} & {*role_names.parts(path)}]
    steps = [path for path in texts if role_names.mentions(path, "steps") and path not in asked]
    answers = [path for path in held.answers if path in texts]
    piece, said = "answer", [*asked, *ids] if kind.compares and answers and asked else []
    if kind.marks and steps:
        piece, said = "step", [*asked, *ids]
    elif kind.trains_answers and spoken and texts and not asked:
        piece, said = "turn", sorted(ids, key=lambda p: -_both(held, p, spoken[0]))
    elif kind.trains_answers and texts and not asked and (linked := _linked(held, names)):
        what = f"each row is one turn, and {linked} says which other row it belongs to"
        return what, f"Join these rows. {role_names.GIVEN['turn']}"
    if not said and kind.trains_answers and texts:
        piece, said = "turn", [path for path in repeated if _is_counted(held, path, names)]
    if not said:
        return None
    what = f"each row is one {piece}, and those with one {said[0]} belong together"
    return what, f"Join the rows of one {said[0]}. {role_names.GIVEN[piece]}"


def _both(held: role_columns.Columns, path: str, spoken: str) -> int:
    """How many values of an id both speakers have."""
    both = {*zip(held.values[path], held.values[spoken], strict=True)}
    return len(both) - len({one for one, _ in both})


def _is_counted(held: role_columns.Columns, path: str, names: Sequence[str]) -> bool:
    """Whether another column numbers the turns of each value of an id."""
    for number in (p for p in names if role_names.says(p, "spoken")):
        turns: dict[Any, list[float]] = {}
        for one, told in zip(held.values[path], held.values[number], strict=True):
            turns.setdefault(one, []).append(judgements.spelled(told) or 0)
        several = [some for some in turns.values() if len(some) > 1]
        rising = sum(some == sorted(some) and len({*some}) > 1 for some in several)
        if rising and rising >= shapes.NEARLY_ALL * len(several):
            return True
    return False


def _linked(held: role_columns.Columns, names: Sequence[str]) -> str:
    """The column that names the id of another row; empty where none does."""
    ids = [p for p in names if "id" in role_names.parts(p) and _different(held.values[p]) > 1]
    for one, other in itertools.permutations(ids, 2):
        told = [str(value) for value in held.values[one] if value not in EMPTY]
        known = {*map(str, held.values[other])} if told else set()
        same = held.values[one] == held.values[other]
        if not same and len(told) > _FEW and 3 * sum(value in known for value in told) > len(told):
            return one
    return ""


def _different(values: Sequence[Any]) -> int:
    """How many values there are; so many that none is shared where one is no text and no number."""
    plain = all(isinstance(one, str | int | None) for one in values)
    return len({*values}) if plain else len(values)


def _are_speakers(values: Sequence[Any]) -> bool:
    """Whether values name a user and an assistant, and nobody else that is unknown."""
    roles = {speakers.role_named(one) or role_of({"role": one}) for one in {*map(str, values)}}
    return len(roles) > 1 and None not in roles


def _judged(held: role_columns.Columns) -> tuple[str, str] | None:
    """Whether answers in turns are the texts of a judge, which end with a verdict each."""
    for path in role_columns.conversation(held):
        each = (one if type(one) is list else _turns.turns_in(one) for one in held.told(path))
        turns = [*itertools.chain.from_iterable(filter(None, each))]
        answers = [said for who, said in _rated_steps.spoken(turns) if who == "assistant"]
        texts = [re.sub(r"<[^<>]*>", " ", said) for said in answers if isinstance(said, str)]
        ends = ["".join(words.parts(text)[-1:]) for text in texts]
        if ends and all(map(_ratings.is_rating, ends)):
            what = f"the answers in {path} end with a verdict each, as a judge's texts do"
            return what, f"Write the steps without the judge's texts. {role_names.GIVEN['step']}"
    return None


def _is_made_up(path: str, rows: Sequence[contract.Row]) -> bool:
    """Whether a question was made of others: it is called so, or nearly all of it stands there."""
    told = [row for row in rows if shapes.is_text(row.get(path)) and row[path].strip()]
    others = [[v for n, v in row.items() if n != path and shapes.is_text(v)] for row in told]
    both = zip((row[path] for row in told), others, strict=True)
    parts = [(text, [one for one in some if one.strip() and one in text]) for text, some in both]
    made = (len(some) > 1 and sum(map(len, some)) > 0.8 * len(text) for text, some in parts)
    return is_a(path, "rewritten") or (bool(told) and all(made))


def which(found: Sequence[Candidate], rows: Sequence[contract.Row], where: str) -> DataError:
    """The question that several ways to read a file's columns leave; without an answer where they
    differ in the side of an answer, and a column may say which side is good."""
    both = role_names.by_side([one.renamed.get("answer", "") for one in found])
    held = role_columns.columns_of(rows, answers_alone=False) if both else None
    if held and (told := finders.able(held, "verdict")):
        sides = " and ".join(both[0])
        what = f"{where}: {sides} are two answers, and {told[0]} may say which is the good one."
        return DataError(what, "Give rows with the good one alone.")
    found = sorted(found, key=lambda one: not _is_made_up(one.renamed.get("question", ""), rows))
    ways = [one.words for one in found[:SHOWN]]
    how = f"Say which with {', or '.join(one.options for one in found[:SHOWN])}."
    what = f"{where} could be read in {len(found)} ways: {'; or '.join(ways)}"
    return DataError(f"{what}{', among others' * (len(found) > SHOWN)}.", how)
