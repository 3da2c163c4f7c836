"""Trees of steps, as searches and people who rate completions of each step write them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from stages.contract import Example, FormatOptions, Refused, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _fields, _rated_steps, _ratings, _turns
from stages.formats._fields import Field, columns_of, is_any
from stages.kinds import STEPS
from stages.rows import stop_text
from stages.rows.column_names import peek
from stages.rows.shapes import is_text

_CHILDREN = ("children", "branches", "nodes", "next_steps")
_NODE = columns_of("step_node")
_OWN = Field("text of a node", _NODE["text"], is_text, str.strip)
_WHOLE = Field("text of a node", _NODE["whole"], is_text)
_VALUE = Field("value of a node", _NODE["value"], is_any, _ratings.said)

Rated = tuple[str, float | None]


def _has_text(node: Row) -> bool:
    return bool(_OWN.first(node) or _WHOLE.first(node))


def _is_tree(node: Any) -> bool:
    """Whether a value is a node with others below it that have a text and a value."""
    known = _fields.below(node, _CHILDREN) if isinstance(node, dict) else ()
    return any(_has_text(child) and _VALUE.first(child) for child in known)


_TREE = Field("tree", columns_of("step_tree")["tree"], _is_tree)


class _Tree:
    """Reads one row's tree.

    Attributes:
        column: that holds it, for messages.
    """

    def __init__(self, column: str, label: _ratings.Label, options: FormatOptions) -> None:
        self.column, self._options, self._place = column, options, f"{column}.**."
        self._value = partial(_ratings.one_rating, of=_VALUE, label=label, before=self._place)

    def own(self, node: Row, before: str) -> tuple[str, str]:
        """A node's own step, and the text up to its end.

        Raises:
            RowError: it has no text, one that does not begin with the text before, or two that
                say different things.
        """
        own, whole = _OWN.of(node, before=self._place), _WHOLE.first(node)
        if whole is None:
            own = _fields.required(own, "a node of the tree has no text")
            return node[own], before
        text: str = node[whole]
        step = text.removeprefix(before)
        if own and node[own].strip() != step.strip():
            both = own, whole
            what = f"{own} and {whole} could each be the text of a node in {self.column}"
            ways = _fields.keeping_one([(own,), (whole,)], both, self._place)
            raise _fields.open_question(what, f"Say which with {ways}")
        if not text.startswith(before):
            detail = f"{text[:40]!r} does not begin with what is before it"
            raise RowError("not_cumulative", detail)
        return step, text

    def paths(self, node: Row, steps: list[Rated], before: str) -> Iterator[list[Rated]]:
        """The steps of each path from below a node to a leaf."""
        names = _fields.lists_of(node, _CHILDREN)
        if len(names) > 1:
            raise RowError("bad_column", f"{' and '.join(names)} of a node both hold nodes")
        if not names and steps:
            yield steps
        for child in node[names[0]] if names else ():
            if not isinstance(child, dict):
                raise RowError("bad_column", "a child of a node is not an object")
            text, whole = self.own(child, before)
            step = text, self._value(child, f"the node {text.strip()[:30]!r}")
            yield from self.paths(child, [*steps, step], whole)

    def root(self, row: Row, node: Row) -> tuple[str, list[Rated], str]:
        """The problem, the step that the first node is, and the text up to its end.

        The first node is the problem, or nothing yet, or a step like the others.
        """
        text, whole = self.own(node, "") if _has_text(node) else ("", "")
        if all(peek(row, name) is None for name in _rated_steps.PROBLEMS):
            if not text.strip():
                raise RowError("no_problem", "nothing says what the problem is")
            if key := next(iter(_VALUE.held(node)), None):
                what = f"the first node of {self.column} has a {key}, as a step has, and nothing "
                what += "else says what the problem is"
                how = f"take the first node for it with --ignore {self.column}.{key}"
                how = f"Give the problem in a separate column, or {how}"
                raise _fields.open_question(what, how, "no_problem")
            _rated_steps.require_alone(row)
            return text, [], whole
        asked = _rated_steps.problem(row, self._options)
        inside = stop_text.dialect_of(asked) and text.strip() in asked
        if not text.strip() or inside or text.strip() == asked.strip():
            return asked, [], whole
        return asked, [(text, self._value(node, "the first node"))], whole


class _StepTree(_ratings.Signed):
    """A tree of steps with a value each, as searches write it: one chain for each path to a leaf.

    A node holds its own step (``text``, ``step``), or all steps up to it (``prefix``, ``state``),
    or both, where they say the same. ``step_tree/signed`` reads values of -1 (bad), 0 (neutral) and
    1 (good).
    """

    name = "step_tree"
    _needs = (_TREE,)
    _words = "{} of steps with a value each"
    fans_out = True
    _word = "values"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _fields.required(_TREE.first(row), "there is no tree of steps with a value each")
        tree = _Tree(name, self._label(options), options)
        asked, first, before = tree.root(row, row[name])
        paths = tree.paths(row[name], first, before)
        return [_as_chain(asked, path) for path in paths]


def _rating(completion: Row) -> Any:
    """The rating of a completion, a corrected one before the first; None where nobody rated it."""
    both = completion.get("corrected_rating"), completion.get("rating")
    return next((value for value in both if value is not None), None)


def _rated(completion: Any, where: str, options: FormatOptions) -> Rated:
    if not isinstance(completion, dict):
        raise RowError("bad_column", f"{where} is not an object")
    said, place = _rating(completion), f"the rating of {where}"
    label = _ratings.rating(said, place, options.neutral, signed=True)
    return _turns.text(completion, "text"), label


def _chosen(
    step: dict[str, Any], rated: list[Rated], where: str, options: FormatOptions
) -> Rated | None:
    index = step.get("chosen_completion")
    if index is not None:
        if type(index) is not int or not 0 <= index < len(rated):
            raise RowError("bad_column", f"{where} chooses completion {index!r} of {len(rated)}")
        return rated[index]
    human = step.get("human_completion")
    if human is None:
        return None
    written = human if isinstance(human, dict) else {"text": human}
    text, label = _rated(written, f"{where} human completion", options)
    return text, 1.0 if _rating(written) is None else label


class _PRM800K(Format):
    """PRM800K: several completions per step, each rated -1, 0 or 1; one of them was chosen.

    As TRL published it: one example for each completion that is not the chosen one (the chosen
    steps before it, then it), and one for the whole chosen chain. ``prm800k/path`` reads that chain
    alone, up to a step where nothing was chosen of one completion, which is then the last. A
    human-written step stands in for a missing chosen one, and is good unless it was rated
    otherwise. A corrected rating goes before the first one.

    A completion that is in no example is refused by name: one that nobody rated, and one that comes
    behind a step where nothing was chosen.
    """

    name = "prm800k"
    kinds = (STEPS,)
    fans_out = True
    columns = columns_of("prm800k")
    ways = ("path",)

    def matches(self, row: Row) -> str | None:
        label, question = row.get("label"), row.get("question")
        known = isinstance(label, dict) and "steps" in label and isinstance(question, dict)
        return "question.problem and label.steps" if known else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        question, label = row.get("question"), row.get("label")
        if not isinstance(question, dict) or not isinstance(label, dict):
            raise RowError("bad_column", "there is no question.problem and label.steps")
        problem, steps = _turns.text(question, "problem"), label.get("steps")
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise RowError("bad_column", "label.steps is not a list of steps")
        if not steps:
            raise RowError("no_steps", "label.steps is empty")
        chain: list[Rated] = []
        examples: list[Example] = []
        ended = len(steps)
        for number, step in enumerate(steps):
            where = f"step {number + 1}"
            given = step.get("completions") or []
            rated = [_rated(c, f"{where} completion {i}", options) for i, c in enumerate(given)]
            chosen = step.get("chosen_completion")
            for i, one in enumerate(rated):
                if i != chosen and _rating(given[i]) is None:
                    detail = f"{where} completion {i} has no rating"
                    examples.append(Refused("unrated_completion", detail))
                elif i != chosen and self._way != "path":
                    examples.append(_as_chain(problem, [*chain, one]))
            taken = _chosen(step, rated, where, options)
            if chosen is not None and step.get("human_completion") is not None:
                detail = f"{where}: a human wrote a completion, but another one is chosen"
                examples.append(Refused("unrated_completion", detail))
            if taken is None:
                chain += rated if self._way == "path" and len(rated) == 1 else []
                ended = number
                break
            chain.append(taken)
        examples += [_as_chain(problem, chain)] if chain else []
        return examples + _behind(steps, ended)


def _as_chain(problem: str, rated: list[Rated]) -> StepChain:
    return StepChain(problem, [text for text, _ in rated], [label for _, label in rated])


def _behind(steps: list[dict[str, Any]], ended: int) -> list[Example]:
    """The completions behind the step where the chain ends."""
    detail = f"nothing was chosen at step {ended + 1}, so no later step continues from it"
    refused: list[Example] = []
    for number, step in enumerate(steps[ended + 1 :], ended + 2):
        names = [f"completion {i}" for i in range(len(step.get("completions") or []))]
        names += ["human completion"] * (step.get("human_completion") is not None)
        said = (f"step {number} {name}: {detail}" for name in names)
        refused += [Refused("behind_chain_end", one) for one in said]
    return refused


TABLE = (_StepTree(), _PRM800K())
