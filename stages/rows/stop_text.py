"""Stop tokens that were written as text, and texts that already carry a chat template.

Answers copied from a chat log or a completion API often end in ``<|im_end|>`` or ``</s>``. In a
row that is ordinary text: the model would learn to write those characters, and then to stop. So
such a row is refused unless ``--stop-text`` says whether to remove the text (``strip``) or to train
it (``keep``).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stages.chat_template.reasoning import CLOSE, FIELD, OPEN
from stages.contract import BARE, Conversation, Example, Message, Pair, StepChain
from stages.errors import RowError
from stages.rows import words
from stages.rows.dialects import DIALECTS, DIALOGUE, STOPS, Dialect, Turns

REJECT, KEEP, STRIP = "reject", "keep", "strip"
POLICIES = (REJECT, KEEP, STRIP)
NOTES = {KEEP: "stop_text_kept", STRIP: "stop_text_stripped"}
LAST = {stop[-1] for stop in STOPS}


def ending_stop(text: str) -> str | None:
    """The stop token that a text ends in, not counting blanks; None when it ends in none."""
    stripped_text = text.rstrip()
    if stripped_text[-1:] not in LAST or not stripped_text.endswith(STOPS):
        return None
    stop = next(stop for stop in STOPS if stripped_text.endswith(stop))
    # In HTML, which writes so what is struck through, as many of them are opened.
    struck = stop == "</s>" and stripped_text.count("<s>") >= stripped_text.count(stop)
    return None if struck else stop


def stripped(text: str) -> str:
    """A text without the stop tokens at its end, and without the blanks behind them."""
    while stop := ending_stop(text):
        text = text.rstrip().removesuffix(stop)
    return text


def turns_of(examples: Iterable[Example]) -> Iterator[Message]:
    """Every turn of some examples."""
    for example in examples:
        if isinstance(example, Conversation):
            yield from example.messages
        elif isinstance(example, Pair):
            yield from (*example.prompt, *example.chosen, *example.rejected)


def _treated(text: str | None, policy: str, where: str) -> str | None:
    """A text as the policy has it; None where it ends in no stop token."""
    stop = ending_stop(text) if text else None
    if text is None or stop is None:
        return None
    if policy == REJECT:
        detail = f"{where} ends in the text {stop!r}, which a model would learn to write out; add "
        detail += "--stop-text strip to remove it, or --stop-text keep to train it as text"
        raise RowError("stop_text", detail)
    return stripped(text) if policy == STRIP else text


def treat(example: Example, policy: str) -> str | None:
    """Apply ``--stop-text`` to the answers of an example, in place.

    Args:
        policy: one of ``POLICIES``.

    Returns:
        The note that the row gets; None when no answer ends in a stop token.

    Raises:
        RowError: ``stop_text``: one does, and the policy is ``reject``.
    """
    seen = False
    if isinstance(example, StepChain) and example.steps:
        last = _treated(example.steps[-1], policy, "the last step")
        if last is not None:
            example.steps[-1], seen = last, True
            if example.pieces is not None and policy == STRIP:
                example.pieces[-2] = stripped(example.pieces[-2])
    answers = (turn for turn in turns_of([example]) if turn.role in ("assistant", BARE))
    for number, turn in enumerate(answers, 1):
        where = "the text" if turn.role == BARE else f"answer {number}"
        if (text := _treated(turn.content, policy, where)) is not None:
            turn.content, seen = text, True
    return NOTES[policy] if seen else None


# Answers that were cut off: trained like complete ones, they teach a model to stop too early.


_OPENED = re.compile(rf"(?:\A|\n)\s*{OPEN}")
_BLOCK = re.compile(rf"{OPEN}.*?{CLOSE}", re.DOTALL)
_CUT = ("length", "max_tokens", "max_output_tokens", "model_length")
_ENDED = ("stop", "end_turn", "stop_sequence", "eos", "tool_calls")
_LONGER = 24  # characters, of which none of these has as many
_ENDING, _WORSE = words.exact("ended", "sign"), words.exact("worse", "both", "role")
# Fields of a turn, and which of their values mean that the turn is not complete.
FLAGS: dict[str, Callable[[Any], bool]] = {
    "prefix": lambda value: value is True,
    "partial": lambda value: value is True,
    "end_turn": lambda value: value is False,
    "finish_reason": lambda value: value in _CUT,
    "stop_reason": lambda value: value in _CUT,
    "status": lambda value: value in ("incomplete", "in_progress"),
}


def _why_ended(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text at a path, or inside it, that says as a whole why an answer ended."""
    if isinstance(value, str) and value[:_LONGER].casefold() in (*_CUT, *_ENDED):
        yield path, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _why_ended(f"{path}.{key}", one)
    elif isinstance(value, list):
        for at, one in enumerate(value):
            if isinstance(one, str | dict | list):
                yield from _why_ended(f"{path}[]" if isinstance(one, dict) else f"{path}.{at}", one)


def cut_at(path: str, values: Iterable[Any]) -> list[tuple[str, str]]:
    """Where in the values of a column it stands that an answer was cut off, and in which words, if
    its name says so or others there came to an end. A rejected answer may be cut off."""
    told = dict.fromkeys(pair for value in values for pair in _why_ended(path, value))
    said = {where: {*words.words(where)} for where, _ in told}
    ended = {where for where, why in told if why.casefold() in _ENDED}
    ended |= {where for where in said if "reason" in said[where] and said[where] & _ENDING}
    cut = [(where, why) for where, why in told if why.casefold() in _CUT]
    return [(where, why) for where, why in cut if where in ended and not said[where] & _WORSE]


def opens_reasoning(text: str) -> bool:
    """Whether a text opens a block of reasoning and does not close it."""
    if OPEN not in text:
        return False
    last = text.rfind(CLOSE)
    return _OPENED.search(text, max(last, 0)) is not None


def only_reasons(text: str) -> bool:
    """Whether a text is closed blocks of reasoning, and nothing behind or between them."""
    return text.rstrip().endswith(CLOSE) and not _BLOCK.sub("", text).strip()


def require_finished(message: Message, where: str) -> None:
    """Refuse a trained answer that is not complete.

    Raises:
        RowError: ``unclosed_reasoning``, ``reasoning_twice``, ``unfinished_answer``.
    """
    answer, thought = message.content or "", (message.fields or {}).get(FIELD)
    twice = isinstance(thought, str) and (OPEN in thought or CLOSE in thought)
    if twice or (thought and answer.lstrip().startswith(OPEN)):
        detail = f"{where} has {OPEN} or {CLOSE} in its {FIELD}, or a block of it beside it"
        raise RowError("reasoning_twice", detail)
    if message.content and opens_reasoning(message.content):
        detail = f"{where} opens {OPEN} and never closes it: it was cut off inside its reasoning"
        raise RowError("unclosed_reasoning", detail)
    for name, value in (message.fields or {}).items():
        if name in FLAGS and isinstance(value, str | bool) and FLAGS[name](value):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            detail = f"{where} has {name}: {shown}, so it is the beginning of an answer"
            raise RowError("unfinished_answer", f"{detail}; leave it out, or do not train it")


# Texts that already carry a chat template, and the turns inside them.
#
# A text is *already templated* when it begins with a turn marker and parses as turns from there to
# its end. Rendered as the content of one turn it would be templated twice. Its turns, parsed here,
# are rendered once, to the ids that the conversation has without any template.


_NO_REASONING = re.compile(rf"\s*{OPEN}\s*{CLOSE}\s*")
# What a templated text can begin with.
FIRST = (
    *("<", "[", "#", "*", "Be", "A ", "to=", " ", "\n", "\t", "\r"),
    *("Hu", "HU", "Us", "US", "Sy", "SY", "Pr", "PR", "hu", "us", "pr", "用", "系"),
)
_OPENS = re.compile("|".join(dict.fromkeys(dialect.opens for dialect in DIALECTS)))


def may_open(text: str) -> bool:
    """Whether a text may begin with a turn marker, or with a line that introduces one."""
    return text.startswith(FIRST) or "\n[" in text


def opens(text: str) -> re.Match[str] | None:
    """The turn marker that a text begins with."""
    return _OPENS.match(text) if may_open(text) else None


def read(text: Any, alone: bool = False) -> tuple[Dialect, Turns] | None:
    """The dialect and the turns of a text; None of any other value, and when it is not templated.

    Args:
        alone: also where nobody but the assistant speaks in the text.
    """
    for dialect in DIALECTS if isinstance(text, str) and opens(text) else ():
        turns = dialect.parse(text) if re.match(dialect.opens, text) else None
        if turns and (alone or any(one.role == "user" for one in turns.messages)):
            return dialect, turns
    return None


def dialect_of(value: Any) -> str | None:
    """The dialect's name, when the value is a text that is already templated."""
    templated = read(value)
    return templated[0].name if templated else None


def is_asked(found: tuple[Dialect, Turns]) -> bool:
    """Whether the turns in a question are the question: a dialogue that has its last answer is what
    is asked about, like any text."""
    last = found[1].messages[-1]
    return found[0].name != DIALOGUE or last.role != "assistant" or not last.content


def require_allowed(found: tuple[Dialect, Turns], where: str, allowed: bool) -> None:
    """Refuse templated text without ``--already-templated``, and one of which a part is unread.

    Raises:
        RowError: the option was not given, or does not help.
    """
    dialect, turns = found
    carries = f"{where} already carries a chat template ({dialect.name})"
    if turns.unread:
        detail = f"{carries} with {turns.unread}; give its turns as messages"
        raise RowError("already_templated", detail)
    if not allowed:
        raise RowError("already_templated", f"{carries}; see --already-templated")


def _unclosed(answer: str, dialect: Dialect) -> str:
    """An answer without the end marker of a turn behind it."""
    text = answer
    for _ in range(2):  # the end of the turn, and the end of the text
        trimmed = text.rstrip()
        closer = next((c for c in dialect.closers if trimmed.endswith(c)), None)
        text = trimmed[: -len(closer)] if closer else text
    return text.strip() if dialect.strips else text


def _begun(prompt: Turns) -> tuple[list[Message], str]:
    """The turns of a templated prompt, and the text of the answer that it begins.

    An empty block of reasoning is none: the template prints it by itself.
    """
    *turns, last = prompt.messages
    if last.role != "assistant" or prompt.closed:
        return [*turns, last], ""
    start = last.content or ""
    return turns, "" if _NO_REASONING.fullmatch(start) else start


def answered(dialect: Dialect, prompt: Turns, answer: str) -> list[Message]:
    """A templated prompt's turns and the answer to them.

    Where the prompt begins the answer, with ``<think>`` for instance, the answer continues it,
    unless it has its own beginning.

    Raises:
        RowError: a part of the answer is unread.
    """
    messages, start = _begun(prompt)
    own = dialect.parse(answer)
    own = own if own and own.messages[0].role == "assistant" else None
    if own is not None:
        require_allowed((dialect, own), "the answer", allowed=True)
        if not start.strip():
            return messages + own.messages
    text = _unclosed(answer.removeprefix(prompt.owed), dialect)
    if start.strip() == OPEN and text.lstrip().startswith(OPEN):
        start = ""
    elif dialect.strips and start == OPEN:
        start += "\n"  # which the dialect has stripped
    return [*messages, Message("assistant", start + text)]


def question(prompt: Turns) -> list[Message]:
    """A templated prompt's turns without an empty beginning of the answer (``<think>``)."""
    turns, start = _begun(prompt)
    return turns if start.strip() in ("", OPEN) else prompt.messages
