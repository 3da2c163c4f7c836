"""What a row of pairs says: which answers, which of them is better, and by how much."""

import re
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

from expectations.witness import said, talks, trees
from expectations.witness.raw import UnreadError
from expectations.witness.said import Said, Sides, Turn, View

_PROMPTS = ("prompt", "question", "query", "input", "input_text", "conversations", "messages")
_SIDES = ("response", "messages", "conversations", "conversation")
_NUMBERS = ("score", "rating", "reward", "avg_rating", "reward_score")
_SPEAKER = re.compile(r"(?:^|\n\n)\s*(Human|Assistant):")
_LISTS = (
    *("ranked", "ranked_responses", "ranked_answers", "ranked_completions", "best_to_worst"),
    *("responses", "answers", "completions", "candidates", "outputs", "generations"),
)
_CHOICES = ("label", "labels", "better", "better_index", "better_answer", "better_response")
_VERDICTS = ("verdict", "judgment", "judgement", "judge_verdict", "comparison", "decision")
_NOUN = r"(?:(?:model|response|answer|output|assistant|option|completion)_?)?([ab])"
_COMPARED = re.compile(rf"{_NOUN}(?:(>+|<+){_NOUN})?")
_ANSWERS = re.compile(
    r"(output|response|answer|completion|candidate|text|response_model)[_-]?(0|1|2|a|b)"
)


def _side(value: Any, words: dict[str, Any]) -> list[Turn]:
    if isinstance(value, str):
        return [said.assistant(value)]
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        own, weights = said.turns(value, words)
        if any(one not in (None, 1.0) for one in weights):
            raise UnreadError("weights in a pair")
        return own
    raise UnreadError("an answer of another shape")


def _prompt(view: View) -> list[Turn]:
    """The turns before the answers; none where the sides begin with them."""
    value = view.get("instruction")
    if value is not None:
        value = talks.instruction(view)
    elif view.get("context", "contents") is not None:
        raise UnreadError("a context of its own")
    else:
        value = view.get(*_PROMPTS)
    if isinstance(value, str):
        return [said.user(value)]
    return [] if value is None else _side(value, view.words)


def _pair(view: View, chosen: Any, rejected: Any, margin: float | None) -> Sides:
    """Both sides as whole conversations."""
    prompt, sides = _prompt(view), [_side(one, view.words) for one in (chosen, rejected)]
    whole = any(side[0]["role"] != "assistant" for side in sides)
    if whole and prompt and prompt != sides[0][: len(prompt)]:
        raise UnreadError("sides that begin with other turns than the prompt")
    if not whole and not prompt:
        raise UnreadError("a pair without a prompt")
    chosen, rejected = (said.opened(view, side if whole else prompt + side) for side in sides)
    alike = [a == b for a, b in zip(chosen, rejected, strict=False)]
    shared = alike.index(False) if False in alike else len(alike)
    return Sides(tuple(chosen), tuple(rejected), shared, margin, said.tools(view))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadError("a number of another shape")
    return float(value)


def _margin(view: View) -> float | None:
    """The column of that name, or the difference of both sides' numbers."""
    own = view.get("margin")
    scores = []
    for number in _NUMBERS:
        for spell in ("{0}{2}{1}", "{1}{2}{0}"):
            for sign in "_-":
                names = [spell.format(number, one, sign) for one in ("chosen", "rejected")]
                both = [view.get(name) for name in names]
                if None not in both:
                    scores.append(_number(both[0]) - _number(both[1]))
    if own is not None:
        return _number(own)
    if len(set(scores)) > 1:
        raise UnreadError("several scores of a pair")
    return scores[0] if scores else None


def _preference(view: View) -> list[Said]:
    """The two sides in columns named after them, with what they are in front or behind."""
    named = ("{}", *(name for one in _SIDES for name in (f"{{}}_{one}", f"{one}_{{}}")))
    chosen, rejected = (
        view.get(*(name.format(side) for name in named)) for side in ("chosen", "rejected")
    )
    return [_pair(view, chosen, rejected, _margin(view))]


def _dialogues(view: View) -> list[Said]:
    """Whole dialogues as texts; turns are stripped."""
    before = view.text("prompt") or ""
    sides = []
    for name in ("chosen", "rejected"):
        own = str(view.text(name))
        pieces = _SPEAKER.split(own if own.startswith(before) else before + own)
        if pieces[0].strip() or len(pieces) < 5:
            raise UnreadError("a dialogue of another shape")
        found = zip(pieces[1::2], pieces[2::2], strict=True)
        sides.append(
            [(said.user if who == "Human" else said.assistant)(told.strip()) for who, told in found]
        )
    alone = View({k: v for k, v in view.row.items() if k != "prompt"}, "", view.words)
    chosen, rejected = (said.opened(alone, side) for side in sides)
    alike = [a == b for a, b in zip(chosen, rejected, strict=False)]
    shared = alike.index(False) if False in alike else len(alike)
    return [Sides(tuple(chosen), tuple(rejected), shared, _margin(view))]


def _candidates(view: View) -> tuple[Any, Any]:
    """Two answers: a list, or columns that differ in a number or a letter."""
    names = sorted(name for name in view.row if _ANSWERS.fullmatch(name.lower()))
    answers = [view.get(name) for name in names] or view.get(*_LISTS[5:-1])
    if not isinstance(answers, list) or len(answers) != 2 or None in answers:
        raise UnreadError("two answers under other names")
    return answers[0], answers[1]


def _named(choice: str) -> int:
    """Which answer a letter names, or two letters with a sign between them."""
    found = _COMPARED.fullmatch("".join(choice.split()).lower().strip("[]"))
    if found is None or found[1] == found[3]:
        raise UnreadError("a choice in other words")
    better = found[3] if found[2] and found[2][0] == "<" else found[1]
    return "ab".index(better)


def _indexed(view: View) -> list[Said]:
    first, second = _candidates(view)
    names = (*_CHOICES, "winner", "choice", "preferred", "preference", *_VERDICTS)
    choice = view.get(*names)
    if isinstance(choice, str) and choice.strip().isdigit():
        choice = int(choice)
    if isinstance(choice, str):
        at = _named(choice)
    elif isinstance(choice, int) and view.variant in ("0-based", "1-based", "1-is-first"):
        at = {"0-based": choice, "1-based": choice - 1, "1-is-first": 1 - choice}[view.variant]
    else:
        raise UnreadError("an index of which it is not said how it counts")
    if at not in (0, 1):
        raise UnreadError("a choice of another shape")
    chosen, rejected = (first, second) if at == 0 else (second, first)
    return [_pair(view, chosen, rejected, _margin(view))]


def _strength(view: View) -> list[Said]:
    first, second = _candidates(view)
    strength = _number(view.get("preference_strength", "overall_preference"))
    if view.variant == "positive-is-first":
        strength = -strength
    chosen, rejected = (first, second) if strength < 0 else (second, first)
    own = view.get("margin")
    return [_pair(view, chosen, rejected, abs(strength) if own is None else _number(own))]


def _ranked(view: View) -> list[Said]:
    """Answers from the best to the worst, and the pairs that the variant makes of them."""
    answers = view.get(*_LISTS)
    numbers = view.get("scores", "score", "ratings", "rating", "rewards", "reward")
    ranks = view.get("rank", "ranks", "ranking")
    if not isinstance(answers, list) or ranks is not None:
        raise UnreadError("ranked answers of another shape")
    by_rank = False
    if all(isinstance(one, dict) for one in answers):
        texts = ("text", "content", "answer", "response", "completion", "output", "message")
        several = [View(one, "", view.words) for one in answers]
        found = [one.get("overall_score", "score", "rating", "reward") for one in several]
        by_rank = found[0] is None
        found = [one.get("rank") for one in several] if by_rank else found
        numbers, answers = found, [one.get(*texts) for one in several]
        if any(one.get("rank") is not None for one in several) and not by_rank:
            raise UnreadError("a rank and a score")
    if None in answers or not all(isinstance(one, str | dict | list) for one in answers):
        raise UnreadError("an answer of another shape")
    extremes, every = view.variant.endswith("extremes"), view.variant.endswith("all")
    if numbers is None:
        if any(_are_numbers(value, len(answers)) for value in view.row.values()):
            raise UnreadError("numbers of answers under a name that is not known")
        listed: list[tuple[float | None, Any]] = [(None, one) for one in answers]
    elif not isinstance(numbers, list) or len(numbers) != len(answers):
        raise UnreadError("numbers that are not one for each answer")
    else:
        order = sorted(
            ((_number(n), i) for i, n in enumerate(numbers)), key=lambda one: (one[0], one[1])
        )
        order = order if by_rank else sorted(order, key=lambda one: -one[0])
        listed = [(n, answers[i]) for n, i in order]
        if len({n for n, _ in listed}) < len(listed) or view.variant.startswith("in-order"):
            raise UnreadError("answers of one rank")
    pairs = list(combinations(listed, 2)) if every else list(pairwise(listed))
    pairs = [(listed[0], listed[-1])] if extremes else pairs
    own = view.get("margin")
    if own is not None:
        return [_pair(view, a, b, _number(own)) for (_, a), (_, b) in pairs]
    return [
        _pair(view, a, b, None if by_rank or x is None or y is None else x - y)
        for (x, a), (y, b) in pairs
    ]


def _are_numbers(value: Any, count: int) -> bool:
    if not isinstance(value, list) or len(value) != count:
        return False
    return all(isinstance(one, int | float) for one in value)


def _against(view: View) -> list[Said]:
    """A conversation or an exchange, and a rejected answer to the same."""
    talk = view.get("messages", "conversations", "conversation")
    rejected = view.get("rejected_response", "rejected_message", "rejected_messages")
    own = View({k: v for k, v in view.row.items() if k in ("margin", *said.SYSTEM)}, "", view.words)
    if isinstance(talk, list):
        turns = _side(talk, view.words)
        answer = view.get("response", "answer", "output", "completion")
        if turns[-1]["role"] == "assistant":
            turns, answer = turns[:-1], turns[-1]["content"]
        own.row["prompt"] = turns
    else:
        answer = view.get("response", "answer", "output", "completion")
        own.row["prompt"] = view.get("query", "question", "prompt", "input")
    if view.get("history") is not None:
        own.row["history"] = view.get("history")
    return [_pair(own, answer, rejected, _margin(view))]


def _preferred(view: View) -> list[Said]:
    asked = view.get("input")
    if not isinstance(asked, dict) or asked.get("tools"):
        raise UnreadError("an input of another shape")
    own = View({"prompt": asked.get("messages")}, "", view.words)
    chosen, rejected = view.get("preferred_output"), view.get("non_preferred_output")
    return [_pair(own, chosen, rejected, _margin(view))]


def _several(view: View) -> list[Said]:
    chosen, rejected = view.get("chosen"), view.get("rejected")
    if not (isinstance(chosen, list) and isinstance(rejected, list)) or view.variant != "first":
        raise UnreadError("lists of answers")
    return [_pair(view, chosen[0], rejected[0], _margin(view))]


PAIRS: dict[str, Callable[[View], list[Said]]] = {
    "preference": _preference,
    "hh_rlhf": _dialogues,
    "indexed_pair": _indexed,
    "strength_pair": _strength,
    "ranked": _ranked,
    "rejected_response": _against,
    "preferred_output": _preferred,
    "answer_lists": _several,
    "message_tree": trees.pairs,
}
