"""What a row of pairs says: which answers, which of them is better, and by how much."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from expectations.witness import said, talks, trees, turns
from expectations.witness.raw import UnreadError
from expectations.witness.said import Said, Sides, Steps, Talk, View
from expectations.witness.turns import Turn

_PROMPTS = ("prompt", "question", "query", "input", "input_text")
_SIDES = ("response", "messages", "conversations", "conversation")
_NUMBERS = ("score", "rating", "reward", "avg_rating", "reward_score")
_SPEAKER = re.compile(r"(?:^|\n\n)\s*(Human|Assistant):")
_LISTS = ("responses", "answers", "completions", "candidates", "outputs", "summaries")
_TEXTS = ("text", "content", "response", "answer", "output", "completion")
_CHOICES = tuple(
    """label labels better better_index better_answer better_response better_response_id
    safer_response_id preferred preference preferred_index winner choice best""".split()
)
_VERDICTS = ("verdict", "judgment", "judgement", "judge_verdict", "comparison", "decision")
_UNRATED = ("", "n/a", "na", "nan", "none", "null", "unrated", "-")
_WON = {
    **dict.fromkeys("chosen accepted preferred winner better good correct yes true".split(), 1),
    **dict.fromkeys("rejected loser worse bad incorrect wrong no false".split(), 0),
}
_NOUN = r"(?:(?:model|response|answer|output|assistant|option|completion)_?)?([ab])"
_COMPARED = re.compile(rf"{_NOUN}(?:(>+|<+){_NOUN})?")
_SENTENCE = re.compile(r"(?:response|answer|model|output|option) ([ab012]) is (?:\w+ ){0,2}better")
_ANSWERS = re.compile(
    r"(output|response|answer|completion|candidate|text|response_model|conversation|summary"
    r"|generation|human_ref)[_-]?(0|1|2|a|b)"
)


def _side(value: Any, words: dict[str, Any]) -> list[Turn]:
    if isinstance(value, str):
        return [turns.assistant(value)]
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        own, weights = turns.turns(value, words)
        if any(one not in (None, 1.0) for one in weights):
            raise UnreadError("weights in a pair")
        return own
    raise UnreadError("an answer of another shape")


def answer(value: Any, words: dict[str, Any]) -> Any:
    """An answer without the object that its text is in."""
    if isinstance(value, dict) and not {"role", "from"} & value.keys():
        return View(value, "", words).get(*_TEXTS, "message")
    return value


def _prompt(view: View) -> list[Turn]:
    """The turns before the answers; none where the sides begin with them."""
    listed = view.get("conversations", "messages")
    beside = [view.get(name) for name in ("contents", "context")]
    listed = next((one for one in beside if isinstance(one, list)), None) or listed
    meant = "instruction" in view.named or not {"prompt", "question", "query"} & view.named.keys()
    value = talks.instruction(view) if listed is None and meant else listed
    value = view.get(*_PROMPTS) if value is None else value
    if isinstance(value, str):
        return said.opened(view, [turns.user(value)], whole=False)
    return [] if value is None else said.opened(view, _side(value, view.words))


def _shared(chosen: Sequence[Turn], rejected: Sequence[Turn]) -> int:
    """How many turns two conversations begin with alike, up to who asks; each has one more."""
    both = [*zip(chosen, rejected, strict=False)][: min(len(chosen), len(rejected)) - 1]
    count = next((i for i, (a, b) in enumerate(both) if a != b), len(both))
    answers = [turn["role"] == "assistant" for turn in chosen]
    while count and answers[count - 1] and not answers[count]:
        count -= 1
    return count


def pair(view: View, chosen: Any, rejected: Any, apart: float | None) -> Sides:
    """Both sides as whole conversations."""
    prompt, sides = _prompt(view), [_side(one, view.words) for one in (chosen, rejected)]
    whole = [side[0]["role"] != "assistant" for side in sides]
    if not prompt and not all(whole):
        raise UnreadError("a pair without a prompt")
    if all(whole):
        chosen, rejected = (said.opened(view, side) for side in sides)
        if prompt and prompt != chosen[: len(prompt)]:
            raise UnreadError("sides that begin with other turns than the prompt")
        shared = _shared(chosen, rejected)
    else:
        (chosen, rejected), shared = ([*prompt, *side] for side in sides), len(prompt)
    return Sides(tuple(chosen), tuple(rejected), shared, apart, said.tools(view))


def number(value: Any) -> float:
    """A number; raises ``UnreadError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadError("a number of another shape")
    return float(value)


def rating(value: Any) -> float | None:
    """The number of one answer, which may be spelled; None where nobody gave one."""
    if isinstance(value, str):
        value = None if value.strip().lower() in _UNRATED else float(value)
    if value is None or value != value:
        return None
    return float(value) if isinstance(value, bool) else number(value)


def margin(view: View, found: float | None = None) -> float | None:
    """What a column of that name says, or the difference of both sides' numbers.

    Args:
        found: the margin of a format itself, of which columns may have rounded ones.
    """
    own = view.get("margin")
    scores = []
    for name in _NUMBERS:
        for spell in ("{0}{2}{1}", "{1}{2}{0}"):
            for sign in "_-":
                names = [spell.format(name, one, sign) for one in ("chosen", "rejected")]
                both = [view.get(name) for name in names]
                if None not in map(rating, both):
                    scores.append(number(both[0]) - number(both[1]))
    own = None if rating(own) is None else own
    if own is not None and ("margin" in view.named or found is None):
        return number(own)
    if len(set(scores)) > 1:
        raise UnreadError("several scores of a pair")
    return scores[0] if scores and found is None else found


def _preference(view: View) -> list[Said]:
    """The two sides in columns named after them, with what they are in front or behind."""
    named = ("{}", *(name for one in _SIDES for name in (f"{{}}_{one}", f"{one}_{{}}")))
    chosen, rejected = (
        view.get(*(name.format(side) for name in named)) for side in ("chosen", "rejected")
    )
    if "prefix" in view.named:
        before = view.text("prefix") or ""
        if not isinstance(chosen, str) or not isinstance(rejected, str):
            raise UnreadError("answers that go on from something else than a text")
        chosen, rejected = (_after(before, one) for one in (chosen, rejected))
    return [pair(view, chosen, rejected, margin(view))]


def _after(before: str, answer: str) -> str:
    """Two parts of an answer; a blank stands between them, of one of them or of its own."""
    apart = not before or not answer or before != before.rstrip() or answer != answer.lstrip()
    spaced = (before[-1:] + answer[:1]).isascii()  # Chinese and Japanese have no blanks
    return before + answer if apart or not spaced else f"{before} {answer}"


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
            [
                (turns.user if who == "Human" else turns.assistant)(told.strip())
                for who, told in found
            ]
        )
    alone = View({k: v for k, v in view.row.items() if k != "prompt"}, "", view.words)
    chosen, rejected = (said.opened(alone, side) for side in sides)
    shared = _shared(chosen, rejected)
    return [Sides(tuple(chosen), tuple(rejected), shared, margin(view), said.tools(view))]


def _candidates(view: View) -> tuple[list[str], list[Any]]:
    """Two answers, and the names of their columns: a list has none."""
    names = sorted(x for x in {*view.row, *view.named} if _ANSWERS.fullmatch(x.lower()))
    answers = [view.get(name) for name in names] or view.get(*_LISTS)
    if not isinstance(answers, list) or len(answers) != 2 or None in answers:
        raise UnreadError("two answers under other names")
    return names, [answer(one, view.words) for one in answers]


def _named(choice: str, names: Sequence[str]) -> int:
    """Which answer a letter or a column's name names, or two letters with a sign between them."""
    if choice.strip() in names:
        return names.index(choice.strip())
    told, ends = _SENTENCE.fullmatch(choice.strip().lower()), [one[-1].lower() for one in names]
    if told is not None and told[1] in ends:  # response 2 is slightly better
        return ends.index(told[1])
    found = _COMPARED.fullmatch("".join(choice.split()).lower().strip("[]"))
    if found is None or found[1] == found[3]:
        raise UnreadError("a choice in other words")
    better = found[3] if found[2] and found[2][0] == "<" else found[1]
    return "ab".index(better)


def _better(choice: Any, names: Sequence[str], variant: str) -> int:
    """Which answer is the better one: a list may be a winner and both sides, or a flag of each."""
    if isinstance(choice, str) and choice.strip().isdecimal():
        choice = int(choice)
    if isinstance(choice, list) and all(isinstance(one, str) for one in choice):
        flags = [_WON.get(one.strip().lower()) for one in choice]
        choice = choice if None in flags else flags
    if isinstance(choice, list) and len(choice) == 3 and {*choice} == {0, 1}:
        at = choice.index(1) if sum(choice) == 1 else -1
    elif isinstance(choice, list) and len(choice) == 3 and len({*map(str, choice)}) == 2:
        at = choice.index(choice[0], 1) - 1 if isinstance(choice[0], str) else -1
    elif isinstance(choice, list) and len(choice) == 2 and {*choice} == {0, 1}:
        at = choice.index(1)
    elif isinstance(choice, str):
        at = _named(choice, names)
    elif isinstance(choice, int | float) and variant in ("0-based", "1-based", "1-is-first"):
        at = int({"0-based": choice, "1-based": choice - 1, "1-is-first": 1 - choice}[variant])
    else:
        raise UnreadError("an index of which it is not said how it counts")
    if at not in (0, 1):
        raise UnreadError("a choice of another shape")
    return at


def _indexed(view: View) -> list[Said]:
    names, answers = _candidates(view)
    names = [view.named.get(name, name) for name in names]
    told = (*_CHOICES, *_VERDICTS)  # those that the user named, if some are
    said = [view.get(one) for one in [n for n in told if n in view.named] or told]
    places = {_better(one, names, view.variant) for one in said if one is not None}
    if len(places) != 1:
        raise UnreadError("choices of several answers, or none")
    at, scores = places.pop(), view.get("scores") if "scores" in view.named else None
    high, low = (rating(scores[place]) if scores else None for place in (at, 1 - at))
    apart = None if high is None or low is None else high - low
    return [pair(view, answers[at], answers[1 - at], margin(view, apart))]


def _strength(view: View) -> list[Said]:
    _, (first, second) = _candidates(view)
    strength = number(view.get("preference_strength", "overall_preference"))
    if view.variant == "positive-is-first":
        strength = -strength
    chosen, rejected = (first, second) if strength < 0 else (second, first)
    return [pair(view, chosen, rejected, margin(view, abs(strength)))]


def _against(view: View) -> list[Said]:
    """A conversation or an exchange, and a rejected answer to the same."""
    talk = view.get("messages", "conversations", "conversation")
    other = view.get("rejected_response", "rejected_message", "rejected_messages")
    answer = view.get("response", "answer", "output", "completion")
    asked = view.get("query", "question", "prompt", "input")
    if isinstance(talk, list):
        own = said.opened(view, _side(talk, view.words))
    elif isinstance(asked, list):
        own = said.opened(view, _side(asked, view.words))
    elif isinstance(asked, str):
        own = said.opened(view, [turns.user(asked)], whole=False)
    else:
        raise UnreadError("a question of another shape")
    own += [turns.assistant(answer)] if own[-1]["role"] != "assistant" else []
    rejected, at = _side(other, view.words), len(own) - 1
    if rejected[0]["role"] != "assistant":
        rejected = said.opened(view, rejected)
        at = _shared(own, rejected)
    else:
        while len(rejected) > 1 and at and own[at - 1]["role"] != "user":
            at -= 1  # several turns stand for all that follows the question
        rejected = [*own[:at], *rejected]
    return [Sides(tuple(own), tuple(rejected), at, margin(view), said.tools(view))]


def _preferred(view: View) -> list[Said]:
    asked = view.get("input")
    if not isinstance(asked, dict):
        raise UnreadError("an input of another shape")
    tools = {k: asked[k] for k in said.TOOLS if k in asked}
    own = View({"prompt": asked.get("messages"), **tools}, "", view.words)
    chosen, rejected = view.get("preferred_output"), view.get("non_preferred_output")
    return [pair(own, chosen, rejected, margin(view))]


def _several(view: View) -> list[Said]:
    """Lists of answers: a pair of the first ones, or of each with each."""
    sides = [view.get(name) for name in ("chosen", "rejected")]
    sides = [x if isinstance(x, list) and not isinstance(x[0], dict) else [x] for x in sides]
    if view.variant == "all" or sides[0][1:] == sides[1][1:] == []:
        return [pair(view, a, b, margin(view)) for a, b in product(*sides)]
    if view.variant != "first":
        raise UnreadError("lists of answers")
    left = len(sides[0]) + len(sides[1]) - 2
    return [pair(view, sides[0][0], sides[1][0], margin(view)), *[None] * left]


PAIRS: dict[str, Callable[[View], list[Said]]] = {
    "preference": _preference,
    "hh_rlhf": _dialogues,
    "indexed_pair": _indexed,
    "strength_pair": _strength,
    "rejected_response": _against,
    "preferred_output": _preferred,
    "answer_lists": _several,
    "message_tree": trees.pairs,
}


def unfolded(one: Said) -> Said:
    """The same with the turns that a chat template has written into its texts."""
    if isinstance(one, Talk) and one.turns[0]["role"] != "text":
        own, weights = talks.unfolded(one.turns, one.weights)
        return replace(one, turns=tuple(own), weights=tuple(weights))
    if isinstance(one, Sides):
        both = (one.chosen, one.rejected)
        found = [tuple(talks.unfolded(side, [None] * len(side))[0]) for side in both]
        shared = one.shared if found == [*both] else _shared(*found)
        return replace(one, chosen=found[0], rejected=found[1], shared=shared)
    if isinstance(one, Steps) and any(map(talks.inside, (one.problem, *one.steps))):
        raise UnreadError("steps that carry a template")
    return one
