"""A tree of steps with a value each, as searches write it: one chain for each path to a leaf.

A node holds its own step (``text``, ``step``), or all steps up to it (``prefix``, ``state``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.formats import _steps

_TREES = ("tree", "root", "search_tree", "prefix_tree", "mcts_tree", "step_tree")
_CHILDREN = ("children", "branches", "nodes", "next_steps")
_OWN = ("text", "step", "content", "thought", "action")
_WHOLE = ("prefix", "partial_solution", "state")
_VALUES = (
    "value",
    "mc_value",
    "q_value",
    "soft_label",
    "score",
    "reward",
    "rating",
    "label",
    "correctness",
)

_Step = tuple[str, float | None]


def _key(node: Row, names: tuple[str, ...], kind: type) -> str | None:
    return next((name for name in names if isinstance(dict.get(node, name), kind)), None)


def _value_key(node: Any) -> str | None:
    return next((name for name in _VALUES if name in node), None)


def _has_values(node: Any) -> bool:
    if not isinstance(node, dict) or _key(node, (*_OWN, *_WHOLE), str) is None:
        return False
    return _value_key(node) is not None


def _column(row: Row) -> str | None:
    """The column with the first node."""
    for name in _TREES:
        node = dict.get(row, name)
        if not isinstance(node, dict):
            continue
        children = _key(node, _CHILDREN, list)
        if children and any(map(_has_values, dict.get(node, children) or [])):
            return name
    return None


def _own(node: Row, before: str) -> tuple[str, str]:
    """A node's own step, and the text up to its end.

    Raises:
        RowError: it has no text, or one that does not begin with the text before.
    """
    if name := _key(node, _WHOLE, str):
        whole = node[name]
        if not whole.startswith(before):
            raise RowError(
                "not_cumulative", f"{whole[:40]!r} does not begin with what is before it"
            )
        return whole[len(before) :], whole
    name = _key(node, _OWN, str)
    if name is None:
        raise RowError("bad_column", "a node of the tree has no text")
    return node[name], before


def _paths(node: Row, steps: list[_Step], before: str) -> list[list[_Step]]:
    """The steps of each path from below a node to a leaf."""
    name = _key(node, _CHILDREN, list)
    children = node[name] if name else []
    if not children:
        return [steps] if steps else []
    found = []
    for child in children:
        if not isinstance(child, dict):
            raise RowError("bad_column", "a child of a node is no object")
        text, whole = _own(child, before)
        key = _value_key(child)
        value = _steps.rating(child[key], f"the {key} of {text[:30]!r}") if key else None
        found += _paths(child, [*steps, (text, value)], whole)
    return found


class _StepTree:
    name = "step_tree"
    tasks = ("prm",)
    fans_out = True
    columns: Columns = {"tree": _TREES, **_steps.PROBLEM}
    prompts: Sequence[str] = _steps.PROBLEMS

    def matches(self, row: Row) -> str | None:
        name = _column(row)
        return f"{name} of steps with a value each" if name else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        name = _column(row)
        if name is None:
            raise RowError("bad_column", "there is no tree of steps with a value each")
        node = row[name]
        asked, first, before = self._root(row, node, options)
        found = _paths(node, first, before)
        return [StepChain(asked, [t for t, _ in path], [v for _, v in path]) for path in found]

    def _root(self, row: Row, node: Row, options: FormatOptions) -> tuple[str, list[_Step], str]:
        """The problem, the step that the first node is, and the text up to its end.

        The first node is the problem, or nothing yet, or a step like the others.
        """
        named = any(dict.get(row, name) is not None for name in _steps.PROBLEMS)
        key = _key(node, (*_OWN, *_WHOLE), str)
        text = node[key] if key else ""
        if not named:
            if not text.strip():
                raise RowError("no_problem", "nothing says what the problem is")
            _steps.require_alone(row, options)
            return text, [], text if key in _WHOLE else ""
        asked = _steps.problem(row, options)
        if not text.strip() or text.strip() == asked.strip():
            return asked, [], text if key in _WHOLE else ""
        value = _value_key(node)
        rating = _steps.rating(node[value], f"the {value} of the first node") if value else None
        return asked, [(text, rating)], text if key in _WHOLE else ""


FORMAT = _StepTree()
