"""Checks of every example before it is rendered, whatever its format was.

Each function takes one example of its kind, returns it ready for columns, and raises RowError
with a code when it would train nothing or something wrong.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from stages.contract import BARE, Conversation, Message, Pair, StepChain
from stages.conversations.unfinished import require_finished
from stages.errors import RowError

# Characters of all examples that one conversation may become; each turn counts _TURN more.
MOST_SPLIT = 1 << 26
_TURN = 64
_NO_USER_TURN = "no user turn"


_ANSWERS_NOBODY = (
    "the conversation begins with an assistant turn; "
    "leave its first turn out, or put the user's turn before it"
)


def _require_asked(messages: list[Message]) -> None:
    """The first turn after a system text must be the user's, for every model family.

    Raises:
        RowError: ``no_user_turn``, ``begins_with_assistant``.
    """
    if all(message.role != "user" for message in messages):
        raise RowError("no_user_turn", _NO_USER_TURN)
    first = next(message.role for message in messages if message.role != "system")
    if first == "assistant":
        raise RowError("begins_with_assistant", _ANSWERS_NOBODY)


def _is_empty(message: Message) -> bool:
    return not (message.content and message.content.strip()) and not (
        message.fields and message.fields.get("tool_calls")
    )


def _is_plain(messages: list[Message]) -> bool:
    """One question and one answer without flags, for which nothing is to decide; most rows."""
    if len(messages) != 2:
        return False
    question, answer = messages
    return (
        question.role == "user"
        and answer.role == "assistant"
        and question.trained is None
        and answer.trained is None
        and not _is_empty(answer)
    )


def _decide(message: Message, where: int, last: int, train_on: str) -> bool:
    """Whether a turn is trained: its own flag, else the policy."""
    if message.trained is not None:
        if message.trained and message.role != "assistant" and train_on != "all":
            detail = f"turn {where + 1} ({message.role}) is marked as trained; see --train-on all"
            raise RowError("untrainable_turn", detail)
        return message.trained
    if train_on == "all":
        return True
    return message.role == "assistant" and (train_on != "last" or where == last)


def conversation(example: Conversation, train_on: str) -> Conversation:
    """Decide which turns are trained; refuse a conversation that trains nothing or is broken.

    Raises:
        RowError: ``no_answer``, ``no_user_turn``, ``begins_with_assistant``, ``nothing_trained``,
            ``empty_answer``, ``unclosed_reasoning``, ``unfinished_answer``.
    """
    messages = example.messages
    if train_on != "all" and _is_plain(messages):
        require_finished(messages[1], "turn 2 (assistant)")
        messages[0].trained, messages[1].trained = False, True
        return example
    if messages[0].role == BARE:
        if _is_empty(messages[0]):
            raise RowError("empty_answer", "the text is empty")
        return Conversation([replace(messages[0], trained=True)])
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        raise RowError("no_answer", "no assistant turn: there is nothing to train")
    _require_asked(messages)
    some = False
    for i, message in enumerate(messages):
        trained = _decide(message, i, last, train_on)
        if trained and message.role == "assistant":
            if _is_empty(message):
                raise RowError("empty_answer", f"turn {i + 1} (assistant) is empty")
            require_finished(message, f"turn {i + 1} (assistant)")
        message.trained = trained
        some |= trained
    if not some:
        raise RowError("nothing_trained", "no turn is trained")
    return example


def turn_by_turn(example: Conversation) -> list[Conversation]:
    """One example per trained turn: the turns up to it, of which only that one is trained.

    A text without turns stays one example.

    Raises:
        RowError: ``too_many_turns``: together they would have more than ``MOST_SPLIT`` characters.
    """
    turns = example.messages
    if turns[0].role == BARE:
        return [example]
    answers = [i for i, turn in enumerate(turns) if turn.trained and turn.role == "assistant"]
    sizes = [_TURN + len(turn.content or "") + len(str(turn.fields or "")) for turn in turns]
    # Example n repeats all turns before its own, so their sum grows with the square of the length.
    upto = list(itertools.accumulate(sizes, initial=0))
    total = sum(upto[i + 1] for i in answers)
    if len(answers) > 1 and total > MOST_SPLIT:
        detail = f"the chat template needs one example per trained turn, and the {len(answers):,} "
        detail += f"of this conversation would repeat {total:,} characters of earlier turns, "
        detail += f"above the limit of {MOST_SPLIT:,}; cut it into shorter rows, or use "
        raise RowError("too_many_turns", f"{detail}--train-on last")
    context = [replace(turn, trained=False) for turn in turns]
    return [Conversation([*context[:i], turns[i]], example.tools) for i in answers]


def notes(messages: list[Message]) -> list[str]:
    """Peculiarities of turns that do not refuse the row; counted in the manifest."""
    if len(messages) == 2 and messages[0].role == "user" and messages[1].role == "assistant":
        return []
    roles = [message.role for message in messages]
    if roles[-1] not in ("assistant", BARE):
        return ["ends_without_answer"]
    if any(a == b and a in ("user", "assistant") for a, b in itertools.pairwise(roles)):
        return ["repeated_role"]
    return []


def pair(example: Pair) -> tuple[Conversation, Conversation]:
    """Both sides as whole conversations, of which only the answers are trained.

    Raises:
        RowError: ``no_prompt``, ``no_user_turn``, ``begins_with_assistant``, ``bad_weight``,
            ``empty_answer``, ``identical_pair``; of the chosen side, ``unclosed_reasoning`` and
            ``unfinished_answer``. A rejected answer may be cut off.
    """
    if not example.prompt:
        raise RowError("no_prompt", "chosen and rejected share no prompt")
    _require_asked(example.prompt)
    if example.prompt[-1].role == "assistant":
        raise RowError("prompt_ends_in_answer", "the prompt ends with an assistant turn")
    for message in (*example.prompt, *example.chosen, *example.rejected):
        if message.weight is not None:
            raise RowError(
                "bad_weight", f"weight {message.weight:g} in a pair: a pair has no loss per turn"
            )
    prompt = [replace(message, trained=False) for message in example.prompt]
    sides = []
    for name, answer in (("chosen", example.chosen), ("rejected", example.rejected)):
        if not answer or answer[-1].role != "assistant" or _is_empty(answer[-1]):
            raise RowError("empty_answer", f"{name} does not end with an answer")
        if any(message.trained is False for message in answer):
            raise RowError(
                "bad_weight", f"a turn of {name} is not to be trained: a pair trains both"
            )
        for message in answer if name == "chosen" else ():
            if message.role == "assistant":
                require_finished(message, "the chosen answer")
        turns = [replace(message, trained=message.role == "assistant") for message in answer]
        sides.append(Conversation([*prompt, *turns], example.tools))
    if sides[0] == sides[1]:
        raise RowError("identical_pair", "chosen and rejected are the same")
    return sides[0], sides[1]


def is_rewritten(steps: list[str]) -> bool:
    """Whether stripping the steps and joining them removes indents or blank lines.

    One line break between two steps, and blanks at the end of a line, do not count.
    """
    before = ""
    for step in steps:
        body = step.lstrip()
        lead = step[: len(step) - len(body)]
        if not lead.endswith(("\n", "\r")) and lead:
            return True
        if (before + lead).count("\n") > 1:
            return True
        before = step[len(step.rstrip()) :]
    return before.count("\n") > 1


def chain(example: StepChain) -> StepChain:
    """Strip the problem and the steps, as a chat renders them.

    Raises:
        RowError: ``no_problem``, ``no_steps``, ``empty_step``, ``nothing_labelled``.
    """
    problem = example.problem.strip()
    steps = [step.strip() for step in example.steps]
    if not problem:
        raise RowError("no_problem", "the problem is empty")
    if not steps:
        raise RowError("no_steps", "there are no steps")
    if "" in steps:
        raise RowError("empty_step", f"step {steps.index('') + 1} is empty")
    if all(label is None for label in example.labels):
        raise RowError("nothing_labelled", "no step has a rating")
    return StepChain(problem, steps, example.labels, example.pieces)
