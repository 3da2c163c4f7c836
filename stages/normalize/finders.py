"""Which columns of sampled rows may play each role of a format.

A role has one function that names its columns, the likeliest first. Names suggest a role; values
that cannot play it take it back (ratings are as long as the steps, a verdict names both sides).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stages.formats import _rated_steps, _ratings, _turns
from stages.normalize import role_columns, role_names
from stages.normalize.role_columns import Columns
from stages.rows import column_names, judgements, shapes, signals, stop_text
from stages.rows.column_names import EMPTY
from stages.rows.judgements import are_numbers, is_marked, of_several

_VERDICTS = 5  # different values of a verdict: each side, its name, a tie
_SOME = 0.5  # of the rows, in which a verdict must stand: who judged may have skipped others
_SCALES = (3, 4, 5, 6, 7, 10, 100)  # the best mark of a scale that begins at 0 or 1


def able(held: Columns, role: str) -> list[str]:
    """The paths that may play a role, in the order of the rows."""
    return _FINDERS[role](held)


def couples(held: Columns, role: str) -> list[tuple[str, str]]:
    """The two paths that may be the two sides of a role."""
    if role.endswith(" turns"):
        of, paths = role.partition(" ")[0], role_columns.talks(held)
    elif role == "chosen score":
        of, paths = "chosen", held.where(shapes.is_number)
    else:
        said = [path for path in held.where(role_columns.is_said) if not role_names.is_about(path)]
        of, paths = role.partition(" ")[0], held.varied([p for p in said if "[]" not in p])
    found = held.of_two((role_names.by_side if of == "first" else role_names.by_better)(paths))
    return [*dict.fromkeys([*found, *_named_sides(held)])] if role == "first answer" else found


def _questions(held: Columns) -> list[str]:
    """The texts that may be asked; of any name where the one text left may be guessed."""
    both = ("chosen answer", "first answer")[: 2 * (not held.answers_alone)]
    sides = {*itertools.chain(*(one for role in both for one in couples(held, role)))}
    asked = [path for path in held.questions if path not in sides]
    asked = asked or [*filter(held.is_spoken, held.called("history", held.alone))]
    if asked or not held.guess:
        return asked
    open_ = [p for p in held.alone if p not in sides and not role_names.role_of(p)]
    likely = [p for p in open_ if held.is_varied(p) and held.is_spoken(p)]
    return likely if len(likely) == 1 else held.first_of(sides)


def _prompt(held: Columns) -> list[str]:
    turns = role_columns.talks(held, asks=True)
    return [*turns, *(q for q in _questions(held) if not turns or held.is_varied(q))]


def _spoken_turns(held: Columns) -> list[str]:
    """Texts of turns: in one list, or in numbered columns (``user_1``, ``assistant_1``)."""
    lists = [p for p in held.where(_turns.are_spoken) if role_names.is_talk(p)]
    even = [p for p in lists if held.all(p, lambda value: len(value) % 2 == 0)]
    return even or role_names.numbered_turns(held.where(shapes.is_text, 0.0))


def _is_answered(text: str) -> bool:
    """Whether a text is a dialogue that does not wait for an answer."""
    found = stop_text.parsed(text)
    last = found[1].messages[-1:] if found else ()
    return any(turn.role == "assistant" and turn.content for turn in last)


def _weights(held: Columns) -> list[str]:
    """Lists of weights, or of flags, that are as long as the turns."""
    lists = [p for p in held.where(are_numbers) if held.as_long(p, role_columns.conversation(held))]
    return list(filter(column_names.weighs_turns, lists))


def _inputs(held: Columns) -> list[str]:
    texts = held.where(shapes.is_text, 0.0)
    said = held.called("context", held.where(shapes.is_passages, 0.0))
    asked = [path for path in texts if "input" in role_names.parts(path)]
    topics = [] if held.called("question", texts) else held.called("topic", texts)
    return [*said, *asked, *(p for p in topics if "title" not in role_names.parts(p))]


def _instruction(held: Columns) -> list[str]:
    """What an input belongs to; it may be the same in many rows. A title goes before a text."""
    titles = [p for p in held.called("topic", held.alone) if "title" in role_names.parts(p)]
    named = held.called("question", held.alone)
    spoken = [p for p in named if not held.unnamed or held.is_spoken(p)]
    return held.distinct(spoken or titles)


# Rated steps.


def _are_marks(value: Any) -> bool:
    """Whether a value is a list of ratings, on whatever scale."""
    several = isinstance(value, list) and bool(value)
    return several and all(is_marked(one) or _ratings.is_rating(one) for one in value)


def steps_of(held: Columns) -> list[str]:
    """Lists and families of texts that may be steps: those that are called so, else all."""
    lists = [p for p in held.where(shapes.are_texts) if not role_names.is_about(p)]
    lists = [p for p in lists if not role_names.are_answers(p)]
    texts = [*lists, *held.texts_of_families]
    texts = [p for p in texts if not held.all(p, _are_marks)]
    return held.called("steps", texts) or texts


def _tagged_steps(held: Columns) -> list[str]:
    """Texts with a step tag, or with as many paragraphs or lines as a list has numbers."""
    tagged = [p for p in held.single if held.all(p, _rated_steps.is_tagged)]
    lists = [held.told(path) for path in held.where(_are_marks)]
    counts = [[len(one) if isinstance(one, list) else 0 for one in some] for some in lists]
    return tagged or [p for p in held.single if _are_broken(held.values[p], counts)]


def _are_broken(said: Sequence[str], counts: Iterable[Sequence[int]]) -> bool:
    """Whether each text has as many paragraphs, or lines, as one of some counts says."""
    return any(
        max(lengths) > 1
        and all(_rated_steps.pieces_of(text, n) for text, n in zip(said, lengths, strict=True))
        for lengths in counts
    )


def _rated(held: Columns) -> list[str]:
    """Lists of ratings that are as long as the steps; of several judges, what they say together;
    on another scale, brought to 0 to 1."""
    found, several = [], held.where(of_several)
    means = [p for p in several if held.all(p, lambda v: all(map(are_numbers, v)))]
    judged = [f"{p}[{'mean' if p in means else 'most'}]" for p in (*means, *several)]
    for path in dict.fromkeys((*held.where(_are_marks), *held.families, *judged)):
        if signals.is_low(judgements.bare(path)):
            continue  # true says that something is bad, or not there
        if held.all(path, _are_marks) and held.as_long(path, steps_of(held)):
            scale = _scale(held, path)
            found += [f"{path}[{scale}]" if scale else path]
    return found


def _scale(held: Columns, path: str) -> str:
    """The scale of numbers that do not run from -1 or 0 to 1; empty for all others."""
    bare = judgements.bare(path)
    if role_names.role_of(bare) not in ("number", "verdict", "rank"):
        return ""
    told = map(judgements.spelled, judgements.flat(held.told(bare)))
    said = [number for number in told if number is not None]
    if not said or max(said) <= 1 or min(said) < 0 or not all(n.is_integer() for n in said):
        return ""
    best = next((one for one in _SCALES if one >= max(said)), None)
    return "" if best is None or "," in path else f"{min(1, int(min(said)))}..{best}"


def _wrong(paths: Iterable[str]) -> list[str]:
    """Those whose name says that what they number is wrong."""
    return [p for p in paths if role_names.mentions(p, "error") or role_names.is_worse(p)]


def _first_error(held: Columns) -> list[str]:
    whole = held.where(lambda value: type(value) is int, 0.0)
    places = held.where(judgements.is_place, 0.0)
    return _wrong(p if p in whole else f"{p}[place]" for p in places)


# Numbers of answers.


def _turned_round(path: str) -> str:
    """A path; of numbers of which a low one is good, with the ending that turns them round."""
    return path + "[low]" * signals.is_low(judgements.bare(path))


def _measures(path: str) -> str:
    """The role of a column of numbers; also of those that measure what is bad, or are verdicts."""
    role = role_names.role_of(path)
    rates = column_names.is_rating(path) and (role == "" or signals.is_low(path))
    return "number" if rates else role


def _numbers_of(held: Columns, *roles: str) -> list[str]:
    several = [f"{path}[mean]" for path in held.where(of_several)]
    paths = [*held.where(are_numbers), *held.families, *several]
    paths = [p for p in paths if _measures(judgements.bare(p).split(",")[0]) in roles]
    lists = role_columns.list_of_answers(held)
    likely = [p for p in paths if held.all(p, are_numbers)]
    likely = [p for p in likely if held.as_long(p, lists) and _in_order(held, p, lists)]
    return [*map(_turned_round, likely)]


def _in_order(held: Columns, path: str, others: Iterable[str]) -> bool:
    """Whether a list of objects stands in the order of other lists: a key of both, such as a name,
    says the same in both."""
    mine = path.partition("[]")[0]
    for other in (one.partition("[]")[0] for one in others):
        for key in _keys(held, mine) & _keys(held, other) if other != mine else ():
            left, right = held.values[f"{mine}[].{key}"], held.values[f"{other}[].{key}"]
            for a, b in zip(left, right, strict=True):
                if a != b and sorted(map(repr, a or ())) == sorted(map(repr, b or ())):
                    return False
    return True


def _keys(held: Columns, path: str) -> set[str]:
    return {one.rpartition(".")[2] for one in held.values if one.startswith(f"{path}[].")}


def _two_numbers(held: Columns) -> list[str]:
    pairs = held.where(lambda value: are_numbers(value) and len(value) == 2)
    return [path for path in pairs if role_names.role_of(path) in ("number", "verdict")]


def _sides(held: Columns) -> list[str]:
    """Two texts that are sides, as one path; those that are called answers, if some are."""
    both = held.of_two(role_names.by_side(held.single))
    named = [one for one in both if role_names.role_of(one[0]) == "answer"]
    return [*map(",".join, named or both)]


def _numbers_of_sides(held: Columns) -> list[str]:
    numbers = [p for p in held.where(is_marked) if _measures(p) == "number"]
    both = [one for one in role_names.by_side(numbers) if "[]" not in one[0]]
    return [",".join(map(_turned_round, one)) for one in both]


# Verdicts on two answers.


def _verdict(held: Columns) -> list[str]:
    scalars = held.where(lambda value: isinstance(value, (str, int, float)), _SOME)
    named = [p for p in scalars if role_names.mentions(p, "verdict")]
    named += [p for p in scalars if p not in named and role_names.role_of(p) == "number"]
    of_sides = {path for pair in role_names.by_side(scalars) for path in pair}
    few = [p for p in named if p not in of_sides and _is_few(held, p)]
    said = _one_hot(held) or _named_winners(held, scalars) or [*few, *_votes(held)]
    return said or [p for p in scalars if held.guess and _name_sides(held.told(p))]


def _name_sides(values: Iterable[Any], names: tuple[str, ...] = ()) -> bool:
    """Whether verdicts name both sides, and nothing else but ties.

    Args:
        names: of the columns that they name; without any, sides are left and right, or A and B.
    """
    said = [v for v in values if v not in EMPTY and not judgements.is_tie(v)]
    name = judgements.named_by if names else judgements.side_of
    return {name(value, names) for value in said} == {0, 1}


def _strength(held: Columns) -> list[str]:
    """Numbers below 0 in some rows and above in others, under the name of a verdict."""
    numbers = held.where(lambda v: type(v) in (int, float), _SOME)
    named = [p for p in numbers if role_names.role_of(p) in ("number", "verdict")]
    told = {p: [v for v in held.values[p] if v is not None] for p in named}
    return [p for p, v in told.items() if min(v) < 0 < max(v)]


def _is_few(held: Columns, path: str) -> bool:
    """Whether all values of a column are few short ones."""
    said = {*map(str, judgements.flat(held.values[path]))}
    return len(said) <= _VERDICTS and max(map(len, said), default=0) <= signals.SHORT


def _votes(held: Columns) -> list[str]:
    """Lists with the verdicts of several judges, as what most of them say."""
    lists = held.where(lambda v: isinstance(v, list) and [*judgements.flat(v)] != [], _SOME)
    found = []
    for path in held.called("verdict", lists):
        said = [value for value in held.values[path] if value not in EMPTY]
        hot = all(judgements.one_hot(value) is not None for value in said)
        if _is_few(held, path):
            found.append(path if hot else path + "[most]" * max(map(judgements.depth, said)))
    return found


def _named_winners(held: Columns, scalars: Iterable[str]) -> list[str]:
    """A column with the name of one of two, and the columns with both names."""
    texts = [p for p in held.where(shapes.is_text) if "[]" not in p]
    each = itertools.product(scalars, role_names.by_side(texts))
    some = [(path, *both) for path, both in each if path not in both]
    told = {",".join(one): zip(*map(held.values.get, one), strict=True) for one in some}
    return [one for one, values in told.items() if _name_sides(map(list, values))]


def _named_sides(held: Columns) -> list[tuple[str, str]]:
    """Two texts whose columns a verdict names: ``answer_ours`` where it says ``ours``."""
    verdicts = [held.told(path) for path in _verdict(held) if "," not in path]
    each = itertools.combinations(held.single, 2)
    return [both for both in each if any(_name_sides(said, both) for said in verdicts)]


def _one_hot(held: Columns) -> list[str]:
    """Columns that say of one side each, or of a tie, whether it won: 1 in one of them."""
    flags = [p for p in held.where(lambda v: v in (0, 1, "0", "1")) if "[]" not in p]
    ties = [p for p in flags if "tie" in role_names.parts(p)]
    found = []
    for both in role_names.by_side(flags):
        for some in ([*both, *ties[:1]], [*both]):
            each = zip(*(held.values[path] for path in some), strict=True)
            if all(sum(map(int, one)) == 1 for one in each):
                found.append(",".join(some))
                break
    return found


_FINDERS: Mapping[str, Callable[[Columns], list[str]]] = {
    "question": _questions,
    "prompt": _prompt,
    "asking turns": lambda held: role_columns.talks(held, asks=True),
    "instruction": _instruction,
    "input": _inputs,
    "answer": role_columns.answer,
    "good answer": role_columns.good_answer,
    # Answers of more than a word or two, which would be there to check others against.
    "spoken answer": lambda held: [*filter(held.long, held.answers)],
    "list of answers": role_columns.list_of_answers,
    "two answers": lambda held: [
        p for p in role_columns.list_of_answers(held) if held.all(p, lambda one: len(one) == 2)
    ],
    "sides": _sides,
    "reasoning": lambda held: held.reasoning,
    "turns": role_columns.conversation,
    "spoken turns": _spoken_turns,
    "dialogue": lambda held: [p for p in held.single if held.all(p, _is_answered)],
    "weights of turns": _weights,
    "system text": lambda held: held.called("system", held.where(shapes.is_text, 0.0)),
    "history": lambda held: held.called(
        "history", held.where(lambda value: isinstance(value, list), 0.0)
    ),
    "tools": lambda held: held.called(
        "tools", held.where(lambda value: isinstance(value, list | str), 0.0)
    ),
    "steps": steps_of,
    "tagged steps": _tagged_steps,
    "ratings": _rated,
    "ratings of text": lambda held: held.where(_are_marks),
    "first error": _first_error,
    "wrong steps": lambda held: _wrong(
        held.where(lambda v: isinstance(v, list) and {*map(type, v)} == {int}, 0.0)
    ),
    "scores": lambda held: _numbers_of(held, "number", "verdict"),
    "ranks": lambda held: _numbers_of(held, "rank"),
    "two numbers": _two_numbers,
    "numbers of sides": _numbers_of_sides,
    "verdict": _verdict,
    "strength": _strength,
}
