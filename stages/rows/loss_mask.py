"""Which turns of a conversation are trained: by their own flags, else by ``--train-on``; and which
are left out, as nobody asked for them, or as they say nothing."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stages.contract import BARE, Columns, Conversation, Message, Row
from stages.errors import AskError, RowError
from stages.rows import examples, stop_text
from stages.rows.column_names import peek
from stages.rows.unread import differs_from

# Characters of all examples that one conversation may become; each turn counts _TURN more.
MOST_SPLIT = 1 << 26
_TURN = 64
NOTHING_SAID = (" is null, not text", " says nothing")  # how errors of columns without a text end
# By what a column means, who says nothing where it is blank, and as what such a row is refused.
_SILENT = {
    **dict.fromkeys(("answer", "answers"), ("assistant", "empty_answer")),
    **dict.fromkeys(("question", "prompt", "instruction"), ("user", "empty_question")),
}


def _decide(message: Message, where: int, last: int, train_on: str) -> bool:
    """Whether a turn is trained: its own flag, else the policy."""
    may_be = train_on == "all" or message.role == "assistant"
    if message.trained and not may_be:
        detail = f"turn {where + 1} ({message.role}) is marked as trained; see --train-on all"
        raise RowError("untrainable_turn", detail)
    policy = may_be and (train_on != "last" or where == last)
    return policy if message.trained is None else message.trained


def conversation(example: Conversation, train_on: str) -> Conversation:
    """Decide which turns are trained; refuse a conversation that trains nothing or is broken.

    Raises:
        RowError: ``no_answer``, what ``require_asked`` and ``require_said`` raise,
            ``nothing_trained``, ``empty_answer``, ``unclosed_reasoning``, ``reasoning_twice``,
            ``unfinished_answer``.
    """
    messages = example.messages
    if messages[0].role == BARE:
        if examples.is_empty(messages[0]):
            raise RowError("empty_answer", "the text is empty")
        return Conversation([replace(messages[0], trained=True)])
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        raise RowError("no_answer", "no assistant turn: there is nothing to train")
    examples.require_asked(messages)
    examples.require_said(messages[:last])
    some = False
    for i, message in enumerate(messages):
        trained = _decide(message, i, last, train_on)
        if trained and message.role == "assistant":
            if examples.is_empty(message):
                raise RowError("empty_answer", f"turn {i + 1} (assistant) is empty")
            behind = messages[i + 1].role if i + 1 < len(messages) else ""
            goes_on = examples.calls(message) or behind == "assistant"
            if stop_text.only_reasons(message.content or "") and not goes_on:
                detail = f"turn {i + 1} (assistant) says nothing behind its reasoning"
                raise RowError("empty_answer", detail)
            stop_text.require_finished(message, f"turn {i + 1} (assistant)")
        message.trained = trained
        some |= trained
    if not some:
        raise RowError("nothing_trained", "no turn is trained")
    return example


def told_of_nothing(made: Any, row: Row, names: Columns, columns: Mapping[str, str]) -> Any:
    """The examples of a row, or its error; where a column has nothing instead of a text, what is
    asked about that.

    Args:
        names: the columns of each meaning that the row's format knows; ``columns``: how the file
            calls them.
    """
    code, detail, name = getattr(made, "code", ""), getattr(made, "detail", ""), ""
    if isinstance(made, list):
        silent = {turn.role for turn in stop_text.turns_of(made) if examples.is_empty(turn)}
        each = ((code, one) for one, (role, code) in _SILENT.items() if role in silent)
        told = ((code, name) for code, one in each for name in names.get(one, ()))
        code, name = next((one for one in told if peek(row, one[1]) == ""), ("", ""))
        detail = f"column {columns.get(name, name)!r} says nothing"
    elif code == "bad_column" and detail.endswith(NOTHING_SAID):
        name = detail.split("'")[1]
    if not name:
        return made
    return AskError(code, detail, f"Add {differs_from(columns.get(name, name), peek(row, name))}")


def left_greeting(messages: list[Message]) -> bool:
    """Take out, in place, what is said before the user's first turn where the assistant begins;
    whether there was something."""
    roles = [message.role for message in messages]
    first = roles.index("user") if "user" in roles else 0
    if "assistant" not in roles[:first]:
        return False
    messages[:first] = [one for one in messages[:first] if one.role == "system"]
    return True


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
