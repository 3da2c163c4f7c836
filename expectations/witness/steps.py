"""What a row of rated steps says: a problem, the steps of its solution, and a rating of each."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from expectations.witness import paths, said
from expectations.witness.raw import UnreadError
from expectations.witness.said import Said, Steps, View

_PROBLEMS = ("problem", "prompt", "question", "query", "input")
_LISTS = ("steps", "completions", "process", "solution_steps", "modified_process")
_RATINGS = ("labels", "label", "ratings", "rating", "step_labels", "rewards", "scores", "values")
_ERRORS = (
    "label",
    "first_error",
    "first_error_step",
    "first_error_index",
    "error_step",
    "error_index",
)
_RATED = ("rating", "label", "score", "reward", "correct", "is_correct", "correctness")
_STEP = ("text", "step", "content", "thought", "action")
_VALUES = ("value", "mc_value", "q_value", "soft_label", "score", "reward", "rating", "label")
_CHILDREN = ("children", "branches", "nodes", "next_steps")
_WRONG = ("error_steps", "errors", "error_list", "error_indices", "wrong_steps", "incorrect_steps")
# Math-Shepherd's, and those that others put in its place.
_TAGS = ("\u043a\u0438", "<extra_0>", "<|reserved_special_token_0|>", "<step>", "<|step|>")
_GOOD = ("+", "correct", "good", "right", "yes", "true", "pass", "passed", "great", "valid", "ok")
_BAD = (
    "-",
    "incorrect",
    "bad",
    "wrong",
    "no",
    "false",
    "fail",
    "failed",
    "poor",
    "invalid",
    "error",
)
_WORDS = {**dict.fromkeys(_GOOD, 1.0), **dict.fromkeys(_BAD, 0.0)}
_NEUTRAL = ("neutral", "unknown", "unsure", "unclear", "ambiguous")


def _rating(value: Any, view: View) -> float | None:
    """From 0 to 1; None where there is none."""
    signed = view.variant == "signed"
    if isinstance(value, str) and paths.number(value) is not None and not signed:
        value = float(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word not in (*_WORDS, *_NEUTRAL) or signed:
            raise UnreadError("a rating in other words")
        return view.neutral() if word in _NEUTRAL else _WORDS[word]
    if value is None:
        return None
    if not isinstance(value, bool | int | float):
        raise UnreadError("a rating of another shape")
    if signed and value in (-1, 0, 1) and not isinstance(value, bool):
        return view.neutral() if value == 0 else float(value > 0)
    if not 0 <= value <= 1:
        raise UnreadError("a rating of another scale")
    return float(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UnreadError("steps that are no texts")
    return tuple(value)


def _listed(view: View, steps: Sequence[str], ratings: Sequence[float | None]) -> Steps:
    problem = view.text(*_PROBLEMS)
    if problem is None or view.get("history") is not None or len(steps) != len(ratings):
        raise UnreadError("a problem, or ratings, of another shape")
    return Steps(problem, tuple(steps), tuple(ratings), system=view.text(*said.SYSTEM))


def _stepwise(view: View) -> list[Said]:
    ratings = view.get(*_RATINGS)
    if not isinstance(ratings, list):
        raise UnreadError("ratings that are no list")
    steps = _texts(view.get(*_LISTS))
    return [_listed(view, steps, [_rating(one, view) for one in ratings])]


def _joined(view: View, pieces: Sequence[str], ratings: Sequence[float | None]) -> Steps:
    """A text whose steps stand before tags; the problem ends where the first step begins."""
    *steps, tail = pieces
    start = view.words["prompt_separator"]
    if tail.strip() or steps[0].count(start) != 1 or any(start in one for one in steps[1:]):
        raise UnreadError("a joined text whose problem ends elsewhere")
    at = steps[0].index(start)
    problem, steps[0] = steps[0][:at], steps[0][at:]
    if len(steps) != len(ratings) or re.search(r"Step [2-9]:", problem):
        raise UnreadError("a joined text whose problem ends elsewhere")
    system = view.text(*said.SYSTEM)
    return Steps(problem, tuple(steps), tuple(ratings), tuple(pieces), system)


def _cut(view: View, text: str | None) -> list[str]:
    told = view.words["step_tag"]
    tags = [tag for tag in ([told] if told else _TAGS) if text is not None and tag in text]
    if text is None or len(tags) != 1 or tags[0].isspace():
        raise UnreadError("a joined text with another tag")
    return text.split(tags[0])


def _shepherd(view: View) -> list[Said]:
    """Two texts, letter by letter the same but for a rating where the first has a tag."""
    pieces, label = _cut(view, view.text("input")), view.text("label") or ""
    ratings: list[float | None] = []
    at = 0
    for piece in pieces[:-1]:
        at += len(piece) + 1
        ratings.append(_rating(label[at - 1 : at], view))
        if label[at - 1 - len(piece) : at - 1] != piece:
            raise UnreadError("two texts that do not line up")
    return [_joined(view, pieces, ratings)]


def _valued(view: View) -> list[Said]:
    """A joined text and a list of ratings."""
    values = view.get("value", "label", "labels", "values")
    if not isinstance(values, list) or view.get("problem", "prompt", "question", "query"):
        raise UnreadError("ratings that are no list")
    pieces = _cut(view, view.text("input", "steps", "completions", "process"))
    return [_joined(view, pieces, [_rating(one, view) for one in values])]


def _first_error(view: View) -> list[Said]:
    steps, error = _texts(view.get(*_LISTS)), view.get(*_ERRORS)
    if isinstance(error, bool) or not isinstance(error, int | None):
        raise UnreadError("a first error of another shape")
    if error is not None and error >= 0 and view.variant == "1-based":
        error -= 1
    elif view.get("label") is None and view.variant != "0-based" and error not in (None, -1):
        raise UnreadError("an index of which it is not said how it counts")
    if error is None or error == -1:
        return [_listed(view, steps, [1.0] * len(steps))]
    found = [1.0 if i < error else 0.0 if i == error else None for i in range(len(steps))]
    return [_listed(view, steps, found)]


def _wrong_steps(view: View) -> list[Said]:
    steps = _texts(view.get(*_LISTS))
    wrong = view.get(*_WRONG) or []
    if view.variant not in ("0-based", "1-based") or not all(type(one) is int for one in wrong):
        raise UnreadError("numbers of steps of which it is not said how they count")
    at = {one - (view.variant == "1-based") for one in wrong}
    first = min(at, default=len(steps))
    found = [0.0 if i in at else 1.0 if i < first else None for i in range(len(steps))]
    return [_listed(view, steps, found)]


def _objects(view: View) -> list[Said]:
    steps = view.get("steps", "process", "solution_steps", "reasoning_steps", "rated_steps")
    if not isinstance(steps, list) or not all(isinstance(one, dict) for one in steps):
        raise UnreadError("steps that are no objects")
    every = [View(one, "", view.words) for one in steps]
    texts = [one.get("text", "step", "content") for one in every]
    ratings = [_rating(x.get("rating", "label", "score", "correct"), view) for x in every]
    return [_listed(view, _texts(texts), ratings)]


def _nested(view: View) -> list[Said]:
    names = ("chain_of_thoughts", "chains_of_thought", "chains", "cots", "solutions", "rollouts")
    found: list[Said] = []
    for one in view.get(*names) or ("none",):
        if not isinstance(one, dict):
            raise UnreadError("solutions that are no objects")
        inside = {k: v for k, v in view.row.items() if k not in names} | {"steps": one.get("steps")}
        found += _objects(View(inside, view.variant, view.words))
    return found


def _prefixes(view: View) -> list[Said]:
    whole = _texts(view.get("prefixes", "prefix", "partial_solutions", "step_prefixes"))
    before = ["", *whole[:-1]]
    if not all(one.startswith(other) for one, other in zip(whole, before, strict=True)):
        raise UnreadError("prefixes of another shape")
    steps = [one[len(other) :] for one, other in zip(whole, before, strict=True)]
    values = view.get("values", "value", "mc_values", "mc_value", "soft_labels", "scores", "labels")
    return [_listed(view, steps, [_rating(one, view) for one in values or ()])]


def _judged_turns(view: View) -> list[Said]:
    """The user says a step, and the assistant whether it is good; the first has the problem."""
    own, _ = said.turns(view.get("conversations", "messages", "conversation"), view.words)
    system = view.text(*said.SYSTEM)
    if own and own[0]["role"] == "system":
        raise UnreadError("a system text in turns of steps")
    texts = [turn["content"] for turn in own[::2]]
    ratings = [_rating(turn["content"], view) for turn in own[1::2]]
    made = _joined(view, [*texts, ""], ratings)
    return [Steps(made.problem, made.steps, made.ratings, system=system)]


def _alternatives(view: View) -> list[Said]:
    """PRM800K: a chain of the completions that were chosen, and one for each that was not."""
    problem, label = view.get("question"), view.get("label")
    if not isinstance(problem, dict) or not isinstance(label, dict):
        raise UnreadError("alternatives of another shape")
    asked = str(said.text(problem.get("problem"), "problem"))
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
            texts, ratings = (
                [*texts, completions[chosen]["text"]],
                [*ratings, _graded(completions[chosen], view)],
            )
        elif human is not None:
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


def _rated_turns(view: View) -> list[Said]:
    """A question, and steps in turns of the assistant, each with a rating."""
    turns = view.get("messages", "conversations", "conversation")
    own, _ = said.turns(
        [{k: x for k, x in one.items() if k not in _RATED} for one in turns], view.words
    )
    system = view.text(*said.SYSTEM)
    if own[0]["role"] == "system":
        system, own, turns = own[0]["content"], own[1:], turns[1:]
    if [turn["role"] for turn in own] != ["user", *["assistant"] * (len(own) - 1)]:
        raise UnreadError("turns between steps")
    ratings = [_rating(View(one, "", view.words).get(*_RATED), view) for one in turns[1:]]
    texts = tuple(str(turn["content"] or "") for turn in own[1:])
    return [Steps(str(own[0]["content"] or ""), texts, tuple(ratings), system=system)]


def _tree(view: View) -> list[Said]:
    """A chain of steps to each leaf of a tree, whose first node is the problem or nothing."""
    root = view.get("tree", "root", "search_tree", "prefix_tree", "mcts_tree", "step_tree")
    asked = view.text(*_PROBLEMS)
    own = View(root, "", view.words).text(*_STEP)
    if (asked is None) == (own is None) or view.get("history") is not None:
        raise UnreadError("a first node that may be a step")
    found: list[Said] = []

    def below(node: Any, steps: list[str], ratings: list[float | None]) -> None:
        lists = [node[name] for name in _CHILDREN if node.get(name)]
        if len(lists) > 1 or any(
            node.get(name) for name in ("prefix", "partial_solution", "state")
        ):
            raise UnreadError("a node of another shape")
        if not lists and steps:
            problem, system = str(asked or own), view.text(*said.SYSTEM)
            found.append(Steps(problem, tuple(steps), tuple(ratings), system=system))
        for child in lists[0] if lists else ():
            one = View(child, "", view.words)
            rating = _rating(one.get(*_VALUES), view)
            below(child, [*steps, str(one.text(*_STEP))], [*ratings, rating])

    below(root, [], [])
    return found


def one_text(said: Steps, separator: str) -> list[str]:
    """Steps of a list as pieces of one text, each on a line of its own or behind a separator."""
    problem = said.problem.strip()
    found, before, between = [], problem, "\n"
    for step in said.steps:
        broken = before.endswith("\n") or step.startswith("\n")
        found.append(step if broken else between + step)
        before, between = step, separator
    return [problem + found[0], *found[1:]]


STEPS: dict[str, Callable[[View], list[Said]]] = {
    "stepwise": _stepwise,
    "math_shepherd": _shepherd,
    "openrlhf_prm": _valued,
    "processbench": _first_error,
    "error_list": _wrong_steps,
    "rated_steps": _objects,
    "nested_steps": _nested,
    "soft_prefix": _prefixes,
    "step_conversations": _judged_turns,
    "prm800k": _alternatives,
    "rated_messages": _rated_turns,
    "step_tree": _tree,
}
