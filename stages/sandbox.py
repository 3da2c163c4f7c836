"""A Jinja environment in which a hostile chat template can do no harm.

Jinja's own sandbox keeps a template from the interpreter. This one also bounds what it may spend:
every loop pass, call, filter, join and sum is charged to a budget that each rendering starts anew,
by the size of what it touches. Nothing here looks at a clock, so that the same template and row are
refused or rendered alike on every machine.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

BUDGET = 1 << 24  # what one rendering may spend; a unit is about what 16 characters cost
LARGEST = 1 << 24  # characters of one value
ELEMENT = 64  # what an element of a list counts as, in characters
PASS, SUM, CALL = 16, 32, 256  # of a loop pass, of arithmetic, of a call or filter; see BUDGET
_TAKES_WIDTHS = re.compile(r"\*|\{[^{}]*\{")  # from its arguments
DIGITS = 1 << 12  # bits of a number
WIDEST = 1000  # numbers given to filters and methods: widths, counts, indents

# What chat templates use; the rest of Jinja's is slow, random or of no use in a prompt.
_FILTERS = (
    "abs attr batch capitalize center count d default dictsort e escape first float format "
    "groupby indent int items join last length list lower map max min reject rejectattr "
    "replace reverse round safe select selectattr slice sort string title tojson trim truncate "
    "unique upper wordcount"
).split()
_TESTS = "in eq equalto == ne != lt lessthan < le <= gt greaterthan > ge >=".split()
_GLOBALS = "cycler dict joiner range".split()
_BARRED = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
_DEEP = {"tojson", "string", "join", "format", *_TESTS}  # these walk through all that a value holds
_METHODS = {"expandtabs", "format_map", "maketrans", "translate"}
_SUMS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_WIDE = set("batch center indent ljust rjust round slice tojson truncate zfill".split())
_GROWING = {"replace", "join", "indent", "format"}
Function: TypeAlias = Callable[..., Any]


def size(value: Any) -> int:
    """Characters of a value and ``ELEMENT`` for each element, shared ones counted each time.

    Raises:
        SecurityError: more than ``LARGEST``.
    """
    if isinstance(value, str):
        return str.__len__(value)
    total = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        total += ELEMENT
        if isinstance(item, str):
            total += str.__len__(item)
        elif isinstance(item, Mapping):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting += item
        if total > LARGEST:
            raise SecurityError("a value grows too large")
    return total


def _length(value: Any) -> int:
    """The same for a value that is not walked through."""
    if isinstance(value, str):
        return str.__len__(value)
    return ELEMENT * (len(value) if isinstance(value, (list, tuple)) else 1)


def _narrow(name: str, values: Sequence[Any]) -> None:
    """What a function takes as a width, a count or an indent is small.

    Raises:
        SecurityError: it is not.
    """
    formats = name in ("format", "%") and isinstance(values[0], str)
    if formats:
        plain_format(values[0])
    if name not in _WIDE and not (formats and _TAKES_WIDTHS.search(values[0])):
        return
    for value in values[1:]:
        if isinstance(value, int) and abs(value) > WIDEST:
            raise SecurityError(f"{value} is not a width or count for a text")


def _grown(name: str, values: tuple[Any, ...], method: bool = False) -> int:
    """At most how long a result can be that is longer than what it is made from; else 0."""
    first, rest = values[0], values[1:]
    texts = [_length(value) for value in rest]
    if name == "replace" and len(rest) > 1 and isinstance(first, str):
        occurrences = str.count(first, str(rest[0])) if isinstance(rest[0], str) else 0
        return _length(first) + occurrences * texts[1]
    if name == "join" and rest:
        glue, pieces = (first, rest[0]) if method else (rest[0], first)
        return _length(glue) * _length(pieces) + size(pieces)
    if name == "indent":
        lines = str.count(first, "\n") + 1 if isinstance(first, str) else 1
        return lines * (rest[0] if rest and isinstance(rest[0], int) else 4 + sum(texts))
    if name in ("format", "%") and isinstance(first, str):
        fields = str.count(first, "{") + str.count(first, "%")
        return _length(first) + fields * (WIDEST + size(list(rest)))
    return 0


class _Namespace(Namespace):
    """Does not print what it holds, which may hold it."""

    def __repr__(self) -> str:
        return "<namespace>"


class Generator(CodeGenerator):
    """Writes charges into the template's code where Jinja has no hook for them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bodies: set[int] = set()

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        """Every pass is charged, those that a loop's own condition skips too."""
        self._bodies.add(id(node.body))
        if node.test is not None:
            tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
            node.test = nodes.Or(tick, node.test)
        super().visit_For(node, frame)

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """A loop's body begins with the charge."""
        if id(nodes) in self._bodies:
            self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def _within(self, name: str, visit: Callable[[], None]) -> None:
        self.write(f"environment.{name}(")
        visit()
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """``a ~ b``, by the environment's own join."""
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("str(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        """Lists in lists are measured as they are made."""
        self._within("charged", lambda: super(Generator, self).visit_List(node, frame))

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """So are dicts."""
        self._within("charged", lambda: super(Generator, self).visit_Dict(node, frame))

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        """And tuples, but for those that are assigned to."""
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
        else:
            self._within("charged", lambda: super(Generator, self).visit_Tuple(node, frame))

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:  # noqa: N802
        """The right side of a comparison is what is searched or walked through."""
        self.write(f" {operators[node.op]} ")
        name = "searched" if node.op in ("in", "notin") else "compared"
        self._within(name, lambda: self.visit(node.expr, frame))

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """Slices copy."""
        if isinstance(node.arg, nodes.Slice):
            self._within("sliced", lambda: super(Generator, self).visit_Getitem(node, frame))
        else:
            super().visit_Getitem(node, frame)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja in which nothing is reached, nothing is random, and everything is bounded.

    Raises:
        SecurityError: from compiling or rendering, when a template oversteps.
    """

    code_generator_class = Generator
    intercepted_binops = frozenset(_SUMS)
    joined: Callable[[Iterable[str]], str] = staticmethod("".join)  # of texts that are small enough

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.left = BUDGET
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        self.globals["namespace"] = _Namespace
        known: Any = self.filters
        self.filters = {name: self._charged(name, known[name]) for name in _FILTERS}
        tests: Any = self.tests
        self.tests.update({name: self._charged(name, tests[name]) for name in _TESTS})

    def add_filter(self, name: str, function: Function) -> None:
        """Register a filter, charged like the others."""
        self.filters[name] = self._charged(name, function)

    def spend(self, amount: int) -> None:
        """Charge an amount.

        Raises:
            SecurityError: there is not so much left.
        """
        self.left -= amount
        if self.left < 0:
            raise SecurityError("it loops or grows without end")

    def _charged(self, name: str, function: Function) -> Function:
        passed = int(hasattr(function, "jinja_pass_arg"))
        measure = size if name in _DEEP else _length
        growing = name in _GROWING

        def charged(*args: Any, **kwargs: Any) -> Any:
            head, values = args[:passed], args[passed:]
            if values and hasattr(values[0], "__next__"):
                values = (list(values[0]), *values[1:])
            every = (*values, *kwargs.values()) if kwargs else values
            if every:
                _narrow(name, every)
            most = sum(map(measure, every)) + (_grown(name, every) if growing else 0)
            self.spend(CALL + (_checked(most) >> 4))
            return self.charged(function(*head, *values, **kwargs))

        return _like(function, charged)

    def concat(self, pieces: Iterable[str]) -> str:
        """Join what is printed, captured or concatenated."""
        texts = list(pieces)
        self.spend(len(texts) + (_checked(sum(map(str.__len__, texts))) >> 4))
        return self.joined(texts)

    def charged(self, value: Any) -> Any:
        """Measure a new value and charge for it."""
        if isinstance(value, str):
            self.left -= str.__len__(value) >> 4  # the next charge notices
        elif value is not None and not isinstance(value, bool):
            self.spend(size(value) >> 4)
        return value

    compared = charged

    def searched(self, value: Any) -> Any:
        """Charge for a value that is looked through; a dict is not."""
        self.spend(1 if isinstance(value, dict) else size(value) >> 4)
        return value

    def sliced(self, value: Any) -> Any:
        """Charge for a copy."""
        self.spend(1 + (_length(value) >> 4))
        return value

    def tick(self) -> str:
        """Charge for a loop pass."""
        self.spend(PASS)
        return ""

    def call_binop(self, context: Context, op: str, left: Any, right: Any) -> Any:
        """Arithmetic, with what it would make measured first."""
        if isinstance(left, int) and isinstance(right, int):
            bits, more = left.bit_length(), right.bit_length()
            if (bits * abs(right) if op == "**" else bits + more) > DIGITS:
                raise SecurityError("a number grows too large")
        elif op == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, int) and not isinstance(other, (int, float)):
                    _checked(max(one, 0) * size(other))
        elif op == "%" and isinstance(left, str):
            _narrow("%", (left, *(right if isinstance(right, tuple) else (right,))))
            _checked(_grown("%", (left, right)))
        self.spend(SUM + ((_length(left) + _length(right)) >> 4))
        return self.charged(_SUMS[op](left, right))

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls of methods, macros and globals."""
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        name = getattr(function, "__name__", "")
        arguments: tuple[Any, ...] = args
        if kwargs:  # Jinja adds some of its own
            arguments += tuple(value for key, value in kwargs.items() if not key.startswith("_"))
        amount = sum(map(_length, arguments))
        if isinstance(owner, str):
            if name in _METHODS:
                raise SecurityError(f"texts have no {name} in a template")
            _narrow(name, (owner, *arguments))
            amount += _length(owner)
            if name in _GROWING:
                amount += _grown(name, (owner, *arguments), method=True)
        self.spend(CALL + (_checked(amount) >> 4))
        return self.charged(super().call(context, function, *args, **kwargs))

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        """What Jinja would answer with nothing is refused at once."""
        raise SecurityError(f"it accesses {attribute!r} of a {type(obj).__name__}")

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> Any:
        for barred in source.find_all(_BARRED):
            kind = type(barred).__name__.lower()
            raise SecurityError(f"a chat template must be one file, without {kind}")
        return super()._generate(source, *args, **kwargs)


def _checked(amount: int) -> int:
    if amount > LARGEST:
        raise SecurityError("a text grows too large")
    return amount


def plain_format(text: str) -> None:
    """Widths of a format are written small, and not taken from elsewhere."""
    run = 0
    for character in text:
        run = run + 1 if character.isdecimal() else 0
        if run > 3:
            raise SecurityError("a format pads to a width of four digits or more")


def _like(function: Function, wrapper: Function) -> Function:
    """The wrapper, passed what Jinja passes the function."""
    wrapper.__name__ = getattr(function, "__name__", "filter")
    passing = getattr(function, "jinja_pass_arg", None)
    if passing is not None:
        wrapper.jinja_pass_arg = passing  # type: ignore[attr-defined]
    return wrapper
