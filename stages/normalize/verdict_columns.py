"""Which columns of sampled rows say which of two answers is better, or how good each of them is."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages import formats, kinds
from stages.contract import Row
from stages.formats import _pairs, _ratings, _turns
from stages.normalize import role_columns, role_names
from stages.normalize.role_columns import Columns
from stages.normalize.survey import Column
from stages.rows import column_names, judgements, shapes, signals, words
from stages.rows.selection import lookup
from stages.rows.unread import mapped

_OF_BOTH = ("scores", "ranks")
_VERDICTS = 7  # different values of a verdict: on each side three words for how sure, a tie
_SOME = 0.5  # of the rows, in which a verdict must stand: who judged may have skipped others
_SCALES = (3, 4, 5, 6, 7, 10, 100)  # the best mark of a scale that begins at 0 or 1


# Numbers of answers.


def _turned_round(path: str) -> str:
    """A path; of numbers of which a low one is good, with the ending that turns them round."""
    return path + "[low]" * signals.is_low(judgements.bare(path))


def _measures(path: str) -> str:
    """The role of a column of numbers; also of those that measure what is bad, or are verdicts."""
    role = role_names.role_of(path)
    rates = column_names.is_rating(path) and (role == "" or signals.is_low(path))
    return "number" if rates else role


def numbers_of(held: Columns, *roles: str) -> list[str]:
    """Lists of numbers, one for each answer, under names of some roles."""
    several = [f"{path}[mean]" for path in held.where(judgements.of_several)]
    ordered = held.where(lambda value: bool(words.ranks_in(value)))
    several += [f"{path}[order]" for path in ordered if _sorts(held, path)]
    apart = {_object(path) for path in ordered if _mixes(held, path)} - {""}
    paths = [*held.where(_rate_some), *held.families, *several]
    paths = [p for p in paths if _measures(judgements.bare(p).split(",")[0]) in roles]
    paths = [p for p in paths if p.endswith("[order]") or _object(p) not in apart]
    lists = [*list_of_answers(held), *lists_of_turns(held)]
    likely = [p for p in paths if held.all(p, _rate_some)]
    likely = [p for p in likely if held.as_long(p, lists) and _in_order(held, p, lists)]
    # Lists of ratings from 0 to 1 that are not as long as the others may be of steps.
    even = [p for p in likely if held.as_long(p, lists, 1) or not held.all(p, _ratings.are_ratings)]
    return [*map(_turned_round, even)]


def _object(path: str) -> str:
    """The object that a path is a key of; empty where it is of none."""
    return judgements.bare(path).rpartition(".")[0]


def _mixes(held: Columns, path: str) -> bool:
    """Whether names of answers stand in another order than their columns in some row."""
    orders = map(words.ranks_in, held.told(path))
    return any(order != sorted(order) for order in orders)


def _sorts(held: Columns, path: str) -> bool:
    """Whether names of answers stand from best to worst, as ranks in the same object say; in their
    own order everywhere, under a name that says nothing of ranks, they name answers alone."""
    if not (column_names.is_a(path, "rank") or _mixes(held, path)):
        return False
    beside = [p for p in held.where(_rate_some) if _object(p) == _object(path) != ""]
    return all(sorted({*v}) == v for p in beside for v in held.told(p) if v)


def _rate_some(value: Any) -> bool:
    """Whether a value has numbers, and else only what stands where nobody gave one."""
    told = [one for one in value if not _pairs.is_unrated(one)] if isinstance(value, list) else []
    return judgements.are_numbers(told)


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


def list_of_answers(held: Columns) -> list[str]:
    """Lists of texts or of objects, and families of texts, that are answers by their names, or
    sentences to choose from."""
    some = [p for p in held.texts_of_families if role_names.role_of(p.split(",")[0]) == "answer"]
    spoken = held.where(lambda v: shapes.are_texts(v) and all(map(signals.is_prose, v)))
    named = held.called("answer", held.where(_turns.are_answers))
    return [*named, *held.called("verdict", spoken), *some]


def sides(held: Columns) -> list[str]:
    """Two texts that are sides, as one path; those that are called answers, if some are."""
    both = held.of_two(role_names.by_side(held.single)) or _alike(held)[0]
    named = [one for one in both if role_names.role_of(one[0]) == "answer"]
    return [*map(",".join, named or both)]


def _alike(held: Columns, role: str = "number") -> tuple[list[tuple[str, str]], ...]:
    """The two answers and the two numbers whose names differ in the same word: ``response`` and
    ``response_base`` beside ``score`` and ``score_base``; none where more do."""
    numbers = [p for p in held.where(judgements.is_marked) if _measures(p) == role]
    found = role_names.by_same(held.called("answer", held.single), numbers)
    return ([found[0][0]], [found[0][1]]) if len(found) == 1 else ([], [])


def lists_of_turns(held: Columns) -> list[str]:
    """Columns of turns that are two sides, or differ in their number alone, as one path."""
    turns = [path for path in role_columns.talks(held) if "," not in path]
    families = [path for path in held.families if {*path.split(",")} <= {*turns}]
    return families or [*map(",".join, held.of_two(role_names.by_side(turns)))]


def numbers_of_sides(held: Columns, role: str = "number") -> list[str]:
    """Two columns with a number of each side, or its rank, as one path."""
    numbers = [p for p in held.where(judgements.is_marked) if _measures(p) == role]
    both = [one for one in role_names.by_side(numbers) if "[]" not in one[0]]
    both = both or _alike(held, role)[1]
    return [",".join(map(_turned_round, one)) for one in both]


def numbers_of_both(path: str, columns: Mapping[str, Column], reading: str, row: Row) -> str:
    """The option that reads numbers of both answers, one column of each or a list, where a format
    reads them beside the verdict; else empty, as of one of several aspects that a row rates."""
    found = formats.load(reading)
    able = found.columns.keys() >= {"choice", "numbers"} and "[]" not in path and not found.fans_out
    of_aspects = sum(_measures(one) == "number" for one, _ in role_names.by_side([*row])) > 1
    able &= not of_aspects or role_names.says(path, "overall")
    for names in (*role_names.by_side([*columns]), (path,)) if able else ():
        told = [one for name in names for one in judgements.flat(columns[name].values)]
        listed = all(isinstance(v, list) and len(v) == 2 for v in columns[path].values)
        rated = [judgements.spelled(one) for one in told if not _pairs.is_unrated(one)]
        numbers = {*rated} - {None}
        sure = len(rated) - rated.count(None) >= shapes.NEARLY_ALL * len(rated)
        fits = path in names and (listed or len(names) > 1) and sure
        if fits and not numbers <= {-1, 0, 1}:  # 1 and 0 would say good or bad
            ranks = column_names.is_a(path, "rank")
            joined = ",".join(names if ranks else map(_turned_round, names))
            return mapped("ranks" if ranks else "scores", joined)
    return ""


def _are_verdicts(value: Any) -> bool:
    """Whether a value is a list that says of each thing whether it is good."""
    return isinstance(value, list) and all(judgements.is_good(one) is not None for one in value)


def of_both(name: str, path: str, rows: Sequence[Row], kind: kinds.Kind) -> str:
    """The option that reads numbers of both answers, where ``--map`` has those of one: under a name
    of its side (``score_a``), or in a column with one number a row; else empty."""
    ranks = column_names.is_a(name, "rank")
    better = role_names.says(name, "better worse")
    sided = signals.has_side(name) and not better and (ranks or column_names.is_rating(name))
    alone = [lookup(row, path) for row in rows] if kind.compares and name in _OF_BOTH else []
    if not sided and not any(judgements.spelled(one) is not None for one in alone):
        return ""
    each = (sorted((path, other)) for other in {**rows[0]})
    both = next((one for one in each if judgements.are_sides(*one)), ["COLUMN_A", "COLUMN_B"])
    return mapped("ranks" if ranks else "scores", ",".join(both))


def good_answer(held: Columns) -> list[str]:
    """The first good one of several answers, where a list says so of each, or the best one."""
    texts = held.where(shapes.is_list_of_texts)
    named = dict.fromkeys((*held.called("answer", texts), *list_of_answers(held)))
    answers = [p for p in named if p in texts and any(map(shapes.are_texts, held.told(p)))]
    rate = [p for p in held.values if column_names.is_rating(p) and not signals.is_low(p)]
    two = [p for p in rate if len({*map(str, judgements.flat(held.told(p)))}) <= 2]
    ways = dict.fromkeys((p for p in rate if held.all(p, judgements.are_numbers)), "top")
    ways |= dict.fromkeys((p for p in two if held.all(p, _are_verdicts)), "good")
    even = (one for one in itertools.product(answers, ways) if held.as_long(one[1], one[:1]))
    return [f"{answer},{path}[{ways[path]}]" for answer, path in even]


# Verdicts on two answers.


def _deciding(held: Columns) -> list[str]:
    """Columns of one value each that may name the better answer: not the worse one, or what is bad
    in one."""
    scalars = held.where(lambda value: isinstance(value, (str, int, float)), _SOME)
    return [p for p in scalars if not role_names.says(p, "worse") and not signals.is_low(p)]


def verdict(held: Columns) -> list[str]:
    """Columns that say which of two answers is better."""
    scalars = _deciding(held)
    of_sides = {path for pair in role_names.by_side(scalars) for path in pair}
    verdicts = [p for p in scalars if role_names.mentions(p, "verdict")]
    rate = dict.fromkeys([*verdicts, *held.called("number", scalars)])
    between = held.where(lambda v: type(v) is float and 1 <= v <= 2, _SOME)
    between = [p for p in between if not all(v in (None, 1, 2) for v in held.values[p])]
    few = [p for p in rate if p not in (*of_sides, *between) and _is_few(held, p)]
    few += [f"{p}[nearest]" for p in between if role_names.mentions(p, "verdict")]
    said = [p for p in verdicts if _is_few(held, p) and _names_columns(held, p)]
    named = _named_winners(held, scalars)  # which of two names it is; a column's own goes before
    said += _one_hot(held) or (named and (said or named)) or [*few, *_votes(held)]
    return [*dict.fromkeys(said)]


def _places(held: Columns, path: str, names: Sequence[str]) -> set[int | None]:
    """Which of several answers the values of a column name by what tells their columns apart."""
    said = judgements.decided(held.told(path)) if path not in names else ()
    return {judgements.named_among(value, names) for value in said}


def told_sides(held: Columns) -> list[str]:
    """Columns of any name that say by their values alone which of two answers is better: letters,
    or what tells the names of the answers apart (1 and 2 beside ``x_1`` and ``x_2``)."""
    aside = {*verdict(held), *itertools.chain(*role_names.by_side(_deciding(held)))}
    answers = [both.split(",") for both in (*sides(held), *lists_of_turns(held))]
    found = []
    for path in (p for p in _deciding(held) if p not in aside and not signals.is_about(p)):
        said = judgements.decided(held.told(path))
        # 0 and 1 say yes or no, but under the name of an answer.
        flags = {*map(judgements.spelled, said)} == {0, 1} and role_names.role_of(path) != "answer"
        named = any(_places(held, path, both) == {0, 1} for both in answers if len(both) == 2)
        found += [path] * (judgements.name_sides(said) or (named and not flags))
    for path in held.families if not (found or verdict(held)) else ():  # one of each judge
        told = judgements.decided(judgements.flat(held.told(path)))
        said = [one for one in told if judgements.spelled(one) != 0]  # which is a tie
        places = [{judgements.named_among(one, both) for one in said} for both in answers]
        found += [f"{path}[most]"] * ({0, 1} in places)
    return found


def told_answers(held: Columns) -> list[str]:
    """Columns whose values each name one of more than two answers by what tells their columns
    apart; those that are called verdicts, if some are."""
    families = [path.split(",") for path in list_of_answers(held) if "," in path]
    each = itertools.product(_deciding(held), families)
    told = [(path, _places(held, path, names)) for path, names in each]
    found = dict.fromkeys(p for p, s in told if None not in s and len(s) > 1 and s - {0, 1})
    named = [path for path in found if role_names.mentions(path, "verdict")]
    return named or [path for path in found if not signals.is_about(path)]


def _names_columns(held: Columns, path: str) -> bool:
    """Whether the few texts of a column name two columns of texts by their words."""
    values = judgements.decided(one for one in held.values[path] if isinstance(one, str))
    said = {part for one in values for part in words.parts(one)}
    texts = [p for p in held.single if held.is_spoken(p) and said & {*words.parts(p)}]
    each = itertools.permutations(texts, 2)
    return any(judgements.name_sides(values, both) for both in each)


def strength(held: Columns) -> list[str]:
    """Numbers below 0 in some rows and above in others, under the name of a verdict."""
    numbers = held.where(lambda v: type(v) in (int, float), _SOME)
    families = [family.split(",") for family in held.families]
    answers = {len(family) for family in families if not {*family} & {*numbers}}
    each = [family for family in families if {*family} & {*numbers}]
    pairs = role_names.by_side([*{*numbers}.difference(*each)])
    sided = {p for some in (*pairs, *(f for f in each if len(f) in answers)) for p in some}
    named = [p for p in held.called("number verdict", numbers) if p not in sided]
    told = {p: [v for v in held.values[p] if v is not None] for p in named}
    return [p for p, v in told.items() if min(v) < 0 < max(v)]


def _is_few(held: Columns, path: str) -> bool:
    """Whether all values of a column are few short ones."""
    said = {*map(str, judgements.flat(held.values[path]))}
    return len(said) <= _VERDICTS and max(map(len, said), default=0) <= signals.SHORT


def _votes(held: Columns) -> list[str]:
    """Lists with the verdicts of several judges, as what most of them say."""
    lists = held.where(lambda v: isinstance(v, list) and [*judgements.flat(v)] != [], _SOME)
    by_key: dict[str, list[str]] = {}
    said = [p for p in lists if held.all(p, lambda v: judgements.one_hot(v) in (0, 1))]
    words = [p for p in held.called("number", said) if not held.all(p, judgements.are_numbers)]
    for path in (*held.called("verdict", lists), *words):
        by_key.setdefault(path.rpartition("[].")[2], []).append(path)
    said_of_all = sorted(by_key, key=lambda key: not role_names.says(key, "overall"))
    found = []
    for path in (",".join(by_key[key]) for key in said_of_all):  # two lists: two groups of judges
        said = [value for value in held.told(f"{path}[most]") if value not in column_names.EMPTY]
        if "," in path:
            found += [f"{path}[most]"] * judgements.name_sides(judgements.decided(said))
            continue
        said = [value for value in held.values[path] if value not in column_names.EMPTY]
        hot = all(judgements.one_hot(value) is not None for value in said)
        if _is_few(held, path):
            found.append(path if hot else path + "[most]" * max(map(judgements.depth, said)))
    return found


def _named_winners(held: Columns, scalars: Iterable[str]) -> list[str]:
    """A column with the name of one of two, and the columns with both names."""
    texts = [p for p in held.where(shapes.is_text) if "[]" not in p]
    each = itertools.product(scalars, role_names.by_side(texts))
    some = [",".join((path, *both)) for path, both in each if path not in both]
    return [one for one in some if judgements.name_sides(judgements.decided(held.told(one)))]


def named_sides(held: Columns) -> list[tuple[str, str]]:
    """Two texts whose columns a verdict names: ``answer_ours`` where it says ``ours``."""
    paths = [path for path in verdict(held) if "," not in path]
    verdicts = [judgements.decided(held.told(path)) for path in paths]
    each = held.of_two(itertools.combinations(held.single, 2))
    return [both for both in each if any(judgements.name_sides(said, both) for said in verdicts)]


def _one_hot(held: Columns) -> list[str]:
    """Columns that say of one side each, or of a tie, whether it won: 1 in one of them."""
    flags = [p for p in held.where(lambda v: v in (0, 1, "0", "1")) if "[]" not in p]
    ties = [p for p in flags if "tie" in role_names.parts(p)]
    found: list[str] = []
    for both in role_names.by_side([p for p in flags if not signals.is_low(p)]):
        ways = (",".join((*both, *ties[:1])), ",".join(both))
        hot = (way for way in ways if held.all(way, lambda v: judgements.one_hot(v) is not None))
        found += itertools.islice(hot, 1)
    return found


# Numbers of steps.


def scaled(held: Columns, paths: Iterable[str]) -> list[str]:
    """Ratings brought to 0 to 1, but for those that say what is bad."""
    able = [p for p in paths if not role_names.is_no_rating(judgements.bare(p))]
    return [f"{path}[{scale}]" if (scale := _scale(held, path)) else path for path in able]


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
