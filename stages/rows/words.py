"""Names of columns, of keys and of speakers: how they are cut into words, and what a word means.

The words are in ``words.toml``. A name is cut at everything that is no letter and no digit, where
its case changes, around numbers, and where both halves are known words. Two words that are one in
the table (``feed_back``, ``non_toxic``) are joined.
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_MEANS: Mapping[str, Mapping[str, str]] = _TABLE["means"]
_EXACT: Mapping[str, Mapping[str, str]] = {**_TABLE["exact"], **_TABLE["apart"]}
_SIGN, _ROLE = ("both", "sign", "low"), ("both", "role")
RATING = ("label", "verdict", "number")  # the classes of words that a negation turns round
# Why the model should see a column, by its class, and where.
SEEN = {name: (one["why"], one["where"]) for name, one in _TABLE["seen"].items()}
_NOT = "un in non dis im mis".split()
_APART = ("un", "non", "dis")  # those that may be words of their own
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_BETWEEN = re.compile(r"\[[a-z]+\]|[\W_]+|(\d+)")  # the ending of a path is no part of a name
_BEGINS, _BEGUN = 3, 5  # letters that may stand for a word of so many


def _of(table: Mapping[str, str], *uses: str) -> list[str]:
    return [word for use in uses for word in table.get(use, "").split()]


def exact(name: str, *uses: str) -> frozenset[str]:
    """Words of the table that mean something only as they stand there."""
    return frozenset(listing(name, *uses))


def listing(name: str, *uses: str) -> list[str]:
    """The same in the order of the table."""
    return _of(_EXACT[name], *uses)


def _forms(word: str) -> str:
    """A pattern of the inflections of a word of the table."""
    if word[-1] == "!":
        return word[:-1]
    if word[-1] == "*":
        return rf"{word[:-1]}(?![a-z]*(?:er|or)s?$)[a-z]{{0,7}}"
    if word[-1] == "e":
        return rf"{word[:-1]}(?:e[sd]?|ings?)"
    return rf"{word}(?:{word[-1]}?(?:ed|ings?)|e?s)?"


def _pattern(words: Iterable[str], before: str = "") -> re.Pattern[str]:
    return re.compile(rf"(?P<no>{before})(?:{'|'.join(map(_forms, words)) or '(?!)'})")


_SAID = {name: own for name, uses in _MEANS.items() if (own := _of(uses, *_SIGN))}
_TURNED = f"(?:{'|'.join(_NOT)})?"
_SIGNS = {name: _pattern(own, _TURNED * (name in RATING)) for name, own in _SAID.items()}
_LOW = _pattern(word for uses in _MEANS.values() for word in _of(uses, "low"))
_BESIDE = {name: _pattern(_of(uses, "beside")) for name, uses in _MEANS.items()}
_ROLES = {name: _of(uses, *_ROLE) for name, uses in _MEANS.items()}
_OF_ROLES = {name: _pattern(words) for name, words in _ROLES.items()}
_WHOLE = {word.rstrip("*!") for uses in _MEANS.values() for word in _of(uses, *_SIGN, *_ROLE)}
_KNOWN = _WHOLE | {w for uses in _TABLE["exact"].values() for w in _of(uses, "both", "sign")}
_LISTED = _KNOWN | {word for uses in _TABLE["exact"].values() for word in _of(uses, *uses)}
_FOREIGN = (one for some in _ROLES.values() for one in some if not one.isascii())
_HERE = re.compile(f"({'|'.join(_FOREIGN)})")


def listed() -> list[str]:
    """Every word that may say what a column means, in its shortest form."""
    return sorted(word.rstrip("*!") for uses in _MEANS.values() for word in _of(uses, *_SIGN))


@functools.lru_cache(8192)
def signs(word: str) -> tuple[str, ...]:
    """The classes of a word where a column that no format reads may matter."""
    return tuple(name for name, pattern in _SIGNS.items() if pattern.fullmatch(word))


def signs_of(words: Iterable[str]) -> set[str]:
    """The classes of some words."""
    return set().union(*map(signs, words))


@functools.lru_cache(8192)
def role(word: str) -> str:
    """The class of a word where the column of a role is sought; empty where it has none.

    The beginning of a long word stands for it (``resp``, ``inst``), but for what rates (``pass``).
    """
    word = f"{word[:-3]}y" if word.endswith("ies") else word
    said = (name for name, pattern in _OF_ROLES.items() if pattern.fullmatch(word))
    long = ((n, w) for n, own in _ROLES.items() for w in own if len(w) >= _BEGUN)
    begun = (name for name, one in long if len(word) >= _BEGINS and one.startswith(word))
    return next(said, None) or ("" if "verdict" in signs(word) else next(begun, ""))


def says_no_more(words: Iterable[str], name: str) -> bool:
    """Whether some words belong to one class, or say nothing beside it."""
    ours = (_SIGNS[name], _BESIDE[name])
    said = (word for word in words if word not in FILLERS | SIDES)
    return all(any(pattern.fullmatch(word) for pattern in ours) for word in said)


def is_low(word: str) -> bool | None:
    """Whether true, or a high number, is bad under a word; None where the word rates nothing."""
    if _SIGNS["untrained"].fullmatch(word):
        return True
    found = next((hit for name in (*RATING, "pair") if (hit := _SIGNS[name].fullmatch(word))), None)
    if found is None:
        return None
    return bool(found["no"]) != bool(_LOW.fullmatch(word, found.end("no")))


def of_questions(names: Iterable[str]) -> list[str]:
    """Those of some names that say of a question what another one says of an answer:
    ``prompt_harm_label`` beside ``response_harm_label``."""
    both = ("question", "answer")
    said = {name: [role(one) for one in parts(name)] for name in names}
    turned = {n: ["answer" if role(w) in both else w for w in parts(n)] for n in said}
    others = [turned[name] for name in said if "question" not in said[name]]
    return [name for name in said if "question" in said[name] and turned[name] in others]


FILLERS = exact("filler", "sign")
SIDES = exact("better", "both") | exact("worse", "both") | exact("sides", "sign")


def _cut(chunk: str) -> list[str]:
    """The words of a part of a name that has no separator and no number."""
    small = chunk.casefold()
    cut = [word.casefold() for word in _PARTS.findall(chunk)] or [small]
    if small in _WHOLE:
        return [small]
    if small in _LISTED or len(cut) > 1:
        return cut
    halves = ([small[:at], small[at:]] for at in range(2, len(small) - 1))
    return next((two for two in halves if all(w in _KNOWN or signs(w) for w in two)), cut)


def _is_one(before: str, word: str) -> bool:
    """Whether two words of a name are one of the table."""
    both = before + word
    return len(word) >= _BEGINS and (both in _LISTED or (before in _APART and bool(signs(both))))


def counted(part: str) -> int | None:
    """The number that a part of a name is, or that a letter counts; None for any other word."""
    if part.isdecimal():
        return int(part)
    return ord(part) - ord("a") if len(part) == 1 and "a" <= part <= "h" else None


@functools.lru_cache(8192)
def parts(name: str) -> tuple[str, ...]:
    """The words and numbers of a name, in small letters."""
    found: list[str] = []
    cut = (word for chunk in _BETWEEN.split(name) if chunk for word in _cut(chunk))
    # Scripts without blanks are cut at the words that are known.
    for part in (one for word in cut for one in _HERE.split(word) if one):
        joined = bool(found) and _is_one(found[-1], part)
        found.append(found.pop() + part if joined else part)
    return tuple(found)


def words(name: str) -> tuple[str, ...]:
    """The words of a name, without its numbers."""
    return tuple(part for part in parts(name) if not part.isdecimal())


_ORDER = 80  # characters of an order of answers in one text


def ranks_in(value: Any) -> list[int]:
    """The ranks, from 1, of what letters or numbers at the ends of some texts name, each of them
    once, from best to worst (``reply_2``, ``reply_1``), or with signs between them (``B>A=C``);
    none of any other value."""
    listed = isinstance(value, list) and all(isinstance(one, str) for one in value)
    ranked = [[one] for one in value] if listed and not any(map(str.isdecimal, value)) else []
    if isinstance(value, str) and len(value) <= _ORDER and ">" in value:
        ranked = [one.split("=") for one in value.split(">")]
        nouns = {*listing("two", "noun")}
        said = [parts(one) for some in ranked for one in some]
        ranked = ranked if all(one and nouns.issuperset(one[:-1]) for one in said) else []
    names = [(parts(one)[-1:], at) for at, some in enumerate(ranked, 1) for one in some]
    told = {end[0]: at for end, at in names if end}
    ranks = {number: at for end, at in told.items() if (number := counted(end)) is not None}
    first = 1 if "1" in told and "0" not in told else 0
    every = sorted(ranks) == [*range(first, first + len(names))] and len(names) > 1
    return [ranks[number] for number in sorted(ranks)] if every else []


def differing(left: str, right: str) -> tuple[str, str] | None:
    """The one part in which two names differ; empty on the side that lacks it."""
    one, other = parts(left), parts(right)
    if len(one) == len(other):
        odd = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
        return odd[0] if len(odd) == 1 else None
    more = [n for n in range(len(other)) if (*other[:n], *other[n + 1 :]) == one]
    return ("", other[more[0]]) if more else None


def lettered(texts: Any) -> Any:
    """Options as one text, each on a line with its letter (``A. blue``), which all of them may
    begin with; any other value itself."""
    listed = isinstance(texts, list) and 1 < len(texts) <= len(ascii_uppercase)
    if not listed or not all(isinstance(one, str | None) for one in texts):
        return texts
    lines = [(letter, said) for letter, said in zip(ascii_uppercase, texts, strict=False) if said]
    own = all(re.match(rf"\W?{letter}\W", said) for letter, said in lines)
    return "\n".join(said if own else f"{letter}. {said}" for letter, said in lines)


FAMILY = 3  # names that differ in their number alone


def families(names: Iterable[str]) -> list[str]:
    """Three names and more that differ in their number, or letter, alone, as one path; also where a
    letter is the end of a word (``opa``, ``opb``, ``opc``)."""
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for name in (one for one in names if {*one}.isdisjoint(",[=")):
        cut = parts(name)
        ends = (*cut[:-1], cut[-1][:-1], cut[-1][-1]) if cut and cut[-1][2:].isalpha() else cut
        for said in dict.fromkeys((cut, ends)):
            counts = [part for part in said if counted(part) is not None]
            for told in ([*filter(str.isdecimal, counts)], [*filter(str.isalpha, counts)]):
                if len(told) == 1:
                    key = tuple("#" if part == told[0] else part for part in said)
                    found.setdefault(key, {}).setdefault(counted(told[0]) or 0, name)
    each = (sorted(members.items()) for members in found.values())
    begun = (some for some in each if some[0][0] in (0, 1) and len(some) >= FAMILY)
    whole = (some for some in begun if some[-1][0] - some[0][0] == len(some) - 1)
    return [*dict.fromkeys(",".join(name for _, name in some) for some in whole)]
