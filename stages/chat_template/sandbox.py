"""A Jinja environment in which a hostile chat template can do no harm.

Jinja's own sandbox keeps a template away from the interpreter. This one also limits its work:
every loop pass, call, filter, join and arithmetic operation is charged to a budget, by the size of
its operands; each rendering starts with the whole budget. No clock is involved, so the same
template and row are refused or rendered alike on every machine.
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

BUDGET = 1 << 24  # units that one rendering may spend; copying 16 characters costs one
LARGEST = 1 << 24  # characters of one value
ELEMENT = 64  # what an element of a list counts as, in characters
PASS, SUM, CALL = 16, 32, 256  # units of a loop pass, of arithmetic, of a call or filter
_TAKES_WIDTHS = re.compile(r"\*|\{[^{}]*\{")  # a format that takes a width from its arguments
DIGITS = 1 << 12  # bits of a number
WIDEST = 1000  # largest number given to filters and methods as width, count or indent

# What chat templates use; Jinja's other filters are slow, random or of no use in a prompt.
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
    """Roughly the same without walking through nested values, for operations that do not either."""
    if isinstance(value, str):
        return str.__len__(value)
    return ELEMENT * (len(value) if isinstance(value, (list, tuple)) else 1)


def _narrow(name: str, values: Sequence[Any]) -> None:
    """Refuse large numbers as a width, a count or an indent.

    Raises:
        SecurityError: one is above ``WIDEST``.
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
    """An upper bound on a result that may be longer than its arguments; 0 for other functions."""
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
    """A namespace that does not print its values: one may be the namespace itself."""

    def __repr__(self) -> str:
        return "<namespace>"


class Generator(CodeGenerator):
    """Adds calls that charge the budget to the generated code, where Jinja has no hook for them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bodies: set[int] = set()

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        """Every pass is charged, also those that the loop's own condition skips."""
        self._bodies.add(id(node.body))
        if node.test is not None:
            tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
            node.test = nodes.Or(tick, node.test)
        super().visit_For(node, frame)

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """The body of a loop begins with the charge of the pass."""
        if id(nodes) in self._bodies:
            self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def _within(self, name: str, visit: Callable[[], None]) -> None:
        self.write(f"environment.{name}(")
        visit()
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """``a ~ b`` is joined by the environment."""
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("str(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        """New lists are measured; nested ones would otherwise grow without a charge."""
        self._within("charged", lambda: super(Generator, self).visit_List(node, frame))

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """New dicts are measured."""
        self._within("charged", lambda: super(Generator, self).visit_Dict(node, frame))

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        """New tuples are measured, but not those that are assigned to."""
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
        else:
            self._within("charged", lambda: super(Generator, self).visit_Tuple(node, frame))

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:  # noqa: N802
        """The right side of a comparison is searched or compared in full, so it is charged."""
        self.write(f" {operators[node.op]} ")
        name = "searched" if node.op in ("in", "notin") else "compared"
        self._within(name, lambda: self.visit(node.expr, frame))

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """A slice is a copy, so it is charged."""
        if isinstance(node.arg, nodes.Slice):
            self._within("sliced", lambda: super(Generator, self).visit_Getitem(node, frame))
        else:
            super().visit_Getitem(node, frame)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja without access to Python objects, without randomness, and with bounded work.

    Raises:
        SecurityError: from compiling or rendering, when a template exceeds a limit.
    """

    code_generator_class = Generator
    intercepted_binops = frozenset(_SUMS)
    joined: Callable[[Iterable[str]], str] = staticmethod("".join)  # after their size was checked

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
            SecurityError: more than what is left.
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
        """Join texts that are printed, captured or concatenated, and charge for it."""
        texts = list(pieces)
        self.spend(len(texts) + (_checked(sum(map(str.__len__, texts))) >> 4))
        return self.joined(texts)

    def charged(self, value: Any) -> Any:
        """Measure a new value and charge for it."""
        if isinstance(value, str):
            self.left -= str.__len__(value) >> 4  # the next charge raises if this was too much
        elif value is not None and not isinstance(value, bool):
            self.spend(size(value) >> 4)
        return value

    compared = charged

    def searched(self, value: Any) -> Any:
        """Charge for a value that is searched; looking a key up in a dict costs little."""
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
        """Arithmetic; the size of the result is bounded before it is computed."""
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
        """Raise at once where Jinja would give an undefined value."""
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
    """Refuse a format text with a number of four digits or more, which may be a width."""
    run = 0
    for character in text:
        run = run + 1 if character.isdecimal() else 0
        if run > 3:
            raise SecurityError("a format pads to a width of four digits or more")


def _like(function: Function, wrapper: Function) -> Function:
    """The wrapper, marked so that Jinja passes it what it passes the function."""
    wrapper.__name__ = getattr(function, "__name__", "filter")
    passing = getattr(function, "jinja_pass_arg", None)
    if passing is not None:
        wrapper.jinja_pass_arg = passing  # type: ignore[attr-defined]
    return wrapper
