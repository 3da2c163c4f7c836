"""A Jinja environment in which a hostile chat template can do no harm.

Jinja's own sandbox keeps a template away from the interpreter. This one also limits its work:
every loop pass, call, filter, join and arithmetic operation is charged to a budget, by the size of
its operands; each rendering starts with the whole budget. No clock is involved, so the same
template and row are refused or rendered alike on every machine.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, modifies_known_mutable
from jinja2.utils import Namespace

from stages.chat_template import costs

BUDGET = 1 << 24  # units that one rendering may spend; copying 16 characters costs one
COMPILING = 1 << 16  # the same for what is constant, which Jinja works out beforehand
_LONGEST_CODE = 1 << 22  # characters of the Python code of a template
STEP, PASS, SUM, CALL = 16, 16, 32, 256  # units of a look-up, a loop pass, arithmetic, a call
DIGITS = 1 << 12  # bits of a number

# What chat templates use; Jinja's other filters are slow, random or of no use in a prompt.
_FILTERS = (
    "abs attr batch capitalize center count d default dictsort e escape first float format "
    "groupby indent int items join last length list lower map max min reject rejectattr "
    "replace reverse round safe select selectattr slice sort string sum title tojson trim truncate "
    "unique upper wordcount"
).split()
_FREE_TESTS = (
    "boolean callable defined escaped false float integer iterable mapping none number sameas "
    "sequence string true undefined"
).split()
_GLOBALS = "cycler dict joiner namespace range".split()
_BARRED: tuple[type[nodes.Node], ...] = (nodes.Include, nodes.Import, nodes.FromImport)
_BARRED += (nodes.Extends, nodes.Block, nodes.EvalContextModifier)
_OPENING = (nodes.AssignBlock, nodes.CallBlock, nodes.For, nodes.Macro)  # as long as 64 others
_SUMS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_DICT = frozenset(dir(dict))
Function: TypeAlias = Callable[..., Any]


def _weight(node: nodes.Node) -> int:
    """Units of running a piece of a template once, apart from what is charged while it runs."""
    return sum(64 if isinstance(one, _OPENING) else 1 for one in node.find_all(nodes.Node))


class Generator(CodeGenerator):
    """Adds calls that charge the budget to the generated code, where Jinja has no hook for them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bodies: dict[int, int] = {}

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        """Every pass is charged, also those that the loop's own condition skips."""
        weight = self._bodies[id(node.body)] = PASS + _weight(node)
        if node.test is not None:
            tick = nodes.EnvironmentAttribute("tick")
            called = nodes.Call(tick, [nodes.Const(weight)], [], None, None)
            node.test = nodes.Or(called, node.test)
        super().visit_For(node, frame)

    def macro_body(self, node: nodes.Macro | nodes.CallBlock, frame: Frame) -> Any:
        """Every call of a macro is charged as a pass is."""
        self._bodies[id(node.body)] = PASS + _weight(node)
        return super().macro_body(node, frame)

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """The body of a loop or a macro begins with its charge."""
        if id(nodes) in self._bodies:
            self.writeline(f"environment.tick({self._bodies[id(nodes)]})")
        super().blockvisit(nodes, frame)

    def signature(self, node: Any, *args: Any, **kwargs: Any) -> None:
        """Elements do not become arguments: a long text has as many as characters."""
        if node.dyn_args is not None:
            raise SecurityError("it unpacks a value into arguments")
        super().signature(node, *args, **kwargs)

    _default_finalize = staticmethod(costs.printed)  # of what is constant

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        """What is printed becomes a text."""
        self.write("environment.text(")

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> None:
        """New lists, dicts and tuples are measured, and so are slices, which are copies."""
        sliced = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        made = isinstance(node, (nodes.List, nodes.Dict, nodes.Tuple))
        if not (sliced or (made and getattr(node, "ctx", "load") == "load")):
            super().visit(node, *args, **kwargs)
            return
        self.write(f"environment.{'sliced' if sliced else 'charged'}(")
        super().visit(node, *args, **kwargs)
        self.write(")")

    def _within(self, name: str, node: nodes.Node, frame: Frame) -> None:
        self.write(f"environment.{name}(")
        self.visit(node, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """``a ~ b`` is joined by the environment."""
        self.write("environment.concat((")
        for part in node.nodes:
            self._within("text", part, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        """What is looked up in a dict is hashed in full, so it is charged."""
        self.write("(")
        if node.ops[0].op in ("in", "notin"):
            self._within("compared", node.expr, frame)
        else:
            self.visit(node.expr, frame)
        for operand in node.ops:
            self.visit(operand, frame)
        self.write(")")

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:  # noqa: N802
        """The right side of a comparison is searched or compared in full, so it is charged."""
        self.write(f" {operators[node.op]} ")
        name = "searched" if node.op in ("in", "notin") else "compared"
        self._within(name, node.expr, frame)


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
        filters: Any = self.filters
        self.filters = {name: self._charged(name, filters[name]) for name in _FILTERS}
        tests: Any = self.tests
        self.tests = {
            name: test if name in _FREE_TESTS else self._charged(name, test)
            for name, test in tests.items()
        }

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

        @functools.wraps(function)
        def charged(*args: Any, **kwargs: Any) -> Any:
            head, values = args[:passed], args[passed:]
            if name in costs.WALKING:
                values = costs.settled(values)
            every = values
            if kwargs:  # whose order is unknown: the text to search for may be one that is all over
                every = (values[0], "", *values[1:], *kwargs.values())
            self.spend(CALL + (costs.cost(name, every) >> 4))
            return self.charged(function(*head, *values, **kwargs))

        return charged

    def concat(self, pieces: Iterable[str]) -> str:
        """Join texts that are printed, captured or concatenated, and charge for it."""
        texts = list(pieces)
        self.spend(len(texts) + (costs.checked(sum(map(str.__len__, texts))) >> 4))
        return self.joined(texts)

    def text(self, value: Any) -> str:
        """What is printed of a value; a text costs nothing until it is joined to others."""
        if not isinstance(value, str):
            self.spend(1 + (costs.size(value) >> 4))
        return str(value)

    def charged(self, value: Any) -> Any:
        """Measure a new value and charge for it."""
        if isinstance(value, str):
            self.left -= str.__len__(value) >> 4  # the next charge raises if this was too much
            costs.checked(str.__len__(value))
        elif isinstance(value, (list, tuple, dict)):
            self.spend(costs.size(value) >> 4)
        elif isinstance(value, int) and value.bit_length() > DIGITS:
            raise SecurityError("a number grows too large")
        return value

    def compared(self, value: Any) -> Any:
        """Charge for a value that is walked through."""
        self.left -= costs.weight(value) >> 4
        return value

    def searched(self, value: Any) -> Any:
        """Charge for a value that is searched; looking a key up in a dict costs little."""
        (value,) = costs.settled((value,))
        self.spend(1 if isinstance(value, dict) else costs.size(value) >> 3)
        return value

    def sliced(self, value: Any) -> Any:
        """Charge for a copy."""
        self.spend(1 + (costs.length(value) >> 4))
        return value

    def tick(self, weight: int) -> str:
        """Charge for a loop pass, or for a macro's body."""
        self.spend(weight)
        return ""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Charged; a key of a dict is not looked for among Python's attributes first."""
        self.left -= STEP
        if type(obj) is dict and attribute not in _DICT:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Charged, by the size of a key that may have to be hashed."""
        self.left -= STEP
        if not isinstance(argument, str):
            self.spend(costs.weight(argument) >> 4)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether templates may use an attribute: of values, only those that ``costs`` lists."""
        if isinstance(obj, (Namespace, LoopContext)):
            return super().is_safe_attribute(obj, attr, value)
        return any(isinstance(obj, kind) and attr in names for kind, names in costs.ATTRIBUTES)

    def wrap_str_format(self, value: Any) -> Any:
        """Jinja's safe ``format`` for the one of a text, which has no ``format_map``."""
        return (
            super().wrap_str_format(value) if getattr(value, "__name__", "") == "format" else None
        )

    def call_binop(self, context: Context, op: str, left: Any, right: Any) -> Any:
        """Arithmetic; the size of the result is bounded before it is computed."""
        amount = costs.length(left) + costs.length(right)
        if isinstance(left, int) and isinstance(right, int):
            bits, more = left.bit_length(), right.bit_length()
            if (bits * abs(right) if op == "**" else bits + more) > DIGITS:
                raise SecurityError("a number grows too large")
        elif op == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, int) and not isinstance(other, (int, float)):
                    amount += costs.checked(max(one, 0) * costs.size(other))
        elif op == "%" and isinstance(left, str):
            amount += costs.grown(left, right if isinstance(right, tuple) else (right,))
        self.spend(SUM + (amount >> 4))
        return self.charged(_SUMS[op](left, right))

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls of methods, macros and globals."""
        macro = isinstance(function, Macro)
        args = args if macro else costs.settled(args)
        own = tuple(v for k, v in kwargs.items() if k[0] != "_" and not isinstance(v, Macro))
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(owner, (str, list, tuple)):
            amount = costs.cost(function.__name__, (owner, *args, *own), method=True)
        elif macro and not (function.catch_varargs or function.catch_kwargs):
            amount = sum(map(costs.length, args + own))
        elif isinstance(function, (type, LoopContext)):
            amount = sum(map(costs.length, args + own)) + sum(map(costs.colliding, args))
        else:
            amount = sum(map(costs.size, args + own))
        self.spend(CALL + (amount >> 4))
        return self.charged(super().call(context, function, *args, **kwargs))

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        """Raise at once where Jinja would give an undefined value."""
        what = f"{attribute!r} of a {type(obj).__name__}"
        if modifies_known_mutable(obj, attribute):
            raise SecurityError(f"it changes a value ({what}), which transformers refuses as well")
        raise SecurityError(f"it accesses {what}")

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> Any:
        for barred in source.find_all(_BARRED):
            kind = type(barred).__name__.lower()
            raise SecurityError(f"a chat template must be one file, without {kind}")
        self.left = COMPILING
        code = super()._generate(source, *args, **kwargs)
        if len(code) > _LONGEST_CODE:
            raise SecurityError("its code is too long")
        return code
