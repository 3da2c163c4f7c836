"""Expressions of ``--filter``: from text to a tree. They can compare and compute, and nothing else.

The language is the part of SQL's that looks at one row: no query, no sum over rows, no function
but those of ``FUNCTIONS``. A name is a figure of the example (``FIGURES``) or a column of the row,
with dots for what is inside; in double quotes it is always a column.
"""

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from stages.errors import UsageError

FIGURES = {
    "n_tokens": "tokens of the example; of a pair, of the longer side",
    "n_trained": "tokens of it that are trained",
    "n_turns": "turns of it without system turns; of a pair, of the longer side",
    "n_characters": "characters of its texts; of a pair, of the longer side",
    "n_steps": "steps of a solution (prm)",
    "n_unrated": "steps of it without a rating",
    "margin": "margin of a pair (rm)",
}
_OF_ONE, _OF_TWO = ("lower", "upper", "length", "abs"), ("contains", "starts_with", "ends_with")
# By name: how many values they take, None for any number of them.
FUNCTIONS = {**dict.fromkeys(_OF_ONE, 1), **dict.fromkeys(_OF_TWO, 2), "coalesce": None}
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false", "between")
_SAME = {"==": "=", "<>": "!="}
_COMPARING = ("=", "!=", "<", "<=", ">", ">=")
_RANKS = (("+", "-"), ("*", "/", "%"))  # of operations, from the loosest
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)(?![\w.])
    | (?P<text>'(?:[^']|'')*')
    | (?P<column>"(?:[^"]|"")+")
    | (?P<name>[^\W\d]\w*(?:\.\w+)*)
    | (?P<sign><=|>=|<>|!=|==|[-+*/%<>=(),])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_LONGEST, _DEEPEST = 10_000, 40  # characters; levels of parentheses, signs and functions
_WHOLE = 2**63


@dataclass(frozen=True, slots=True)
class Asked:
    """Which option an expression is given to, for messages.

    Attributes:
        help: what a message advises where the expression is no expression.
        names: what it may read, as a sentence; ``example``: a short one.
    """

    option: str
    help: str
    names: str
    example: str


FILTER = Asked(
    "--filter", "See: docs/choosing.md.", f"Figures are {', '.join(FIGURES)}.", "n_tokens <= 2048"
)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of an expression, and how it is computed.

    Attributes:
        kind: number, text, truth, column, figure; negate, not, and, or, null (is it?); a sign; or
            the name of a function.
        at: where it begins in the text, from 0.
        value: of a literal or a name.
    """

    kind: str
    at: int
    value: Any = None
    parts: "tuple[Node, ...]" = ()

    def walk(self) -> "Iterator[Node]":
        """The node and all below it."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True, slots=True)
class Expression:
    """One ``--filter``, or another condition in its language.

    Attributes:
        columns: paths of raw columns; ``figures``: names of those that it reads.
        expected: names that it says a value for where there is none.
    """

    text: str
    tree: Node
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    expected: frozenset[str]
    asked: Asked = FILTER


def refuse(text: str, at: int, why: str, remedy: str = "", asked: Asked = FILTER) -> NoReturn:
    """Raise UsageError for what stands at a place of an expression."""
    near = text[at:].split(maxsplit=1)
    there = f"at {near[0][:30]!r} (character {at + 1})" if near else "at its end"
    raise UsageError(f"{asked.option} {text!r}, {there}: {why}.", remedy or asked.help)


def key_of(kind: str, name: str) -> str:
    """A name with what it is the name of, a column or a figure: the two may share one."""
    return f"{kind} {name}"


class _Parser:
    """Reads one expression, from the loosest operation to the tightest."""

    def __init__(self, text: str, asked: Asked) -> None:
        self.text, self._asked = text, asked
        self._tokens = list(self._cut())
        self._next = 0
        self._depth = 0

    def _refuse(self, at: int, why: str, remedy: str = "") -> NoReturn:
        refuse(self.text, at, why, remedy, self._asked)

    def _cut(self) -> Iterator[tuple[str, str, int]]:
        """Kind, text and place of each token; the last one is the end."""
        place, kind = 0, ""
        while kind != "end":
            found = _TOKEN.match(self.text, place)
            if found is None:
                start = place + len(self.text[place:]) - len(self.text[place:].lstrip())
                quote = self.text[start] in "'\""
                nothing = "this is no name, number, text or sign"
                self._refuse(start, "this quote is not closed" if quote else nothing)
            kind = str(found.lastgroup)
            word, at = found[kind], found.start(kind)
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            yield kind, _SAME.get(word, word), at
            place = found.end()

    def _taken(self, *words: str) -> str | None:
        """The next token, if it is one of these words or signs."""
        kind, word, _ = self._tokens[self._next]
        if kind in ("word", "sign") and word in words:
            self._next += 1
            return word
        return None

    def _require(self, sign: str, why: str) -> None:
        if self._taken(sign) is None:
            self._refuse(self._at, why)

    @property
    def _at(self) -> int:
        return self._tokens[self._next][2]

    def whole(self) -> Node:
        """The expression."""
        tree = self._either()
        kind, _, at = self._tokens[self._next]
        if kind != "end":
            chained = self._taken(*_COMPARING)
            why = "comparisons are joined by AND" if chained else "AND, OR or an end is expected"
            self._refuse(at, why)
        return tree

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(self._at, "it is nested too deeply", "Write it flatter.")
        node = self._joined("or", functools.partial(self._joined, "and", self._negated))
        self._depth -= 1
        return node

    def _joined(self, word: str, tighter: Callable[[], Node]) -> Node:
        """All that one word joins, as one node."""
        parts, at = [tighter()], self._at
        while self._taken(word):
            parts.append(tighter())
        return Node(word, at, parts=tuple(parts)) if len(parts) > 1 else parts[0]

    def _negated(self) -> Node:
        at, times = self._at, 0
        while self._taken("not"):
            times += 1
        node = self._compared()
        for _ in range(min(times, 2 - times % 2)):
            node = Node("not", at, parts=(node,))
        return node

    def _compared(self) -> Node:
        left, at = self._sum(), self._at
        sign = self._taken(*_COMPARING)
        if sign:
            return Node(sign, at, parts=(left, self._sum()))
        asks = self._taken("is")
        turned = self._taken("not")
        if asks:
            self._require("null", "NULL is expected after IS")
            node = Node("null", at, parts=(left,))
        elif self._taken("in"):
            equal = (Node("=", one.at, parts=(left, one)) for one in self._literals())
            node = Node("or", at, parts=tuple(equal))
        elif self._taken("between"):
            low = self._sum()
            self._require("and", "BETWEEN is followed by two values with AND between them")
            least = Node(">=", at, parts=(left, low))
            node = Node("and", at, parts=(least, Node("<=", at, parts=(left, self._sum()))))
        elif turned:
            self._refuse(self._at, "IN or BETWEEN is expected after NOT")
        else:
            return left
        return Node("not", at, parts=(node,)) if turned else node

    def _literals(self) -> tuple[Node, ...]:
        """The numbers or texts of an IN."""
        self._require("(", "IN is followed by values in parentheses")
        found: list[Node] = []
        while not found or self._taken(","):
            minus = self._taken("-")
            node = self._primary()
            if node.kind not in ("number", "text") or (minus and node.kind == "text"):
                self._refuse(node.at, "IN takes numbers or texts")
            found.append(Node("number", node.at, -node.value) if minus else node)
        self._require(")", "a comma or a closing parenthesis is expected")
        return tuple(found)

    def _sum(self, rank: int = 0) -> Node:
        """Operations of one rank, from left to right."""
        if rank == len(_RANKS):
            return self._signed()
        node, at = self._sum(rank + 1), self._at
        while sign := self._taken(*_RANKS[rank]):
            node, at = Node(sign, at, parts=(node, self._sum(rank + 1))), self._at
        return node

    def _signed(self) -> Node:
        at, times = self._at, 0
        while sign := self._taken("-", "+"):
            times += sign == "-"
        node = self._primary()
        return Node("negate", at, parts=(node,)) if times % 2 else node

    def _primary(self) -> Node:
        kind, word, at = self._tokens[self._next]
        self._next += kind != "end"
        if kind == "number":
            whole = word.isdecimal() and int(word) < _WHOLE
            return Node("number", at, int(word) if whole else float(word))
        if kind in ("text", "column"):  # a doubled quote is one
            return Node(kind, at, word[1:-1].replace(2 * word[0], word[0]))
        if kind == "name":
            if self._taken("("):
                return self._call(word, at)
            return Node("figure" if word in FIGURES else "column", at, word)
        if word in ("true", "false") and kind == "word":
            return Node("truth", at, word == "true")
        if word == "(":
            node = self._either()
            self._require(")", "a closing parenthesis is expected")
            return node
        null = word == "null" and kind == "word"
        why = "write IS NULL or IS NOT NULL" if null else "a value is expected"
        refuse(self.text, at, why, asked=self._asked)

    def _call(self, word: str, at: int) -> Node:
        name = word.lower()
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            self._refuse(at, f"there is no function {word}", f"There are {known}.")
        values = [self._either()]
        while self._taken(","):
            values.append(self._either())
        self._require(")", "a comma or a closing parenthesis is expected")
        wanted = FUNCTIONS[name]
        if wanted not in (None, len(values)):
            self._refuse(at, f"{name} takes {wanted} value{'s' * (wanted != 1)}")
        return Node(name, at, parts=tuple(values))


@functools.lru_cache(maxsize=256)
def parse(text: str, asked: Asked = FILTER) -> Expression:
    """The expression of a text.

    Args:
        asked: the option that it is given to.

    Raises:
        UsageError: it is none; the message names the place.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"A {asked.option} has {len(text)} characters.", "Write a shorter one.")
    if not text.strip():
        example = f'For example {asked.option} "{asked.example}".'
        raise UsageError(f"{asked.option} is empty.", example)
    tree = _Parser(text, asked).whole()
    every = list(tree.walk())
    columns = dict.fromkeys(str(one.value) for one in every if one.kind == "column")
    figures = dict.fromkeys(str(one.value) for one in every if one.kind == "figure")
    if not columns and not figures:
        refuse(text, 0, "it reads no column and no figure", asked.names, asked)
    asking = [below for one in every if one.kind in ("null", "coalesce") for below in one.walk()]
    expected = frozenset(str(one.value) for one in asking if one.kind in ("column", "figure"))
    return Expression(text, tree, tuple(columns), tuple(figures), expected, asked)
