"""A tree of steps with a value each, as searches write it: one chain for each path to a leaf.

A node holds its own step (``text``, ``step``), or all steps up to it (``prefix``, ``state``), or
both, where they say the same. ``step_tree/signed`` reads values of -1 (bad), 0 (neutral) and 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Refused, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _rated_steps, _ratings, _turns
from stages.formats._asked import Question, required
from stages.kinds import STEPS

_TREES = ("tree", "root", "search_tree", "prefix_tree", "mcts_tree", "step_tree")
_CHILDREN = ("children", "branches", "nodes", "next_steps")
_OWN = ("text", "step", "content", "thought", "action")
_WHOLE = ("prefix", "partial_solution", "state")
_VALUES = tuple("value mc_value q_value soft_label score reward rating label correctness".split())

_Step = tuple[str, float | None]


def _key(node: Row, names: tuple[str, ...], kind: type) -> str | None:
    return next((name for name in names if isinstance(dict.get(node, name), kind)), None)


def _has_values(node: Any) -> bool:
    if not isinstance(node, dict) or _key(node, (*_OWN, *_WHOLE), str) is None:
        return False
    return any(name in node for name in _VALUES)


def _lists(node: Row) -> list[str]:
    """The keys under which a node has nodes below it."""
    return [name for name in _CHILDREN if dict.get(node, name) and _key(node, (name,), list)]


def _column(row: Row) -> str | None:
    """The column with the first node."""
    for name in _TREES:
        node = dict.get(row, name)
        if not isinstance(node, dict):
            continue
        if any(_has_values(child) for key in _lists(node) for child in dict.get(node, key) or []):
            return name
    return None


def _nodes(node: Any, before: str = "") -> Iterator[tuple[Row, str]]:
    """A node and all below it, each with the text up to where its own step begins."""
    if not isinstance(node, dict):
        return
    yield node, before
    whole = _key(node, _WHOLE, str)
    before = dict.get(node, whole, before) if whole else before
    for key in _lists(node):
        for child in dict.get(node, key) or []:
            yield from _nodes(child, before)


def _two_texts(node: Row, before: str) -> list[str]:
    """The keys of a node's own step and of all steps up to it, where these do not fit."""
    own, whole = _rated_steps.own_texts(node, _OWN), _key(node, _WHOLE, str)
    if _rated_steps.differing(node, own):
        return own
    if not own or whole is None:
        return []
    step, text = dict.get(node, own[0], ""), dict.get(node, whole, "")
    fits = text.startswith(before) and text[len(before) :].strip() == step.strip()
    return [] if fits else [own[0], whole]


def _given(node: Row) -> dict[str, Any]:
    """The values of a node by their keys."""
    return {name: dict.get(node, name) for name in _VALUES if dict.get(node, name) is not None}


def _rivals(node: Row, before: str) -> tuple[list[str], str] | None:
    """Keys of a node that cannot all be meant, and what each could be; None where all agree."""
    if keys := _two_texts(node, before):
        return keys, "text"
    values = _given(node)
    return (list(values), "value") if _ratings.differ(values.values()) else None


class _Tree:
    """Reads one row's tree.

    Attributes:
        column: that holds it, for messages.
    """

    def __init__(self, column: str, label: _ratings.Label, options: FormatOptions) -> None:
        self.column, self._label, self._options = column, label, options

    def value(self, node: Row, where: str) -> float | None:
        """The value of a node; None where it has none.

        Raises:
            RowError: it is no rating, or two keys give different ones.
        """
        return _ratings.one_rating(node, _VALUES, where, self._label)

    def own(self, node: Row, before: str) -> tuple[str, str]:
        """A node's own step, and the text up to its end.

        Raises:
            RowError: it has no text, one that does not begin with the text before, or two that
                say different things.
        """
        own, whole = _rated_steps.own_texts(node, _OWN), _key(node, _WHOLE, str)
        if keys := _two_texts(node, before):
            both = " and ".join(f"{key} is {node[key][:40]!r}" for key in keys)
            raise RowError("bad_column", f"a node of the tree has two texts: {both}")
        said = [node[name] for name in own]  # all are read: they say the same
        if whole is None:
            if not own:
                raise RowError("bad_column", "a node of the tree has no text")
            return said[0], before
        text: str = node[whole]
        if not text.startswith(before):
            detail = f"{text[:40]!r} does not begin with what is before it"
            raise RowError("not_cumulative", detail)
        return text[len(before) :], text

    def paths(self, node: Row, steps: list[_Step], before: str) -> list[list[_Step]]:
        """The steps of each path from below a node to a leaf."""
        names = _lists(node)
        if len(names) > 1:
            raise RowError("bad_column", f"{' and '.join(names)} of a node both hold nodes")
        children = node[names[0]] if names else []
        if not children:
            return [steps] if steps else []
        below = []
        for child in children:
            if not isinstance(child, dict):
                raise RowError("bad_column", "a child of a node is not an object")
            text, whole = self.own(child, before)
            value = self.value(child, f"the node {text.strip()[:30]!r}")
            below += self.paths(child, [*steps, (text, value)], whole)
        return below

    def root(self, row: Row, node: Row) -> tuple[str, list[_Step], str]:
        """The problem, the step that the first node is, and the text up to its end.

        The first node is the problem, or nothing yet, or a step like the others.
        """
        bare = _key(node, (*_OWN, *_WHOLE), str) is None
        text, whole = ("", "") if bare else self.own(node, "")
        if not _names_problem(row):
            if not text.strip():
                raise RowError("no_problem", "nothing says what the problem is")
            if _given(node):
                detail = f"the first node of {self.column} has a value, as a step has"
                raise RowError("no_problem", f"{detail}; nothing else says what the problem is")
            _rated_steps.require_alone(row)
            return _rated_steps.asked(text, self._options), [], whole
        asked = _rated_steps.problem(row, self._options)
        if not text.strip() or text.strip() == asked.strip():
            return asked, [], whole
        return asked, [(text, self.value(node, "the first node"))], whole


def _names_problem(row: Row) -> bool:
    return any(dict.get(row, name) is not None for name in _rated_steps.PROBLEMS)


class _StepTree(_ratings.Signed):
    name = "step_tree"
    columns: Columns = {"tree": _TREES, **_rated_steps.PROBLEM}
    prompts = _rated_steps.PROBLEMS
    fans_out = True
    _word = "values"

    def _shown(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[Any]:
        nodes = (node for row in rows for node, _ in _nodes(dict.get(row, _column(row) or "")))
        return (dict.get(node, name) for node in nodes for name in _VALUES)

    def matches(self, row: Row) -> str | None:
        name = _column(row)
        return f"{name} of steps with a value each" if name else None

    def _open(self, row: Row) -> Question | None:
        column = _column(row) or ""
        root = dict.get(row, column)
        for node, before in _nodes(root):
            rivals = _rivals(node, before)
            if rivals is not None:
                keys, what = rivals
                flags = " or ".join(f"--ignore '{column}.**.{key}'" for key in keys)
                seen = f"{' and '.join(keys)} could each be the {what} of a node in {column}"
                return f"{seen}, and they differ", f"Say which to leave out with {flags}"
        values = _given(root) if isinstance(root, dict) and not _names_problem(row) else {}
        if values:
            key = next(iter(values))
            seen = f"the first node of {column} has a {key}, as a step has"
            return f"{seen}, and nothing else says what the problem is", (
                "Give the problem in a separate column, or take the first node for it with "
                f"--ignore {column}.{key}"
            )
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = required(_column(row), "there is no tree of steps with a value each")
        tree = _Tree(name, self._label(options), options)
        asked, first, before = tree.root(row, row[name])
        paths = tree.paths(row[name], first, before)
        return [StepChain(asked, [t for t, _ in path], [v for _, v in path]) for path in paths]


FORMAT = _StepTree()


# PRM800K: several completions per step, each rated -1, 0 or 1; one of them was chosen.
#
# As TRL published it: one example for each completion that is not the chosen one (the chosen steps
# before it, then it), and one for the whole chosen chain. Following only the chosen completions
# would give no bad step at all. A human-written step stands in for a missing chosen one.
#
# A completion that is in no example is refused by name: one that nobody rated, and one that comes
# behind a step where nothing was chosen.


Rated = tuple[str, float | None]


def _rating(completion: Row) -> Any:
    """The rating of a completion, a corrected one before the first; None where nobody rated it."""
    both = completion.get("corrected_rating"), completion.get("rating")
    return next((value for value in both if value is not None), None)


def _rated(completion: Any, where: str, options: FormatOptions) -> Rated:
    if not isinstance(completion, dict):
        raise RowError("bad_column", f"{where} is not an object")
    value = _rating(completion)
    if value is not None and value not in (-1, 0, 1):
        raise RowError("bad_label", f"{where} has the rating {value!r}, not -1, 0 or 1")
    label = None if value is None else _ratings.signed_ratings(options)[value]
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
    steps before it, then it), and one for the whole chosen chain. Following only the chosen
    completions would give no bad step at all. A human-written step stands in for a missing chosen
    one, and is good unless it was rated otherwise. A corrected rating goes before the first one.

    A completion that is in no example is refused by name: one that nobody rated, and one that comes
    behind a step where nothing was chosen.
    """

    name = "prm800k"
    kinds = (STEPS,)
    fans_out = True
    columns: Columns = {"problem": ("question",), "steps": ("label",)}

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
        chain: list[Rated] = []
        examples: list[Example] = []
        ended = len(steps)
        for number, step in enumerate(steps):
            where = f"step {number + 1}"
            completions = step.get("completions") or []
            rated = [
                _rated(c, f"{where} completion {i}", options) for i, c in enumerate(completions)
            ]
            chosen = step.get("chosen_completion")
            for i, one in enumerate(rated):
                if i != chosen and _rating(completions[i]) is None:
                    detail = f"{where} completion {i} has no rating"
                    examples.append(Refused("unrated_completion", detail))
                elif i != chosen:
                    examples.append(_as_chain(problem, [*chain, one]))
            taken = _chosen(step, rated, where, options)
            if chosen is not None and step.get("human_completion") is not None:
                detail = f"{where}: a human wrote a completion, but another one is chosen"
                examples.append(Refused("unrated_completion", detail))
            if taken is None:
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
        refused += [
            Refused("behind_chain_end", f"step {number} {name}: {detail}") for name in names
        ]
    return refused


PRM800K = _PRM800K()
