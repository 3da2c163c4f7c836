"""What a row of rated steps says: a problem, the steps of its solution, and a rating of each."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from expectations.witness import paths, said, turns
from expectations.witness.raw import UnreadError
from expectations.witness.said import Said, Steps, View

PROBLEMS = ("problem", "prompt", "question", "query", "input")
_LISTS = ("steps", "completions", "process", "solution_steps", "modified_process")
_RATINGS = (
    *"labels label ratings rating step_labels rewards scores values step_rewards".split(),
    "step_scores",
)
_ERRORS = (*"label first_error first_error_step first_error_index error_step error_index".split(),)
_RATED = tuple(
    """rating label score reward correct is_correct correctness step_rating step_reward""".split()
)
_PREFIXES = ("prefixes", "prefix", "partial_solutions", "step_prefixes", "cumulative_steps")
_SHARES = (*"values value mc_values mc_value soft_labels scores labels label".split(),)
_WRONG = (
    *("error_steps", "errors", "error_list", "error_indices", "wrong_steps", "incorrect_steps"),
    *("mistakes", "label", "labels"),
)
# Math-Shepherd's, and those that others put in its place.
_TAGS = ("\u043a\u0438", "<extra_0>", "<|reserved_special_token_0|>", "<step>", "<|step|>")
# Between the steps of a text without tags, by the variant of its file.
_BREAKS = {"five-breaks": "\n\n\n\n\n", "paragraphs": "\n\n", "lines": "\n"}
_GOOD = ("+", "correct", "good", "right", "yes", "true", "pass", "passed", "great", "valid", "ok")
_BAD = (*"- incorrect bad wrong no false fail failed poor invalid error".split(),)
_WORDS = {**dict.fromkeys(_GOOD, 1.0), **dict.fromkeys(_BAD, 0.0)}
_NEUTRAL = ("neutral", "unknown", "unsure", "unclear", "ambiguous")


def rating(value: Any, view: View) -> float | None:
    """From 0 to 1; None where there is none."""
    signed = view.variant.startswith("signed")
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
    problem = view.text(*PROBLEMS)
    if problem is None or view.get("history") is not None or len(steps) != len(ratings):
        raise UnreadError("a problem, or ratings, of another shape")
    return Steps(problem, tuple(steps), tuple(ratings), system=said.system(view))


def _stepwise(view: View) -> list[Said]:
    ratings = view.get(*_RATINGS)
    if not isinstance(ratings, list):
        raise UnreadError("ratings that are no list")
    steps = _texts(view.get(*_LISTS))
    return [_listed(view, steps, [rating(one, view) for one in ratings])]


def _asked(text: str, start: str) -> int:
    """Where the problem of a joined text ends: at the last of the places where steps may begin, if
    others are the first of several steps of the problem's own."""
    places, second = [x.start() for x in re.finditer(re.escape(start), text)], start
    second = re.sub(r"\b1\b", "2", start, count=1)
    own = places and second != start
    if not places or (own and second in text[places[-1] :]):
        raise UnreadError("a joined text whose problem ends elsewhere")
    if own and any(second not in text[a:b] for a, b in pairwise(places)):
        raise UnreadError("a joined text whose problem ends elsewhere")
    return places[-1] if own else places[0]


def _joined(view: View, pieces: Sequence[str], ratings: Sequence[float | None]) -> Steps:
    """A text whose steps stand before tags; the problem ends where the first step begins."""
    *steps, tail = pieces
    at = _asked(steps[0], view.words["prompt_separator"])
    problem, steps[0] = steps[0][:at], steps[0][at:]
    if len(steps) != len(ratings) or tail.strip():
        raise UnreadError("a joined text with more steps than ratings")
    return Steps(problem, tuple(steps), tuple(ratings), tuple(pieces), said.system(view))


def _tag(view: View) -> str | None:
    """What stands behind each step in all rows of a file: named, or line breaks by its variant."""
    told: str | None = view.words["step_tag"]
    return told or _BREAKS.get(view.variant.removeprefix("signed-"))


def _cut(view: View, text: str | None, listed: bool = True) -> list[str]:
    """A text at its tags; beside a list of ratings these may be line breaks."""
    told = _tag(view)
    if text is not None and listed and told and told.isspace():
        return [*(x for x in re.split(f"(?:{re.escape(told)})+", text) if x.strip()), ""]
    tag = next((tag for tag in ([told] if told else _TAGS) if tag in (text or "")), None)
    if text is None or tag is None:
        raise UnreadError("a joined text with another tag")
    return text.split(tag)


def _shepherd(view: View) -> list[Said]:
    """Two texts, letter by letter the same but for a rating where the first has a tag."""
    pieces, label = _cut(view, view.text("input"), False), view.text("label") or ""
    ratings: list[float | None] = []
    at = 0
    for piece in pieces[:-1]:
        at += len(piece) + 1
        ratings.append(rating(label[at - 1 : at], view))
        if label[at - 1 - len(piece) : at - 1] != piece:
            raise UnreadError("two texts that do not line up")
    return [_joined(view, pieces, ratings)]


def _valued(view: View) -> list[Said]:
    """A joined text and a list of ratings; or a problem, and its steps in one text."""
    values, asked = view.get("value", "label", "labels", "values"), view.get(*PROBLEMS)
    text = view.get(*_LISTS) if isinstance(asked, str) else None
    if not isinstance(values, list):
        raise UnreadError("ratings that are no list")
    ratings = [rating(one, view) for one in values]
    if isinstance(text, str):
        return [_answered(view, asked, _cut(view, text), ratings)]
    pieces = _cut(view, view.text("input"))
    broken = (_tag(view) or "x").isspace() and len(pieces) - 2 == len(values)
    pieces[: 2 * broken] = ["\n".join(pieces[:2])] * broken  # one ends the problem
    return [_joined(view, pieces, ratings)]


def _answered(
    view: View, asked: str, pieces: Sequence[str], ratings: Sequence[float | None]
) -> Steps:
    """A problem, and an answer whose steps stand before tags."""
    if pieces[-1].strip() or len(pieces) - 1 != len(ratings):
        raise UnreadError("a joined text with more steps than ratings")
    return Steps(asked, tuple(pieces[:-1]), tuple(ratings), system=said.system(view))


def _tagged(view: View) -> list[Said]:
    """A question and an answer in turns, with a tag behind each step, and a list of ratings."""
    values = view.get("labels", "label", "values", "value", "ratings", "step_labels")
    own, _ = turns.turns(view.get("conversations", "messages", "conversation"), view.words)
    own = said.opened(view, own)
    if [turn["role"] for turn in own[-2:]] != ["user", "assistant"] or len(own) > 3:
        raise UnreadError("turns between steps")
    pieces = _cut(view, own[-1]["content"])
    made = _answered(view, own[-2]["content"], pieces, [rating(one, view) for one in values])
    system = own[0]["content"] if own[0]["role"] == "system" else None
    return [Steps(made.problem, made.steps, made.ratings, system=system)]


def _first_error(view: View) -> list[Said]:
    steps, error = _texts(view.get(*_LISTS)), view.get(*_ERRORS)
    counted = paths.number(error)
    error = int(counted) if counted is not None and counted.is_integer() else error
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
    if not view.variant.startswith(("0", "1")) or not all(type(one) is int for one in wrong):
        raise UnreadError("numbers of steps of which it is not said how they count")
    at = {one - view.variant.startswith("1") for one in wrong}
    first = min(at, default=len(steps))
    first = len(steps) if view.variant.endswith("-whole") else first
    found = [0.0 if i in at else 1.0 if i < first else None for i in range(len(steps))]
    return [_listed(view, steps, found)]


def _next(view: View) -> list[Said]:
    """The steps so far, the next one, and how good that one is."""
    before = _texts(view.get("prior_steps", "previous_steps") or [])
    step = view.text("next_step", "current_step")
    rated = rating(view.get("rating", "label", "current_label"), view)
    if step is None or rated is None:
        raise UnreadError("a next step without a rating")
    return [_listed(view, [*before, step], [*[None] * len(before), rated])]


def _objects(view: View) -> list[Said]:
    steps = view.get("steps", "process", "solution_steps", "reasoning_steps", "rated_steps")
    if not isinstance(steps, list) or not all(isinstance(one, dict) for one in steps):
        raise UnreadError("steps that are no objects")
    every = [View(one, "", view.words) for one in steps]
    texts = [one.get("text", "step", "content", "step_text", "thought") for one in every]
    ratings = [rating(one.get(*_RATED), view) for one in every]
    return [_listed(view, _texts(texts), ratings)]


def _nested(view: View) -> list[Said]:
    names = (
        *("chain_of_thoughts", "chains_of_thought", "chains", "cots", "solutions", "rollouts"),
        *("trajectories", "reasoning_chains", "reasoning_paths"),
    )
    found: list[Said] = []
    both = [view.get(name) for name in ("steps", "labels")]
    beside = all(isinstance(one, list) for one in both)
    each = [{"steps": a, "labels": b} for a, b in zip(*both, strict=True)] if beside else ()
    for one in each or view.get(*names) or ("none",):
        if not isinstance(one, dict):
            raise UnreadError("solutions that are no objects")
        kept = {k: v for k, v in view.row.items() if k in said.SYSTEM}
        kept["problem"] = view.get(*PROBLEMS)
        inside = View(one | kept, view.variant, view.words)
        steps = inside.get(*_LISTS, "reasoning_steps", "rated_steps")
        if isinstance(steps, str) and each:
            pieces = [piece for piece in _cut(view, steps) if piece.strip()]
            steps = inside.row["steps"] = pieces
        texts = isinstance(steps, list) and isinstance(steps[0], str)
        found += _stepwise(inside) if texts else _objects(inside)
    return found


def _prefixes(view: View) -> list[Said]:
    whole = _texts(view.get(*_PREFIXES))
    before = ["", *whole[:-1]]
    if not all(one.startswith(other) for one, other in zip(whole, before, strict=True)):
        raise UnreadError("prefixes of another shape")
    steps = [one[len(other) :] for one, other in zip(whole, before, strict=True)]
    values = view.get(*_SHARES)
    return [_listed(view, steps, [rating(one, view) for one in values or ()])]


def _judged_turns(view: View) -> list[Said]:
    """The user says a step, and the assistant whether it is good; the first has the problem."""
    given = [*(view.get("conversations", "messages", "conversation") or ())]
    if not given:
        raise UnreadError("turns that are no list of objects")
    for at, one in enumerate(given[1::2]):  # null says that there is no rating, as the word does
        null = [key for key in ("content", "value") if one.get(key, "") is None]
        given[2 * at + 1] = one | dict.fromkeys(null, "neutral")
    own, _ = turns.turns(given, view.words)
    system = said.system(view)
    if own and own[0]["role"] == "system":
        raise UnreadError("a system text in turns of steps")
    texts = [turn["content"] for turn in own[::2]]
    ratings = [rating(turn["content"], view) for turn in own[1::2]]
    made = _joined(view, [*texts, ""], ratings)
    return [Steps(made.problem, made.steps, made.ratings, system=system)]


def _rated_turns(view: View) -> list[Said]:
    """A question, and steps in turns of the assistant, each with a rating."""
    given = view.get("messages", "conversations", "conversation")
    plain = [{k: x for k, x in one.items() if k not in _RATED} for one in given]
    own, _ = turns.turns(plain, view.words)
    system = said.system(view)
    if own[0]["role"] == "system":
        system, own, given = own[0]["content"], own[1:], given[1:]
    if [turn["role"] for turn in own] != ["user", *["assistant"] * (len(own) - 1)]:
        raise UnreadError("turns between steps")
    ratings = [rating(View(one, "", view.words).get(*_RATED), view) for one in given[1:]]
    texts = tuple(str(turn["content"] or "") for turn in own[1:])
    return [Steps(str(own[0]["content"] or ""), texts, tuple(ratings), system=system)]


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
    "next_step": _next,
    "math_shepherd": _shepherd,
    "openrlhf_prm": _valued,
    "processbench": _first_error,
    "error_list": _wrong_steps,
    "rated_steps": _objects,
    "nested_steps": _nested,
    "soft_prefix": _prefixes,
    "step_conversations": _judged_turns,
    "rated_messages": _rated_turns,
    "tagged_messages": _tagged,
}
