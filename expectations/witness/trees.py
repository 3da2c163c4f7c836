"""What trees say: of messages a conversation for each path, or pairs of ranked answers; of steps a
chain for each path."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

from expectations.witness import said, turns
from expectations.witness.raw import UnreadError
from expectations.witness.said import Said, Sides, Steps, Talk, View
from expectations.witness.steps import PROBLEMS, rating
from expectations.witness.turns import Turn, role_of

_ROOTS = ("prompt", "tree", "root", "message_tree", "message")
_GONE = {"deleted": True, "is_deleted": True, "removed": True, "review_result": False}
_STEP = ("text", "step", "content", "thought", "action", "step_text")
_WHOLE = ("prefix", "partial_solution", "state")
_VALUES = (*"value mc_value q_value soft_label score reward rating label correctness".split(),)
_CHILDREN = ("children", "branches", "nodes", "next_steps")
Node = dict[str, Any]


def _root(view: View) -> Node:
    found = view.get(*_ROOTS)
    root: Any = found if isinstance(found, dict) else view.row
    if _is_gone(root):
        raise UnreadError("a tree that was taken out")
    return dict(root)


def _is_gone(node: Node) -> bool:
    return any(node.get(name) is gone for name, gone in _GONE.items())


def _replies(node: Node) -> list[Node]:
    lists = [node[name] for name in ("replies", "children") if node.get(name)]
    if len(lists) > 1 or not all(isinstance(one, dict) for one in (*lists, [])[0]):
        raise UnreadError("replies of another shape")
    return [*lists[0]] if lists else []


def _turn(node: Node, view: View) -> Turn:
    texts = [node[name] for name in ("text", "content") if node.get(name) is not None]
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise UnreadError("a message of another shape")
    return {"role": role_of(node, view.words), "content": texts[0]}


def _rank(node: Node) -> float | None:
    rank = node.get("rank")
    if rank is not None and type(rank) not in (int, float):
        raise UnreadError("a rank of another shape")
    return rank


def paths(view: View) -> list[Said]:
    """A conversation to the end of each path; an answer that several share is trained where it
    is the last, and no answer twice. What is refused keeps its number."""
    root = _root(view)
    return [
        one and Talk(tuple(one[0]), tuple(one[1]))
        for one in _below(root, [_turn(root, view)], view)
    ]


_Path = tuple[list[Turn], list[float | None]]


def _below(node: Node, path: list[Turn], view: View) -> list[_Path | None]:
    children = _replies(node)
    found: list[_Path | None] = [None for child in children if _is_gone(child)]
    there = [child for child in children if not _is_gone(child)]
    turns = [_turn(child, view) for child in there]
    answers = [one for one, turn in zip(there, turns, strict=True) if turn["role"] == "assistant"]
    ranks = [rank for rank in map(_rank, answers) if rank is not None]
    chosen = len(answers) > 1 and ranks and view.variant != "all"
    if chosen and view.variant != "best":
        raise UnreadError("ranked answers of which it is not said which are meant")
    for child, turn in zip(there, turns, strict=True):
        if chosen and turn["role"] == "assistant" and _rank(child) != min(ranks):
            found.append(None)
        else:
            found += _below(child, [*path, turn], view)
    further = [one for one in found if one is not None]
    own: _Path = (path, [None] * len(path))
    if path[-1]["role"] != "assistant":
        return found if further else [*found, None]
    if len(further) == 1:
        return found
    for one in further:
        one[1][len(path) - 1] = 0.0
    return [own, *found] if further else [*found, own]


def pairs(view: View) -> list[Said]:
    """A pair for each two neighbours in rank among the answers to one message, or for each two."""
    root = _root(view)
    return _pairs(root, [_turn(root, view)], view)


def _pairs(node: Node, path: list[Turn], view: View) -> list[Said]:
    children = _replies(node)
    found: list[Said] = [None for child in children if _is_gone(child)]
    there = [child for child in children if not _is_gone(child)]
    turns = [_turn(child, view) for child in there]
    both = zip(there, turns, strict=True)
    answers = [(_rank(one), turn) for one, turn in both if turn["role"] == "assistant"]
    ranked = sorted(((r, t) for r, t in answers if r is not None), key=lambda one: one[0])
    if len(answers) > 1:
        found += [None] * (len(answers) - len(ranked))
        couples = combinations(ranked, 2) if view.variant == "all" else pairwise(ranked)
        for (high, better), (low, worse) in couples:
            sides = ((*path, better), (*path, worse))
            found.append(None if high == low else Sides(*sides, shared=len(path)))
    rated = answers if len(answers) == 1 else ranked
    for child, turn in zip(there, turns, strict=True):
        below = _pairs(child, [*path, turn], view)
        alone = len(rated) == 1 and rated[0][1] is turn
        found += [None] if alone and not any(below) else []
        found += below
    return found


def _alternatives(view: View) -> list[Said]:
    """PRM800K: a chain of the completions that were chosen, and one for each that was not."""
    problem, label = view.get("question"), view.get("label")
    if not isinstance(problem, dict) or not isinstance(label, dict):
        raise UnreadError("alternatives of another shape")
    asked = str(turns.text(problem.get("problem"), "problem"))
    found: list[Said] = []
    texts: list[str] = []
    ratings: list[float | None] = []
    for step in label["steps"]:
        completions, human = step.get("completions") or [], step.get("human_completion")
        chosen = step.get("chosen_completion")
        for i, one in enumerate(completions):
            if i == chosen:
                continue
            rating = _graded(one, view)
            extra = Steps(asked, (*texts, one["text"]), (*ratings, rating))
            if _given(one) is None or view.variant != "path":
                found.append(None if _given(one) is None else extra)
        if chosen is not None:
            found += [None] * (human is not None)
            texts, ratings = (
                [*texts, completions[chosen]["text"]],
                [*ratings, _graded(completions[chosen], view)],
            )
        elif human is not None:
            human = human if isinstance(human, dict) else {"text": human}
            good = 1.0 if _given(human) is None else _graded(human, view)
            texts, ratings = [*texts, human["text"]], [*ratings, good]
        elif view.variant == "path" and len(completions) == 1:
            texts, ratings = (
                [*texts, completions[0]["text"]],
                [*ratings, _graded(completions[0], view)],
            )
            break
        else:
            break
    return [*found, Steps(asked, tuple(texts), tuple(ratings))] if texts else found


def _given(completion: dict[str, Any]) -> Any:
    """The rating of a completion; a corrected one goes before the first."""
    both = completion.get("corrected_rating"), completion.get("rating")
    return next((one for one in both if one is not None), None)


def _graded(completion: dict[str, Any], view: View) -> float | None:
    rating = _given(completion)
    if rating == 0:
        return view.neutral()
    return {1: 1.0, -1: 0.0}[rating] if rating in (1, -1) else None


def _node(node: Any, before: str) -> tuple[str | None, str]:
    """The step of a node, and the text up to its end, where it has that instead."""
    one = View(node, "", {})
    own, whole = one.text(*_STEP), one.text(*_WHOLE)
    if whole is None:
        return own, before
    if (
        not whole.startswith(before)
        or (own or whole[len(before) :]).strip() != whole[len(before) :].strip()
    ):
        raise UnreadError("a node of another shape")
    return whole[len(before) :], whole


def _tree(view: View) -> list[Said]:
    """A chain of steps to each leaf of a tree, whose first node is the problem, nothing, or a
    step."""
    root = view.get("tree", "root", "search_tree", "prefix_tree", "mcts_tree", "step_tree")
    asked, (own, before) = view.text(*PROBLEMS), _node(root, "")
    value = View(root, "", view.words).get(*_VALUES)
    if (asked or own) is None or (asked is None and value is not None):
        raise UnreadError("a first node that may be a step")
    found: list[Said] = []

    def below(node: Any, steps: list[str], ratings: list[float | None], before: str) -> None:
        lists = [node[name] for name in _CHILDREN if node.get(name)]
        if len(lists) > 1:
            raise UnreadError("a node of another shape")
        if not lists and steps:
            problem, system = str(asked or own), said.system(view)
            found.append(Steps(problem, tuple(steps), tuple(ratings), system=system))
        for child in lists[0] if lists else ():
            step, after = _node(child, before)
            rated = rating(View(child, "", view.words).get(*_VALUES), view)
            below(child, [*steps, str(step)], [*ratings, rated], after)

    first = bool(asked and (own or "").strip() not in ("", asked.strip()))
    below(root, [str(own)] * first, [rating(value, view)] * first, before)
    return found


CHAINS: dict[str, Callable[[View], list[Said]]] = {"prm800k": _alternatives, "step_tree": _tree}
