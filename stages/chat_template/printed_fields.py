"""Which fields of a turn a chat template can print, read off its syntax tree.

A template walks ``messages`` and prints some fields of each turn; other fields of a row are dropped
silently. The syntax tree shows which names can hold one turn and which can hold a list of turns.
Every attribute of such a name is a field that the template reads. A condition whose branch only
raises an exception prints nothing, so the fields in it do not count.
"""

import functools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from jinja2 import meta, nodes

from stages.chat_template import reasoning
from stages.chat_template.segments import Span
from stages.chat_template.template import SHORT, Template, parsed_tree
from stages.chat_template.trained_spans import Chat, Seen
from stages.contract import Message
from stages.errors import RowError

EVERY = "*"  # the template prints whole turns, so every field
_TURN, _TURNS = "turn", "turns"
_ONE_OF = ("first", "last", "random", "min", "max")
_SAME = ("list", "reverse", "sort", "selectattr", "rejectattr", "select", "reject", "default", "d")
_NEIGHBOURS = ("previtem", "nextitem")
_METHODS = ("get", "items", "keys", "values", "pop", "update", "copy")


class _Reader:
    """Follows turns through the names of a template."""

    def __init__(self, tree: nodes.Template) -> None:
        self._tree = tree
        self._kinds_of: defaultdict[str, set[str]] = defaultdict(set, messages={_TURNS})
        self._constants: defaultdict[str, set[str]] = defaultdict(set)
        self._macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
        self.fields: set[str] = set()

    def run(self) -> frozenset[str]:
        # A loop can use a name before the assignment that gives it a turn: repeat until no name is
        # added.
        size = -1
        while size != (size := self._size()):
            self._bind()
        for node in self._tree.body:
            self._visit(node)
        return frozenset(self.fields)

    def _size(self) -> int:
        return sum(map(len, (*self._kinds_of.values(), *self._constants.values())))

    # -- which names hold turns -------------------------------------------------------------

    def _bind(self) -> None:
        for assign in self._tree.find_all(nodes.Assign):
            self._assign(assign.target, assign.node)
        for loop in self._tree.find_all(nodes.For):
            self._loop(loop)
        for call in self._tree.find_all(nodes.Call):
            self._call(call)

    def _assign(self, target: nodes.Node, value: nodes.Node) -> None:
        if isinstance(target, nodes.Tuple) and isinstance(value, nodes.Tuple | nodes.List):
            for one, other in zip(target.items, value.items, strict=False):
                self._assign(one, other)
            return
        name = _name_of(target)
        if name is None:
            return
        self._kinds_of[name] |= self._kinds(value)
        if isinstance(value, nodes.Const) and isinstance(value.value, str):
            self._constants[name].add(value.value)
        if isinstance(value, nodes.Call) and _name_of(value.node) == "namespace":
            for keyword in value.kwargs:
                self._kinds_of[f"{name}.{keyword.key}"] |= self._kinds(keyword.value)

    def _loop(self, node: nodes.For) -> None:
        name = _name_of(node.target)
        if _TURNS in self._kinds(node.iter):
            self._kinds_of["loop"].add("loop")
            if name is not None:
                self._kinds_of[name].add(_TURN)
        if name is not None and isinstance(node.iter, nodes.List | nodes.Tuple):
            texts = {i.value for i in node.iter.items if isinstance(i, nodes.Const)}
            self._constants[name].update(map(str, texts))

    def _call(self, node: nodes.Call) -> None:
        macro = self._macros.get(_name_of(node.node) or "")
        if macro is None:
            return
        arguments = [*zip(macro.args, node.args, strict=False)]
        named = {argument.name: argument for argument in macro.args}
        arguments += [(named[k.key], k.value) for k in node.kwargs if k.key in named]
        for argument, value in arguments:
            self._assign(argument, value)

    def _kinds(self, node: nodes.Node | None) -> set[str]:
        """What an expression can hold: a turn, several turns, or neither."""
        if isinstance(node, nodes.Name | nodes.NSRef):
            return self._kinds_of.get(_name_of(node) or "", set())
        if isinstance(node, nodes.CondExpr):
            return self._kinds(node.expr1) | self._kinds(node.expr2)
        if isinstance(node, nodes.Or | nodes.And | nodes.Add):
            return self._kinds(node.left) | self._kinds(node.right)
        if isinstance(node, nodes.List | nodes.Tuple):
            inside = set().union(*map(self._kinds, node.items)) if node.items else set()
            return {_TURNS} if inside else set()
        if isinstance(node, nodes.Filter):
            return self._taken(node.node, same=node.name in _SAME, one=node.name in _ONE_OF)
        if isinstance(node, nodes.Getitem):
            sliced = isinstance(node.arg, nodes.Slice)
            return self._taken(node.node, same=sliced, one=not sliced)
        if isinstance(node, nodes.Getattr):
            attribute_kinds = self._kinds_of.get(f"{_name_of(node.node)}.{node.attr}", set())
            walks = "loop" in self._kinds(node.node) and node.attr in _NEIGHBOURS
            return attribute_kinds | ({_TURN} if walks else set())
        return set()

    def _taken(self, node: nodes.Node | None, same: bool, one: bool) -> set[str]:
        """What is taken of an expression: the same, one of its items, or something else."""
        kinds = self._kinds(node)
        if same:
            return kinds
        return {_TURN} if one and _TURNS in kinds else set()

    # -- which of their fields are read ------------------------------------------------------

    def _visit(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.If):
            if not _only_refuses(node.body):
                self._visit(node.test)
            for child in (*node.body, *node.elif_, *node.else_):
                self._visit(child)
            return
        printed: list[nodes.Expr | None] = []
        if isinstance(node, nodes.Output | nodes.Concat):
            printed += node.nodes
        elif isinstance(node, nodes.Filter) and node.name == "tojson":
            printed.append(node.node)
        if any(self._kinds(child) & {_TURN, _TURNS} for child in printed):
            self.fields.add(EVERY)
        self._asked(node)
        for child in node.iter_child_nodes():
            self._visit(child)

    def _asked(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Getattr) and _TURN in self._kinds(node.node):
            if node.attr not in _METHODS:
                self.fields.add(node.attr)
            elif node.attr in ("items", "values"):
                self.fields.add(EVERY)
        elif isinstance(node, nodes.Getitem) and _TURN in self._kinds(node.node):
            self.fields.update(self._keys(node.arg))
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            got = node.node.attr in ("get", "pop") and node.args
            if got and _TURN in self._kinds(node.node.node):
                self.fields.update(self._keys(node.args[0]))
        elif isinstance(node, nodes.Filter) and node.name in ("map", "attr"):
            self._mapped(node)

    def _mapped(self, node: nodes.Filter) -> None:
        if not self._kinds(node.node) & {_TURN, _TURNS}:
            return
        for keyword in node.kwargs:
            if keyword.key == "attribute":
                self.fields.update(self._keys(keyword.value))
        if node.name == "attr" and node.args:
            self.fields.update(self._keys(node.args[0]))

    def _keys(self, node: nodes.Node) -> set[str]:
        """The texts that an expression can be; ``EVERY`` where that is unknown."""
        if isinstance(node, nodes.Const):
            return {node.value} if isinstance(node.value, str) else set()
        return self._constants.get(_name_of(node) or "", {EVERY})


def _name_of(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.NSRef):
        return f"{node.name}.{node.attr}"
    return node.name if isinstance(node, nodes.Name) else None


def _only_refuses(body: list[nodes.Node]) -> bool:
    """Whether statements only call ``raise_exception``."""
    printed = [one for node in body if isinstance(node, nodes.Output) for one in node.nodes]
    blank = [one for one in printed if isinstance(one, nodes.TemplateData) and not one.data.strip()]
    called = [_name_of(one.node) for one in printed if isinstance(one, nodes.Call)]
    refuses = set(called) == {"raise_exception"} and len(blank) + len(called) == len(printed)
    return refuses and all(isinstance(node, nodes.Output) for node in body)


@functools.lru_cache(maxsize=64)
def printed_fields(template_source: str) -> frozenset[str]:
    """The fields of a turn on which the printed text can depend.

    Returns:
        Names as the template spells them; with ``EVERY`` where it prints whole turns, or takes
        fields by names that are known only when it runs.

    Raises:
        ModelError: the source is not valid Jinja.
    """
    return _Reader(parsed_tree(template_source)).run()


@functools.lru_cache(maxsize=64)
def offers_tools(template_source: str) -> bool:
    """Whether the template reads the tools of a conversation."""
    return _TOOLS in meta.find_undeclared_variables(parsed_tree(template_source))


# Tools, tool calls and reasoning of a conversation must be printed by the template: without such a
# part, or with other reasoning, it must print another text.


_CALLS, _TOOLS = "tool_calls", "tools"
_FIELDS = (_CALLS, "reasoning_content", "reasoning", "thinking")
Part: TypeAlias = str | int  # a field of a turn; the tools; the number of one of several calls


def _parts(turn: Message) -> Iterator[Part]:
    """The parts of a turn that a template must print."""
    fields = turn.fields or {}
    yield from (name for name in _FIELDS if fields.get(name) and (turn.trained or name == _CALLS))
    calls = fields.get(_CALLS)
    yield from range(len(calls) if isinstance(calls, list) and len(calls) > 1 else 0)


class Printed:
    """Refuses conversations that a template prints in part; remembers the results of excerpts."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._seen: defaultdict[Part, dict[Hashable, bool | None]] = defaultdict(dict)

    def require(self, chat: Chat, text: str) -> None:
        """Refuse a conversation with tools or fields that do not change the printed text.

        Raises:
            RowError: the template drops the tools, a call, or the reasoning of a trained turn.
        """
        last = len(chat.turns) - 1
        tools_printed = not chat.tools or self._in_excerpt(chat, last, _TOOLS)
        if not tools_printed and self._template.render(chat.seen, None) == text:
            detail = (
                "the template does not print the tools; those of qwen2.5 and qwen3 do (--model)"
            )
            raise RowError(
                "lost_in_template", f"{detail}, or give one of your own (--chat-template)"
            )
        for i, turn in enumerate(chat.turns):
            for part in _parts(turn):
                if self._in_excerpt(chat, i, part):
                    continue
                chat.spend(len(chat.seen))
                if self._without(chat.seen, at=i, part=part, tools=chat.tools) == text:
                    named = f"call {part + 1}" if isinstance(part, int) else part
                    detail = f"the template does not print {named} of turn {i + 1}"
                    detail += "; see --reasoning-in think" if part in _FIELDS[1:] else ""
                    raise RowError("lost_in_template", detail)

    def require_texts(self, chat: Chat, text: str) -> None:
        """Refuse a conversation with a text of which nothing is printed.

        Each text gets marks at its ends; of one whose marks are missing, these alone are tried.

        Raises:
            RowError: the template drops a turn.
        """
        rim = "\ue000"
        while rim in text:
            rim += rim
        marks = {i: f"{rim}{i}\ue001" for i, turn in enumerate(chat.seen) if turn.get("content")}
        marked = chat.seen.copy()
        for i, mark in marks.items():
            marked[i] = {**marked[i], "content": f"{mark}{marked[i]['content']}{mark}"}
        printed = self._rendered(marked, chat.tools) or ""
        for i in (i for i, mark in marks.items() if mark not in printed):
            chat.spend(len(chat.seen))
            alone = [*chat.seen[:i], marked[i], *chat.seen[i + 1 :]]
            if self._rendered(alone, chat.tools) == text:
                raise RowError("lost_in_template", f"the template drops turn {i + 1}")

    def _in_excerpt(self, chat: Chat, index: int, part: Part) -> bool:
        """Whether an excerpt of a long conversation shows that a part of it is printed."""

        def shows(picked: list[int]) -> bool:
            seen = [chat.seen[i] for i in picked]
            text = self._template.render(seen, chat.tools)
            return self._without(seen, picked.index(index), part, chat.tools) != text

        if len(chat.turns) <= SHORT:
            return False
        return bool(chat.in_excerpt(index, self._seen[part], shows)[1])

    def _without(self, seen: Seen, at: int, part: Part, tools: list[Any] | None) -> str | None:
        if part == _TOOLS:
            return self._template.render(seen, None)
        turn = seen[at]
        if isinstance(part, int):
            changed = {**turn, _CALLS: [c for i, c in enumerate(turn[_CALLS]) if i != part]}
        elif part != _CALLS and isinstance(turn[part], str):  # a template may note that it is there
            changed = {**turn, part: f"{turn[part]}\ue000"}
        else:
            changed = {key: value for key, value in turn.items() if key != part}
        return self._rendered([*seen[:at], changed, *seen[at + 1 :]], tools)

    def _rendered(self, seen: Seen, tools: list[Any] | None) -> str | None:
        """What is printed of a changed conversation; None where the template refuses the change."""
        try:
            return self._template.render(seen, tools)
        except RowError:
            return None


def require_reasoning(
    turns: Sequence[Message], text: str, spans: Sequence[Span], ends: Sequence[str], train_all: bool
) -> None:
    """Refuse a trained answer with reasoning in its content of which the template drops a part.

    Many templates look for ``</think>`` in an answer: some move the blanks around it, some print
    only what follows it. So texts are compared without blanks.

    Raises:
        RowError: ``lost_in_template``; ``unclosed_reasoning``: see ``reasoning.length``.
    """
    answers = [i for i, turn in enumerate(turns) if turn.role == "assistant" and turn.trained]
    whole = None
    for i, (begin, stop) in zip(answers, spans, strict=not train_all):
        content = turns[i].content or ""
        if reasoning.CLOSE not in content:
            continue
        if train_all:
            whole = where = _squeezed(text) if whole is None else whole
        else:
            # What the prompt opens an answer with, <think> for instance, is not in its span.
            before = max(0, *(text.rfind(end, 0, begin) for end in ends))
            where = _squeezed(text[before:stop])
        if _squeezed(content) not in where:
            detail = f"the template drops a part of turn {i + 1}, which holds {reasoning.CLOSE}; "
            detail += "use a --chat-template that prints it, or --reasoning strip"
            raise RowError("lost_in_template", detail)
        if _squeezed(reasoning.OPEN + content) in where:
            reasoning.length(content)  # the template takes its beginning for reasoning


def _squeezed(text: str) -> str:
    return "".join(text.split())
