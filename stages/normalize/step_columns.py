"""Which columns of sampled rows have steps of solutions, and which say how good each step is."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from stages.formats import _rated_steps, _ratings
from stages.normalize import role_names, verdict_columns
from stages.normalize.role_columns import Columns
from stages.rows import column_names, judgements, shapes
from stages.rows.judgements import are_numbers, is_marked, of_several

_MARKS, _ON = 5, 4  # ratings that are surely such; rows of which one goes on from the last
_GAPS = ("", " ", "\n", "\n\n")  # between a question and its next step
_NEXT = {"next", "current", "candidate"}


def _are_marks(value: Any) -> bool:
    """Whether a value is a list of ratings, on whatever scale."""
    told = [v for v in value if v != judgements.TIE] if isinstance(value, list) else []
    return bool(told) and all(is_marked(one) or _ratings.is_rating(one) for one in told)


def marked(held: Columns) -> list[str]:
    """Lists of ratings, also as texts with commas."""

    def are_listed(value: Any) -> bool:
        return isinstance(value, str) and _are_marks(judgements.together(value, "listed"))

    listed = [f"{p}[listed]" for p in held.where(are_listed)]
    return [*held.where(_are_marks), *(p for p in listed if any(v[1:] for v in held.told(p) if v))]


def _stops(held: Columns, path: str, steps: str) -> bool:
    """Whether ratings end behind the first bad one in some rows, and nowhere else before the steps
    do."""
    if "," in path + steps or not held.is_spoken(steps) or held.as_long(path, [steps]):
        return False
    both = zip(held.told(path), held.told(steps), strict=True)
    short = [a for a, b in both if isinstance(a, list) and isinstance(b, list) and len(a) < len(b)]
    bad = [[*map(judgements.is_bad, marks)] for marks in short if marks]
    first = all(True in some and some.index(True) == len(some) - 1 for some in bad)
    return bool(bad) and first and held.as_long(f"{path},{steps}[stopped]", [steps])


def steps_of(held: Columns) -> list[str]:
    """Lists and families of texts that may be steps: those that are called so, else all; of one
    text each where the name says so and ratings are as long."""
    lists = [p for p in held.where(shapes.is_list_of_texts) if not role_names.is_about(p)]
    if signed := _signed(held, 1):
        return [f"{path}[step]" for path in signed]
    several = [p for p in lists if any(map(shapes.are_texts, held.told(p)))]
    judged = [p for p in several if held.guess and _are_judged(held, p)]
    several = [p for p in several if p in judged or not role_names.are_answers(p)]
    texts = [p for p in (*several, *held.texts_of_families) if not held.all(p, _are_marks)]
    long = [p for p in texts if held.all(p, shapes.are_texts)]
    rated = [p for p in texts if any(held.as_long(p, [q], 1) for q in held.where(_are_marks))]
    return held.called("steps", long) or held.called("steps", rated) or long


def _signed(held: Columns, depth: int) -> list[str]:
    """Lists, or lists of lists, of texts that all end with + or -, and some with each."""

    def are_signed(value: Any) -> bool:
        every = map(judgements.signed_in, judgements.flat(value))
        return judgements.depth(value) == depth and all(every)

    paths = held.where(are_signed)
    said = {p: judgements.flat(judgements.together(held.told(p), "sign")) for p in paths}
    return [path for path in paths if {*said[path]} == {"+", "-"}]


def _are_judged(held: Columns, path: str) -> bool:
    """Whether each of some texts is good or bad, and their lists differ in length, as solutions do:
    answers to choose from are equally many in each row."""
    marks = [p for p in marked(held) if held.as_long(p, [path]) or _stops(held, p, path)]
    two = any(len({*map(_ratings.said, judgements.flat(held.told(p)))}) == 2 for p in marks)
    return two and len({len(one) for one in held.told(path) if one}) > 1


def of_solutions(held: Columns) -> list[str]:
    """Lists of texts of each of several solutions, or texts that can be cut."""

    def are_steps(value: Any) -> bool:
        each = value if isinstance(value, list) else ()
        cut = (shapes.is_text(one) and ("\n" in one or _rated_steps.is_tagged(one)) for one in each)
        return bool(each) and (all(map(shapes.is_list_of_texts, each)) or all(cut))

    if signed := _signed(held, 2):
        return [f"{path}[step]" for path in signed]
    paths = held.where(are_steps)
    return [path for path in paths if not role_names.mentions(path.partition("[]")[0], "steps")]


def are_surely_steps(held: Columns, path: str) -> bool:
    """Whether texts are called steps, or have a step tag, which cuts better than line breaks."""
    texts = map(str, judgements.flat(held.told(path)))
    return role_names.role_of(path) == "steps" or any(map(_rated_steps.is_tagged, texts))


def tagged(held: Columns) -> list[str]:
    """Texts with a step tag, or with as many paragraphs or lines as a list has numbers."""
    cut = [p for p in held.single if held.all(p, _rated_steps.is_tagged)]
    lists = [held.told(path) for path in marked(held)]
    counts = [[len(one) if isinstance(one, list) else 0 for one in some] for some in lists]
    return cut or [p for p in held.single if _are_broken(held.values[p], counts)]


def _are_broken(said: Sequence[str], counts: Iterable[Sequence[int]]) -> bool:
    """Whether nearly each text has as many paragraphs or lines as one of some counts says."""
    each = ([*zip(said, lengths, strict=True)] for lengths in counts if max(lengths) > 1)
    fits = ([_rated_steps.is_broken(text, n) for text, n in one if text] for one in each)
    return any(sum(fit) >= shapes.NEARLY_ALL * len(fit) for fit in fits)


def next_steps(held: Columns) -> list[str]:
    """Texts that are called next; where two texts differ in that word alone (``response`` and
    ``next_response``), the step is the one without it, unless the other goes on from it."""
    named = {path: frozenset(role_names.parts(path)) for path in held.values}
    behind = {named[path] - _NEXT: path for path in named if not _NEXT.isdisjoint(named[path])}
    both = {path: behind[words] for path, words in named.items() if words in behind}
    own = [path for path, after in both.items() if not _goes_on(held, after, path)]
    able = own if both else [*behind.values(), *_asked_next(held)]
    return [path for path in held.single if path in able and held.is_spoken(path)]


def _asked_next(held: Columns) -> list[str]:
    """Texts with which questions go on from those of the row before: each row is one more step."""
    found = []
    for asked, path in itertools.product(held.questions, held.single):
        rows = itertools.pairwise(zip(held.told(asked), held.told(path), strict=True))
        on = [b in [f"{a}{gap}{s}" for gap in _GAPS] for (a, s), (b, _) in rows if a and s]
        found += [path] if 1 + len(on) <= _ON * sum(on) else []
    return found


def _goes_on(held: Columns, path: str, before: str) -> bool:
    """Whether most texts at a path begin with the ones at another."""
    both = zip(held.values[path], held.values[before], strict=True)
    return shapes.mostly(str(a).startswith(str(b).strip()) for a, b in both if a and b)


def rated(held: Columns) -> list[str]:
    """Ratings as long as the steps, from 0 to 1; of several judges, what they say together."""
    several, steps = held.where(of_several), steps_of(held)
    means = [p for p in several if held.all(p, lambda v: all(map(are_numbers, v)))]
    judged = [f"{p}[{'mean' if p in means else 'most'}]" for p in (*means, *several)]
    signs = [f"{path}[sign]" for path in _signed(held, 1)]
    marks = marked(held)
    stopped = [f"{p},{one}[stopped]" for p in marks for one in steps if _stops(held, p, one)]
    paths = dict.fromkeys((*marks, *held.families, *judged, *signs, *stopped))
    able = [p for p in paths if held.all(p, _are_marks) and "id" not in role_names.parts(p)]
    sure = [p for p in able if any(_are_even(held, one, p) for one in steps)]
    # Where no list is even in all rows, rows may be bad; then names say which lists are meant.
    bare = {p: judgements.bare(p) for p in able}
    of_steps = [p for p in able if role_names.mentions(bare[p], "steps")]
    rating = of_steps or [p for p in able if column_names.is_a(bare[p], "label")]
    named = [p for p in rating if held.as_long(p, held.called("steps", steps))]
    sure = sorted(sure or named, key=lambda path: not column_names.is_rating(bare[path]))
    return verdict_columns.scaled(held, sure)


def _are_even(held: Columns, steps: str, ratings: str) -> bool:
    """Whether each row has as many ratings as steps; nearly each, where they are surely such."""
    texts, marks = judgements.flat(held.told(steps)), judgements.flat(held.told(ratings))
    sure = len({*map(str, marks)}) <= _MARKS and all(len(str(one).split()) > 1 for one in texts)
    return held.as_long(ratings, [steps], shapes.NEARLY_ALL if sure else 1)


def rated_solutions(held: Columns) -> list[str]:
    """Lists of ratings of each of several solutions."""
    lists = held.where(lambda value: of_several(value) and all(map(_are_marks, value)))
    signs = [f"{path}[sign]" for path in _signed(held, 2)]
    return signs or verdict_columns.scaled(held, lists)


def wrong(paths: Iterable[str]) -> list[str]:
    """Those whose name says that what they number is wrong."""
    return [p for p in paths if role_names.mentions(p, "error") or role_names.says(p, "worse")]


def first_error(held: Columns) -> list[str]:
    """Numbers of the first wrong step, also inside of a text."""
    whole = held.where(lambda value: type(value) is int, 0.0)
    places = held.where(judgements.is_place, 0.0)
    return wrong(p if p in whole else f"{p}[place]" for p in places)


def counted_label(held: Columns) -> list[str]:
    """Labels that count steps, as no verdict does: -1, and numbers beyond 1."""
    labels = [p for p in held.where(judgements.is_place, 0.0) if column_names.is_a(p, "label")]
    said = {p: {judgements.together(one, "place") for one in held.told(p)} - {None} for p in labels}
    return [f"{p}[place]" for p in labels if min(said[p], default=0) == -1 and max(said[p]) > 1]
