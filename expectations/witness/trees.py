"""What a tree of messages says: a conversation for each path, or pairs of ranked answers."""

from itertools import combinations, pairwise
from typing import Any

from expectations.witness import said
from expectations.witness.raw import UnreadError
from expectations.witness.said import Said, Sides, Talk, Turn, View

_ROOTS = ("prompt", "tree", "root", "message_tree", "message")
_GONE = {"deleted": True, "is_deleted": True, "removed": True, "review_result": False}
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
    return {"role": said.role_of(node, view.words), "content": texts[0]}


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
