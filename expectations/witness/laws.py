"""What holds of an example as its row says it: whether it may be stored at all, what it asks, and
what is counted of it."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from expectations.witness.said import STOPS, Given, Said, Sides, Steps, Talk, plain
from expectations.witness.turns import Turn

FIGURES = "figures"  # beside the columns of an example: what filters may ask of it


def _conversations(said: Said) -> list[Sequence[Turn]]:
    """Those of an example: one, or both sides of a pair."""
    if isinstance(said, Sides):
        return [said.chosen, said.rejected]
    return [said.turns] if isinstance(said, Talk) else []


def ungreeted(said: Said) -> Said:
    """The same without what precedes the user's first turn, but system texts, where the assistant
    begins."""
    sides = _conversations(said)
    roles = [turn["role"] for turn in (sides or [()])[0]]
    at = roles.index("user") if "user" in roles else 0
    if "assistant" not in roles[:at] or (isinstance(said, Sides) and at >= said.shared):
        return said
    kept = [n for n in range(len(roles)) if n >= at or roles[n] == "system"]
    if isinstance(said, Talk):
        weights = tuple(said.weights[n] for n in kept)
        return replace(said, turns=tuple(said.turns[n] for n in kept), weights=weights)
    assert isinstance(said, Sides)
    gone = len(roles) - len(kept)
    head = tuple(said.chosen[n] for n in kept if n < at)
    chosen, rejected = head + tuple(said.chosen[at:]), head + tuple(said.rejected[at:])
    return replace(said, chosen=chosen, rejected=rejected, shared=said.shared - gone)


def _is_empty(turn: Turn) -> bool:
    return not str(turn.get("content") or "").strip() and not turn.get("tool_calls")


def _answered(said: Talk | Sides) -> Sequence[Turn]:
    """The turns of which an answer stands behind some."""
    if isinstance(said, Sides):
        return (*said.chosen, *said.rejected)
    behind = [at for at, turn in enumerate(said.turns) if turn["role"] == "assistant"]
    return said.turns[: max(behind, default=0)]


def refusal(said: Said, words: dict[str, Any]) -> str:
    """Why a row must be refused instead of stored; empty where nothing is known."""
    if isinstance(said, Given) or said is None:
        return ""
    if isinstance(said, Steps):
        if not said.problem.strip() or not said.steps or not all(map(str.strip, said.steps)):
            return "steps: the problem or one of them is empty"
        return "steps: none has a rating" if {*said.ratings} <= {None} else ""
    turns = said.turns if isinstance(said, Talk) else said.chosen[: said.shared]
    if turns and turns[0]["role"] == "text":
        return "text: it is empty" if _is_empty(turns[0]) else ""
    roles = [turn["role"] for turn in turns if turn["role"] != "system"]
    if "user" not in roles or roles[0] == "assistant":
        return "roles: the user does not begin"
    if any(turn["role"] == "user" and _is_empty(turn) for turn in _answered(said)):
        return "questions: one is empty"
    if isinstance(said, Talk):
        if "assistant" not in roles or not any(said.weights):
            return "answers: there is none, or nothing is trained"
        both = zip(said.turns, said.weights, strict=True)
        answers = [turn for turn, weight in both if weight and turn["role"] == "assistant"]
    else:
        answers = [said.chosen[-1], said.rejected[-1]]
        if said.chosen == said.rejected or turns[-1]["role"] == "assistant":
            return "sides: they are alike, or the prompt ends in an answer"
    if any(map(_is_empty, answers)):
        return "answers: one is empty"
    if isinstance(said, Talk):
        behind = [*said.turns[1:], {}]
        each = zip(said.turns, behind, said.weights, strict=True)
        ended = [one for one, after, weight in each if weight and after.get("role") != one["role"]]
        if any(_only_thinks(one) for one in ended if one["role"] == "assistant"):
            return "answers: one is nothing but its reasoning"
    finished = answers if isinstance(said, Talk) else said.chosen[said.shared :]
    if any(turn["role"] == "assistant" and _is_cut_off(turn) for turn in finished):
        return "answers: one was cut off"
    texts = [str(turn.get("content") or "").rstrip() for turn in answers]
    stops = any(text.endswith(STOPS) and "<s>" not in text for text in texts)  # as of HTML
    if stops and words["stop_text"] == "reject":
        return "answers: one ends in a stop as text"
    misplaced = "tool_call_id" not in words["printed"] and any(
        map(_misplaced, _conversations(said))
    )
    return "results: a tool's result does not stand in the order of the calls" if misplaced else ""


def _only_thinks(turn: Turn) -> bool:
    """Whether nothing but blanks stands outside of the blocks of reasoning, all of them closed."""
    *blocks, rest = str(turn.get("content") or "").split("</think>")
    begun = all(block.lstrip().startswith("<think>") for block in blocks)
    return bool(blocks) and begun and not rest.strip() and not turn.get("tool_calls")


def _is_cut_off(turn: Turn) -> bool:
    """Whether an answer says so, or opens a block of reasoning that it does not close."""
    _, closed, text = str(turn.get("content") or "").rpartition("</think>")
    return bool(
        turn.get("unfinished") or re.search(r"\n\s*<think>", f"{'' if closed else chr(10)}{text}")
    )


def _misplaced(turns: Sequence[Turn]) -> bool:
    """Whether results that name calls of one turn stand in another order than the calls."""
    ids: list[Any] = []
    last = -1
    for turn in turns:
        if turn.get("tool_calls"):
            ids, last = [str(one.get("id") or "") for one in turn["tool_calls"]], -1
            ids = ids if "" not in ids and len({*ids}) == len(ids) else []
        of = str(turn.get("tool_call_id"))
        if turn["role"] == "tool" and of in ids:
            if ids.index(of) < last:
                return True
            last = ids.index(of)
    return False


def asked(said: Said) -> tuple[str, ...]:
    """The texts that an example asks before its first answer."""
    if isinstance(said, Steps):
        return (said.problem.strip(),)
    turns = [turn for turn in (_conversations(said) or [()])[0] if turn["role"] != "system"]
    roles = [turn["role"] for turn in turns]
    first = roles.index("assistant") if "assistant" in roles else len(turns)
    return tuple(str(turn.get("content") or "") for turn in turns[: first or len(turns)])


def question(texts: Sequence[str]) -> str:
    """What is asked, by its letters and digits alone."""
    asked = "\n".join(texts)
    folded = unicodedata.normalize("NFKD", asked).casefold()
    return re.sub(r"\W+", "", folded) or unicodedata.normalize("NFKD", asked)


def notes(said: Said) -> set[str]:
    """What the manifest notes of a conversation, but for what is found in its texts."""
    found: set[str] = set()
    for turns in _conversations(said):
        roles = [turn["role"] for turn in turns]
        if roles[-1] not in ("assistant", "text"):
            found.add("ends_without_answer")
        elif any(a == b and a in ("user", "assistant") for a, b in pairwise(roles)):
            found.add("repeated_role")
        if _lacks_result(turns):
            found.add("missing_result")
        as_data = any(turn.get("tool_calls") for turn in turns)
        for before, turn in pairwise([{"role": ""}, *turns]):
            asks = before.get("tool_calls") or (before["role"] == "assistant" and not as_data)
            if turn["role"] == "tool" and not (asks or before["role"] == "tool"):
                found.add("result_without_call")
        if isinstance(said, Sides) and any(one["role"] == "user" for one in turns[said.shared :]):
            found.add("sides_part_early")
    return found


def _text(own: Any) -> str:
    return "" if own is None else str(own)


def _lacks_result(turns: Sequence[Turn]) -> bool:
    """Whether an answer, or more behind some of the results, follows calls of which some have
    none. A result with an id that no call has is of none, where all calls have ids."""
    calling = [one for turn in turns for one in turn.get("tool_calls") or ()]
    ids = {_text(one.get("id", one["function"].get("id"))) for one in calling}
    calls, results = 0, set[str]()
    for at, turn in enumerate((*turns, {"role": ""})):
        made = len(turn.get("tool_calls") or ())
        if turn["role"] == "tool" and not made:
            of = _text(turn.get("tool_call_id"))
            results |= {of or f" {at}"} if not of or "" in ids or of in ids else set()
            continue
        if len(results) < calls and (results or (turn["role"] == "assistant" and not made)):
            return True
        calls, results = made + (calls if made and not results else 0), set()
    return False


def figures(said: Said, words: dict[str, Any], raw: bool) -> dict[str, float]:
    """How many turns and characters an example has; of a pair, the longer side."""
    if isinstance(said, Steps):
        texts = [said.problem, *said.steps]
        return {} if raw else {"n_characters": sum(len(one.strip()) for one in texts)}
    every = [plain(turns, words) for turns in _conversations(said)]
    sizes = [sum(len(str(one.get("content") or "")) for one in turns) for turns in every]
    turns = [sum(turn["role"] != "system" for turn in one) for one in every]
    return {"n_characters": max(sizes), "n_turns": max(turns)} if every else {}
