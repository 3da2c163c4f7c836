"""Checks of every example before it is rendered, whatever its format was.

Each function takes one example of its kind, returns it ready for columns, and raises RowError
with a code when it would train nothing or something wrong.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages.contract import BARE, Conversation, Example, Message, Pair, StepChain
from stages.errors import RowError
from stages.rows.stop_text import require_finished

# Results of tools stand in the order of their calls, where the template prints no ids.
#
# Such a template prints the results of a turn's calls one after another. The model learns that the
# first belongs to the first call, whatever id the row gives it.


FIELD = "tool_call_id"
_FIX = "the chat template prints no tool_call_id; put results in the order of their calls"


def _id(value: Any) -> str | None:
    """An id as text, since rows number calls too; None where there is none."""
    return None if value is None or value == "" else str(value)


def _ids(message: Message) -> list[str | None]:
    """The ids of a turn's calls, beside the function or in it; None for a call without one."""
    calls = message.fields.get("tool_calls") if message.fields else None
    return [_id(call.get("id")) or _id(call["function"].get("id")) for call in calls or ()]


def require_order(first: Sequence[Message], side: Sequence[Message] = ()) -> None:
    """Results with ids stand behind their calls, in the order of these.

    Results without an id, and those in a conversation whose calls have none, are of the next call
    of the last turn that waits for one. So is one with an id of its own behind a turn with one
    call. Calls of earlier turns than that of a result get none: the row goes on without it.

    Raises:
        RowError: ``misplaced_result``.
    """
    messages = (*first, *side)
    known = {one for message in messages for one in _ids(message)}
    due: list[list[str | None]] = []  # the calls that wait for a result, turn by turn
    made, last = 0, None  # the calls of the last turn that has any; the call of the last result
    for message in messages:
        if ids := _ids(message):
            due.append(ids)
            made = len(ids)
        if message.role != "tool":
            continue
        of = _id((message.fields or {}).get(FIELD))
        at = next((n for n, ids in enumerate(due[::-1], 1) if of in ids or ids[0] is None), 0)
        alone = not at and len(due) == made == 1 and of not in known
        if of is None or known <= {None} or alone:
            last = due[-1].pop(0) if due else last
        elif at:
            del due[:-at]
            last, wanted = of, due[0].pop(0)
            if wanted not in (of, None):
                what = f"the result of call {of!r} stands where that of {wanted!r} is expected"
                raise RowError("misplaced_result", f"{what}; {_FIX}")
        elif due or of != last:  # else it is one more part of what the last call gave
            what = f"a tool's result says {FIELD} {of!r}, and no such call waits for a result here"
            raise RowError("misplaced_result", f"{what}; {_FIX}")
        due = [ids for ids in due if ids]


# Each rollout has ids of its own; turns that differ in them alone say the same.
_IDS = ("id", FIELD)
CALLS = "tool_calls"


def require_asked(messages: list[Message]) -> None:
    """The first turn after a system text must be the user's, for every model family.

    Raises:
        RowError: ``no_user_turn``, ``begins_with_assistant``.
    """
    roles = [message.role for message in messages if message.role != "system"]
    if "user" not in roles:
        raise RowError("no_user_turn", "no user turn")
    if roles[0] == "assistant":
        what = "the conversation begins with an assistant turn; put the user's turn before it, or "
        raise RowError("begins_with_assistant", f"{what}leave it out with --greeting drop")


def require_said(answered: Iterable[Message], whose: str = "") -> None:
    """Raise ``empty_question`` where a turn of the user, ``whose`` side it is, says nothing."""
    for at, message in enumerate(answered, 1):
        if message.role == "user" and is_empty(message):
            raise RowError("empty_question", f"turn {at} (user){whose} is empty")


def calls(message: Message) -> bool:
    """Whether a turn calls a tool."""
    return bool(message.fields and message.fields.get(CALLS))


def is_empty(message: Message) -> bool:
    """Whether a turn says nothing: blanks alone, and no tool call."""
    return not (message.content and message.content.strip()) and not calls(message)


def notes(messages: list[Message]) -> list[str]:
    """Peculiarities of turns that do not refuse the row; counted in the manifest."""
    found = ["missing_result"] * _lacks_result(messages)
    found += ["result_without_call"] * _answers_no_call(messages)
    roles = [message.role for message in messages]
    if roles[-1] not in ("assistant", BARE):
        return [*found, "ends_without_answer"]
    if any(a == b and a in ("user", "assistant") for a, b in itertools.pairwise(roles)):
        found.append("repeated_role")
    return found


def tool_name(tool: Any) -> str:
    """The name of a declared tool; empty where it has none."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(inner.get("name") or "") if isinstance(inner, dict) else ""


def _lacks_result(messages: Sequence[Message]) -> bool:
    """Whether fewer results than calls stand between two questions, or before the answer; calls
    that end the conversation, or whose results a user tells, lack none."""
    known = {one for message in messages for one in _ids(message)}
    calls, results = 0, set[str]()
    for at, message in enumerate(messages):
        if made := _ids(message):
            if 0 < len(results) < calls:
                return True
            calls, results = (0 if results else calls) + len(made), set()
        elif message.role == "tool":
            of = _id((message.fields or {}).get(FIELD))
            if of is None or not known.isdisjoint((of, None)):  # else it is of no call here
                results.add(of or f" {at}")
        else:
            if len(results) < calls and (results or message.role == "assistant"):
                return True
            calls, results = 0, set()
    return 0 < len(results) < calls


def _answers_no_call(messages: Sequence[Message]) -> bool:
    """Whether a tool speaks behind a turn that calls none. Where no turn has calls as data, any
    answer may be one, since its text may write it out."""
    callers = ("tool",) if any(map(calls, messages)) else ("tool", "assistant")
    may_ask = [False, *(one.role in callers or calls(one) for one in messages)]
    return any(one.role == "tool" and not may_ask[at] for at, one in enumerate(messages))


def pair(
    example: Pair, printed: Collection[str] | None = None
) -> tuple[Conversation, Conversation]:
    """Both sides as whole conversations, of which only the answers are trained.

    Args:
        printed: the fields of a turn that the chat template prints; None for all.

    Raises:
        RowError: ``no_prompt``, what ``require_asked`` and ``require_said`` raise, ``bad_weight``,
            ``empty_answer``, ``identical_pair``, ``questions_differ``; of the chosen side,
            what ``require_finished`` raises. A rejected answer may be cut off.
    """
    if not example.prompt:
        detail = "chosen and rejected share no prompt, or one has no answer behind it"
        raise RowError("no_prompt", detail)
    require_asked(example.prompt)
    if example.prompt[-1].role == "assistant":
        raise RowError("prompt_ends_in_answer", "the prompt ends with an assistant turn")
    for message in (*example.prompt, *example.chosen, *example.rejected):
        if message.weight is not None:
            detail = f"weight {message.weight:g} in a pair: a pair has no loss per turn"
            raise RowError("bad_weight", detail)
    prompt = [replace(message, trained=False) for message in example.prompt]
    sides = []
    for name, answer in (("chosen", example.chosen), ("rejected", example.rejected)):
        require_said((*prompt, *answer), f" of {name}")
        if not answer or answer[-1].role != "assistant":
            raise RowError("empty_answer", f"{name} does not end with an answer")
        if is_empty(answer[-1]):
            raise RowError("empty_answer", f"{name} says nothing")
        if any(message.trained is False for message in answer):
            detail = f"a turn of {name} is not to be trained: a pair trains both"
            raise RowError("bad_weight", detail)
        for message in answer if name == "chosen" else ():
            if message.role == "assistant":
                require_finished(message, "the chosen answer")
        turns = [replace(message, trained=message.role == "assistant") for message in answer]
        sides.append(Conversation([*prompt, *turns], example.tools))
    if sides[0] == sides[1]:
        raise RowError("identical_pair", "chosen and rejected are the same")
    _require_one_question(example.chosen, example.rejected, printed)
    return sides[0], sides[1]


def _without_ids(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _IDS}


def _said(message: Message, printed: Collection[str] | None) -> tuple[str, str, dict[str, Any]]:
    """What a turn says, whether it is trained or not."""
    fields = _without_ids(message.fields or {})
    if printed is not None:
        fields = {name: value for name, value in fields.items() if name in printed}
    if calls := fields.get(CALLS):
        functions = [{**call, "function": _without_ids(call["function"])} for call in calls]
        fields[CALLS] = [_without_ids(call) for call in functions]
    return message.role, message.content or "", fields


def _require_one_question(
    chosen: Sequence[Message], rejected: Sequence[Message], printed: Collection[str] | None = None
) -> None:
    """Two sides of a pair first differ in an answer; what others say behind it may follow from it.

    Otherwise a user or a tool says something else in each, and two questions are compared.

    Args:
        chosen, rejected: the turns behind the prompt.
        printed: the fields of a turn that the chat template prints; None for all.

    Raises:
        RowError: ``questions_differ``: they differ first in a turn of somebody else, or one side
            ends where somebody else goes on in the other.
    """
    alike = (_said(a, printed) == _said(b, printed) for a, b in zip(chosen, rejected, strict=False))
    at = len([*itertools.takewhile(bool, alike)])
    sides = {"chosen": chosen, "rejected": rejected}
    others = {n: side[at].role for n, side in sides.items() if at < len(side)}
    spoken = next(((n, role) for n, role in others.items() if role != "assistant"), None)
    if spoken is None:
        return
    name, role = spoken
    if len(others) == 2:
        how = f"differ first in turn {at + 1} behind the prompt, a {role} turn of {name}"
    else:
        how = f"are alike until {name} goes on with a {role} turn"
    raise RowError("questions_differ", f"chosen and rejected {how}, so they answer two questions")


def is_rewritten(steps: list[str]) -> bool:
    """Whether stripping the steps and joining them removes indents or blank lines.

    One line break between two steps, and blanks at the end of a line, do not count.
    """
    before = ""
    for step in steps:
        lead = step[: len(step) - len(step.lstrip())]
        indent = lead and not lead.endswith(("\n", "\r"))
        if indent or (before + lead).count("\n") > 1:
            return True
        before = step[len(step.rstrip()) :]
    return before.count("\n") > 1


def chain(example: StepChain) -> StepChain:
    """Strip the problem and the steps, as a chat renders them.

    Raises:
        RowError: ``no_problem``, ``no_steps``, ``empty_step``, ``prefixes``, ``nothing_labelled``.
    """
    problem = example.problem.strip()
    steps = [step.strip() for step in example.steps]
    if not problem:
        raise RowError("no_problem", "the problem is empty")
    if not steps:
        raise RowError("no_steps", "there are no steps")
    if "" in steps:
        raise RowError("empty_step", f"step {steps.index('') + 1} is empty")
    grows = all(len(a) < len(b) and b.startswith(a) for a, b in itertools.pairwise(steps))
    if (len(steps) > 2 and grows) or (len(steps) > 1 and all(s.startswith(problem) for s in steps)):
        detail = "each step begins with the problem or with the step before: prefixes, and no steps"
        raise RowError("prefixes", detail)
    if all(label is None for label in example.labels):
        raise RowError("nothing_labelled", "no step has a rating")
    return replace(example, problem=problem, steps=steps)


def counts_from(number: float, lists: Iterable[Any], made: Iterable[Example]) -> set[int] | None:
    """From 0, from 1, or from neither: how a number counts that may be the place of the best answer
    in one of some lists of answers; None where it can be none."""
    pairs = [one for one in made if isinstance(one, Pair)]
    worse = [one.rejected[-1].content for one in pairs]
    better = [text for one in pairs if (text := one.chosen[-1].content) not in worse]
    for answers in (one for one in lists if isinstance(one, list) and len(one) > 1):
        best = {n for n, one in enumerate(answers) if any(_says(one, text) for text in better)}
        if best and number in range(len(answers) + 1):
            return {start for start in (0, 1) if number - start in best}
    return None


def _says(answer: Any, text: str | None) -> bool:
    """Whether an answer of a list is a text, or holds it."""
    plain = (text or "").strip()
    return answer.strip() == plain if isinstance(answer, str) else repr(plain)[1:-1] in repr(answer)


def answers_of(examples: Sequence[Example]) -> int:
    """How many answers the better dialogue of a row has."""
    pairs = (one for one in examples[:1] if isinstance(one, Pair))
    return [turn.role for one in pairs for turn in (*one.prompt, *one.chosen)].count("assistant")
