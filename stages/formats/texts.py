"""Texts in columns of their own: a question and its answer, or one text alone."""

from collections.abc import Mapping, Sequence

from stages.contract import BARE, Columns, Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _turns, message_trees
from stages.formats._asked import one_of, required, says
from stages.kinds import CONVERSATION
from stages.rows import stop_text
from stages.rows.column_names import Overlaid, peek
from stages.rows.speakers import parts_of, role_named

_QUESTIONS = ("question", "query", "problem", "prompt", "input", "input_text", "text_input")
_ANSWERS = ("answer", "response", "solution", "output", "output_text")


def _holds(row: Row, name: str) -> bool:
    """Whether a column says something that can be a question or an answer."""
    value = peek(row, name)
    return says(row, name) and (isinstance(value, str) or _turns.are_turns(value))


def _column(row: Row, what: str, names: tuple[str, ...], options: FormatOptions) -> str:
    """The column of the question, or of the answer.

    Raises:
        RowError: there is none, or two say different things.
    """
    name = one_of(row, names, options.columns, what=what, holds=_holds)
    name = name or _turns.chosen_of(row, names, options.columns)
    return required(name, f"there is no {what} column")


def _asked_and_answered(
    row: Row, question: str, answer: str, options: FormatOptions
) -> list[Message]:
    """A question, which is a text or turns, and the answer to it."""
    answered = _turns.text(row, answer)
    if _turns.are_turns(row[question]):
        return [*_turns.whole(row, question), Message("assistant", answered)]
    return _turns.exchange(row, _turns.text(row, question), answered, options)


class _QueryResponse(Format):
    """A question column and an answer column, under any of their usual names."""

    name = "query_response"
    kinds = (CONVERSATION,)
    columns: Columns = {"question": _QUESTIONS, "answer": _ANSWERS, **_turns.BESIDE}
    prompts = _QUESTIONS
    passes_on = (*_QUESTIONS, *_ANSWERS, *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        question, answer = _turns.first_of(row, _QUESTIONS), _turns.first_of(row, _ANSWERS)
        if "instruction" in row or "chosen" in row or question is None or answer is None:
            return None
        asked = isinstance(row[question], str) or _turns.are_turns(row[question])
        return f"{question} and {answer}" if asked and isinstance(row[answer], str) else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        for what, names in (("question", _QUESTIONS), ("answer", _ANSWERS)):
            if any(name in columns for name in names):
                continue
            said = [[name for name in names if _holds(row, name)] for row in rows]
            able = [name for name in names if any(name in some for some in said)]
            if any(peek(r, n) != peek(r, s[0]) for r, s in zip(rows, said, strict=True) for n in s):
                flags = " or ".join(f"--map {what}={name}" for name in able)
                return f"{' and '.join(able)} could each be the {what}", f"Say which with {flags}"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        stray = peek(row, "instruction") not in (None, "")
        if stray and options.columns.keys().isdisjoint(_QUESTIONS):
            detail = "'instruction' may be a question too; see --format alpaca --map input=COLUMN"
            raise RowError("bad_column", detail)
        question = _column(row, "question", _QUESTIONS, options)
        answer = _column(row, "answer", _ANSWERS, options)
        turns = _asked_and_answered(row, question, answer, options)
        return [Conversation(turns, _turns.tools(row))]


_ASKED = (*_QUESTIONS, "instruction")


class _MessageThinking(Format):
    """``problem``, ``message_thinking`` and ``message_content``: reasoning outside the answer."""

    name = "message_thinking"
    kinds = (CONVERSATION,)
    columns: Columns = {
        "question": _ASKED,
        "reasoning": ("message_thinking",),
        "answer": ("message_content",),
        **_turns.BESIDE,
    }
    prompts = _ASKED

    def matches(self, row: Row) -> str | None:
        question = _turns.first_of(row, _ASKED)
        if question and "message_thinking" in row and isinstance(row.get("message_content"), str):
            return f"{question}, message_thinking and message_content"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        question = one_of(row, _ASKED, options.columns, what="question")
        question = required(question, "there is no question column")
        messages = _asked_and_answered(row, question, "message_content", options)
        if row.get("message_thinking") not in (None, ""):
            thinking = _turns.text(row, "message_thinking")
            messages[-1].fields = {"reasoning_content": thinking}
        return [Conversation(messages, _turns.tools(row))]


class _PromptCompletion(Format):
    """``prompt`` and ``completion``, as text (a user and an assistant turn) or as messages."""

    name = "prompt_completion"
    kinds = (CONVERSATION,)
    columns: Columns = {"question": ("prompt",), "answer": ("completion",), **_turns.BESIDE}
    prompts = ("prompt",)
    passes_on = ("prompt", "completion", *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        return "prompt and completion" if "prompt" in row and "completion" in row else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        prompt, completion = row.get("prompt"), row.get("completion")
        if isinstance(prompt, list) and isinstance(completion, list):
            turns = _turns.whole(row, "prompt") + _turns.conversation(completion, "completion")
        elif isinstance(prompt, list) and isinstance(completion, str):
            turns = [*_turns.whole(row, "prompt"), Message("assistant", completion)]
        elif isinstance(prompt, list) or isinstance(completion, list):
            raise RowError("bad_column", "a completion of turns needs a prompt of turns")
        else:
            asked, answer = _turns.text(row, "prompt"), _turns.text(row, "completion")
            turns = _turns.exchange(row, asked, answer, options)
        return [Conversation(turns, _turns.tools(row))]


class _Text(Format):
    """``text``: bare text, encoded as it is plus the end of turn; all of it is trained.

    A text whose row says who speaks is one turn of a conversation, not a text of its own.
    """

    name = "text"
    kinds = (CONVERSATION,)
    columns: Columns = {"text": ("text",), **_turns.TOOLS}
    prompts = ("text",)

    def matches(self, row: Row) -> str | None:
        if not isinstance(row.get("text"), str) or message_trees.where(row) == "":
            return None
        return "text alone"

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        name = "role" if any(map(_speaker, rows)) else _speakers(rows)
        if name is None:
            return None
        return f"the texts are turns: {name} says who speaks each of them", (
            "Give rows with whole conversations, each turn with who says it (messages); alone a "
            "turn is no conversation"
        )

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        text = _turns.text(row, "text")
        if role := _speaker(row):
            raise RowError("bad_column", f"the text is a turn: role is {role!r}")
        parsed = stop_text.allowed(text, "the text", options.already_templated, whole=True)
        if parsed is None:
            return [Conversation([Message(BARE, text)])]
        return [Conversation(parsed[1].messages, _turns.tools(row))]


def _speaker(row: Row) -> str | None:
    """Who says the text, where the row says so."""
    role = peek(row, "role")
    return role if role_named(role) else None


_SPEAKERS = ("speaker", "sender", "from", "participant")


def _speakers(rows: Sequence[Row]) -> str | None:
    """The column that names a few speakers, each of whom says many of the texts."""
    for name in rows[0]:
        said = [value for row in rows if isinstance(value := peek(row, name), str) and value]
        few = len({*said}) > 1 and 3 * len({*said}) <= len(said)
        if few and not parts_of(name).isdisjoint(_SPEAKERS):
            return name
    return None


TABLE = (_PromptCompletion(), _QueryResponse(), _MessageThinking(), _Text())


# ``instruction``, ``input``, ``output``, or an instruction with several ``instances`` of both.
#
# The input, when there is one, follows the instruction after a blank line.


_INPUTS = ("input", "context")
_OUTPUTS = ("output", "response")
_MORE = ("question", "query", "problem", "prompt")  # where others keep what is asked


def _unread(row: Row, columns: Mapping[str, str]) -> str | None:
    """A column that seems to be asked too, and that nobody said what to do with."""
    if "instruction" in columns or any(name in columns for name in _INPUTS):
        return None
    names = ("instruction", *_INPUTS)
    read = {peek(row, name) for name in names if isinstance(peek(row, name), str)}
    said = {name: peek(row, name) for name in _MORE if isinstance(peek(row, name), str)}
    return next((n for n, text in said.items() if text.strip() and text not in read), None)


def _either(name: str) -> str:
    return f"say which with --map input={name} or --ignore {name}"


def asked(row: Row, options: FormatOptions) -> str:
    """What the user says in an instruction row.

    Raises:
        RowError: a column is not text, two could be the input and ``--map`` picks none, or an
            input stands beside an instruction that carries a chat template.
    """
    instruction = _turns.text(row, "instruction")
    if more := _unread(row, options.columns):
        detail = f"column {more!r} may be part of the question"
        raise RowError("bad_column", f"{detail}; {_either(more)}")
    names = [name for name in _INPUTS if name in options.columns] or _INPUTS
    named = [name for name in names if row.get(name) not in (None, "")]
    extra = [_passages(row, name) for name in named]
    if len(extra) > 1:
        raise RowError("bad_column", "input and context both say something; see --map input=input")
    if extra and (dialect := stop_text.dialect_of(instruction)):
        detail = f"the instruction already carries a chat template ({dialect}), so {named[0]} has "
        raise RowError("bad_column", f"{detail}no place after it")
    return "\n\n".join([instruction, *extra])


def _passages(row: Row, name: str) -> str:
    """A text, or those of a list with a blank line between them."""
    value = row.get(name)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n\n".join(value)
    return _turns.text(row, name)


def _one(row: Row, options: FormatOptions) -> Conversation:
    name = one_of(row, _OUTPUTS, options.columns, what="answer")
    answer = _turns.text(row, name or _turns.chosen_of(row, _OUTPUTS, options.columns) or "output")
    turns = _turns.exchange(row, asked(row, options), answer, options)
    return Conversation(turns, _turns.tools(row))


class _Alpaca(Format):
    """``instruction``, ``input``, ``output``, or an instruction with several ``instances`` of both.

    The input, when there is one, follows the instruction after a blank line.
    """

    name = "alpaca"
    kinds = (CONVERSATION,)
    columns: Columns = {
        "instruction": ("instruction",),
        "input": _INPUTS,
        "answer": _OUTPUTS,
        "instances": ("instances",),
        **_turns.BESIDE,
    }
    prompts = ("instruction",)
    passes_on = ("instruction", *_INPUTS, *_OUTPUTS, *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        if "instruction" not in row or "chosen" in row:
            return None
        if isinstance(row.get("instances"), list):
            return "instruction and instances"
        output = next((name for name in _OUTPUTS if name in row), None)
        return f"instruction and {output}" if output else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        more = next((name for row in rows if (name := _unread(row, columns))), None)
        if more is not None:
            return f"instruction and {more} could each be the question", _either(more).capitalize()
        said = [[peek(row, name) for name in _OUTPUTS if says(row, name)] for row in rows]
        same = all(one == values[0] for values in said for one in values)
        if same or any(name in columns for name in _OUTPUTS):
            return None
        flags = " or ".join(f"--map output={name}" for name in _OUTPUTS)
        return f"{' and '.join(_OUTPUTS)} could each be the answer", f"Say which with {flags}"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [_one(row, options)]

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"instances": _Instances()}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        nested = any(isinstance(row.get("instances"), list) for row in rows)
        return ("instances", "one example per instance") if nested else ("", "")


class _Instances(_Alpaca):
    fans_out = True

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        if "instances" not in row:
            return [_one(row, options)]
        instances = row["instances"]
        if not isinstance(instances, list) or not all(isinstance(one, dict) for one in instances):
            raise RowError("bad_column", "column 'instances' is not a list of objects")
        # Each instance with the row's instruction, which its own keys go before.
        return [_one(Overlaid(row, one), options) for one in instances]


ALPACA = _Alpaca()
