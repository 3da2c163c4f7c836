"""What the parts of a column's name say of its role: one table of words, whatever their spelling.

A name is cut where its case changes and at everything that is no letter. A part means a word where
it is the word, or has three letters or more and begins it (``resp``, ``inst``), or the word begins
it (``answers``). Numbers count only where they tell two sides apart.
"""

import functools
import re
from collections.abc import Iterable, Sequence


def _words(*said: str) -> dict[str, tuple[str, ...]]:
    return {line.partition(":")[0]: tuple(line.partition(":")[2].split()) for line in said}


# The first role goes before the others where several parts of a name mean one; of the others the
# last part that means one is the noun: model_input is a question, question_answer an answer.
_FIRST = _words("system: system sys", "tools: tools functions", "history: history")
_NOUNS = _words(
    "question: question query problem prompt instruction input user human request ask "
    "task definition customer frage pregunta 题目 问题 質問 指令 输入",
    "answer: answer response solution output completion reply generation generated assistant bot "
    "chatbot target summary gpt candidates samples antwort respuesta 回答 答案 输出",
    "context: context passage document article background",
    "reasoning: reasoning thinking thought cot rationale explanation analysis scratchpad",
    "steps: steps process",
    "error: error mistake",
    "topic: title post item goal body text selftext",
    "rank: rank",
    "number: score rating reward grade label value point quality",
    "verdict: winner preference preferred choice better best verdict judgment judgement selected",
)
_WHOLE = ("q", "a", "cot", "gpt", "sys", "ask", "user")  # none begins a word, nor one it
_ENDINGS = ("", "s", "es", "ed")
_LETTERS = {"q": "question", "a": "answer"}
# A column about another one is not that one: question_id, response_model, solution_is_valid.
_ABOUT = frozenset(
    "id ids uid uuid hash key source src origin type kind category tag tags model name lang "
    "language length len token tokens count num number time date url link path version topic "
    "difficulty domain format author status level subject subset split dataset is has valid "
    "verified safe toxic flag feedback eval evaluation confidence critique judge index "
    "embedding".split()
)
_SAID = frozenset(("text", "content", "value", "body", "message", "msg", "said"))
# Of a text of one turn, and of a list of such texts.
SPOKEN = frozenset("message msg turn utterance said".split())
TALKS = frozenset(
    "data dialog dialogue conversation conversations chat turns messages utterances".split()
)
# Objects beside the data: for a checker, or for the one who keeps it.
_BESIDE = frozenset(("meta", "metadata", "extra", "verification"))
# What answers are checked against; it is trained only where it is no more than a short name of one.
_REFERENCE = frozenset("reference ref gold golden ground truth expected".split())
_CHECKED = _REFERENCE | {"correct", "label", "final"}
BETTER = frozenset(
    "chosen accepted accept preferred winner winning win w better best positive pos good correct "
    "right selected liked upvoted 良い 好 优".split()
)
WORSE = frozenset(
    "rejected reject refused dispreferred nonpreferred unpreferred loser losing lose l worse worst "
    "negative neg bad incorrect wrong unchosen disliked downvoted 悪い 坏 差".split()
)
_SIDES = (("a", "b"), ("1", "2"), ("0", "1"), ("first", "second"), ("left", "right"), ("x", "y"))
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_BETWEEN = re.compile(r"[\W_]+")
_NEGATED = re.compile(r"\b(non|un|dis)[_\- ](?=[a-z])", re.IGNORECASE)


_KNOWN = frozenset(word for words in {**_FIRST, **_NOUNS}.values() for word in words)
_KNOWN_HERE = re.compile("(" + "|".join(w for w in _KNOWN if not w.isascii()) + ")")


@functools.lru_cache(4096)
def parts(path: str) -> tuple[str, ...]:
    """The parts of a path in lower case, numbers among them; a word of the table stays whole."""
    found: list[str] = []
    for one in _BETWEEN.split(_NEGATED.sub(r"\1", path)):
        whole = one.casefold() in _KNOWN
        found += [one.casefold()] if whole else map(str.casefold, _PART.findall(one))
    # Scripts without blanks are cut at the words that are known.
    cut = (one for part in found for one in (_KNOWN_HERE.split(part) if part else ()))
    return tuple(part for part in cut if part)


def _means(part: str, word: str) -> bool:
    if part in _WHOLE or word in _WHOLE or len(part) < 3:
        return False
    return word.startswith(part) or (part.startswith(word) and part[len(word) :] in _ENDINGS)


def _role(part: str, table: dict[str, tuple[str, ...]]) -> str:
    part = f"{part[:-3]}y" if part.endswith("ies") else part
    exact = (role for role, words in table.items() if part in words)
    near = (role for role, words in table.items() if any(_means(part, word) for word in words))
    return next(exact, None) or next(near, "")


@functools.lru_cache(4096)
def role_of(path: str) -> str:
    """The role that a column's name suggests; empty where it suggests none.

    Inside an object the key says it, or the object where the key is no more than ``text``.
    """
    place, _, key = path.rpartition(".")
    if place and _BESIDE.isdisjoint(parts(place)):
        return role_of(place) if key in _SAID else role_of(key)
    words = without_numbers(path)
    if not words or words[-1] in _ABOUT or not _BESIDE.isdisjoint(words):
        return ""
    first = next((role for part in words if (role := _role(part, _FIRST))), "")
    if first or len(words) == 1:
        return first or _LETTERS.get(words[0], "") or _role(words[0], _NOUNS)
    if not {"is", "has", "num"}.isdisjoint(words):
        return ""
    meant = [role for part in words if (role := _role(part, _NOUNS))]
    return ([role for role in meant if role != "topic"] or meant or [""])[-1]


def mentions(path: str, role: str) -> bool:
    """Whether any part of a name means a role: ``mistake_index`` an error."""
    return any(_role(part, _NOUNS) == role for part in parts(path))


def without_numbers(path: str) -> tuple[str, ...]:
    """The parts of a path that are no numbers."""
    return tuple(part for part in parts(path) if not part.isdigit())


def is_about(path: str) -> bool:
    """Whether the name is that of something about a column: the model that wrote an answer."""
    own = [p for p in parts(path) if not p.isdigit() and p not in BETTER | WORSE and len(p) > 1]
    return bool(own) and (own[-1] in _ABOUT or not _BESIDE.isdisjoint(own))


def may_be_asked(path: str) -> bool:
    """Whether the name is of no role but that of a context, and not about another column, but for
    ``source``, beside which an answer is the target."""
    free = not is_about(path) or parts(path)[-1] == "source"
    return role_of(path) in ("", "context") and free


def numbered_turns(paths: Iterable[str]) -> list[str]:
    """Families of names that number turns, each as one path: ``user_1,assistant_1,user_2``, or
    ``message_1,message_2``."""
    families: dict[str, dict[tuple[int, bool], str]] = {}
    for path in paths:
        *before, number = parts(path) or ("",)
        whose, role = "_".join(before), role_of(path)
        if (
            before
            and "." not in path
            and number.isdecimal()
            and (role in ("question", "answer") or whose in SPOKEN)
        ):
            family = families.setdefault("" if role else whose, {})
            family[int(number), role == "answer"] = path
    found = []
    for whose, places in families.items():
        numbers = sorted({number for number, _ in places})
        in_a_row = numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        if in_a_row and len(places) == (1 if whose else 2) * len(numbers) > 1:
            found.append(",".join(places[place] for place in sorted(places)))
    return found


def is_talk(path: str) -> bool:
    """Whether the name may be that of a list of turns."""
    return parts(path)[-1] in TALKS


def is_reference(path: str) -> bool:
    """Whether the name says that answers are checked against it."""
    return not _REFERENCE.isdisjoint(parts(path))


def may_be_checked_against(path: str) -> bool:
    """Whether the name may also be that of a reference: ``correct_answer``."""
    return not _CHECKED.isdisjoint(parts(path))


def is_worse(path: str) -> bool:
    """Whether the name says that this answer is the worse one."""
    return not WORSE.isdisjoint(parts(path))


def _differing(left: str, right: str) -> tuple[str, str] | None:
    """The one part in which two names differ; empty on the side that lacks it."""
    one, other = parts(left), parts(right)
    if len(one) == len(other):
        odd = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
        return odd[0] if len(odd) == 1 else None
    if len(other) == len(one) + 1:
        more = [n for n in range(len(other)) if (*other[:n], *other[n + 1 :]) == one]
        return ("", other[more[0]]) if more else None
    return None


def by_better(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names of which one says that it is the better one and the other the worse."""
    return [
        (left, right)
        for left in paths
        for right in paths
        if (odd := _differing(left, right)) and odd[1] in WORSE
        if odd[0] in BETTER or (not odd[0] and role_of(left) == "answer")
    ]


def by_side(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names that differ in a side alone: ``a`` and ``b``, ``1`` and ``2``."""
    return [(a, b) for a in paths for b in paths if _differing(a, b) in _SIDES]
