"""Texts in columns of their own: a question and its answer, or one text alone."""

import functools
import re
from collections.abc import Mapping, Sequence

from stages.contract import BARE, Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _fields, _turns, message_trees
from stages.formats._fields import Asking, Field, columns_of, fields_of, is_any, open_question, says
from stages.kinds import CONVERSATION
from stages.rows import stop_text, words
from stages.rows.column_names import EMPTY, Overlaid, peek
from stages.rows.shapes import is_text
from stages.rows.speakers import role_named
from stages.rows.unread import ignore, mapped

_ANSWER = functools.partial(_turns.are_said, calls=True)


class _Exchange(Asking, abstract=True):
    """A format of a question and the answer to it, each in a column of its own."""

    kinds = (CONVERSATION,)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        asked, answer = (self._needs[at].needed(row, options.columns) for at in (0, -1))
        turns = _turns.answered(row, asked, answer)
        if "reasoning" in self.columns:
            _turns.add_reasoning(row, turns)
        return [Conversation(turns, _turns.tools(row))]


class _QueryResponse(_Exchange):
    """A question column and an answer column, under any of their usual names."""

    name = "query_response"
    _needs = fields_of("query_response", question=_turns.are_said, answer=_ANSWER)
    _never = frozenset(("chosen",))
    prompts = _needs[0].names
    passes_on = (*prompts, *_needs[1].names, *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        return None if ALPACA.matches(row) else super().matches(row)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        if says(row, "instruction") and options.columns.keys().isdisjoint(self.prompts):
            detail = "'instruction' may be a question too; see --format alpaca --map input=COLUMN"
            raise RowError("bad_column", detail)
        return super().read(row, options)


class _MessageThinking(_Exchange):
    """``problem``, ``message_thinking`` and ``message_content``: reasoning outside the answer."""

    name = "message_thinking"
    _needs = fields_of(
        "message_thinking", question=_turns.are_said, reasoning=is_any, answer=is_text
    )
    prompts = _needs[0].names


class _PromptCompletion(_Exchange):
    """``prompt`` and ``completion``, as text (a user and an assistant turn) or as messages."""

    name = "prompt_completion"
    _needs = fields_of("prompt_completion", question=is_any, answer=is_any)
    prompts = ("prompt",)
    passes_on = ("prompt", "completion", *_turns.SYSTEM)


class _Text(Format):
    """``text``: bare text, encoded as it is plus the end of turn; all of it is trained.

    A text whose row says who speaks is one turn of a conversation, not a text of its own.
    """

    name = "text"
    kinds = (CONVERSATION,)
    columns = columns_of("text")
    prompts = ("text",)

    def matches(self, row: Row) -> str | None:
        if not isinstance(row.get("text"), str) or message_trees.where(row) == "":
            return None
        return "text alone"

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        name = "role" if any(map(_speaker, rows)) else _speakers(rows)
        if name is None:
            return None
        what = f"the texts are turns: {name} says who speaks each of them"
        how = "Give rows with whole conversations, each turn with who says it (messages); alone a "
        return what, f"{how}turn is no conversation"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        text = _turns.text(row, "text")
        if role := _speaker(row):
            raise RowError("bad_column", f"the text is a turn: role is {role!r}")
        parsed = stop_text.read(text)
        if parsed is None:
            return [Conversation([Message(BARE, text)])]
        stop_text.require_allowed(parsed, "the text", options.already_templated)
        turns = _turns.joined(_turns.before(row), parsed[1].messages)
        return [Conversation(turns, _turns.tools(row))]


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
        if few and any(part in _SPEAKERS for part in words.parts(name)):
            return name
    return None


_COLUMNS = columns_of("alpaca")
_INPUTS, _OUTPUTS = _COLUMNS["input"], _COLUMNS["answer"]
_MORE = ("question", "query", "problem", "prompt")  # where others keep what is asked
_INPUT = Field("input", _INPUTS)
_HEADS = re.compile(r"^#+ ?\w", re.MULTILINE)


def _require_all_read(row: Row, columns: Mapping[str, str]) -> None:
    """Nothing else seems to be asked than what is read.

    Raises:
        AskError: a column does, and nobody said what to do with it.
    """
    if not columns.keys().isdisjoint(("instruction", *_INPUTS)):
        return
    read = {value for name in ("instruction", *_INPUTS) if is_text(value := peek(row, name))}
    answers = [value for name in _OUTPUTS if is_text(value := peek(row, name))]
    for name in _MORE:
        value = peek(row, name)
        if is_text(value) and value.strip() and value not in read:
            if all(text.strip() in value for text in (*read, *answers)) and read and answers:
                _ = row[name]  # read: the whole row again, rendered
                continue
            what = f"instruction and {name} could each be the question"
            ways = [mapped("input", name), ignore(name)]
            # What made the answer may have it inside, or examples of it, each under a head.
            inside = any(text and text in value for text in map(str.strip, read))
            if inside or len(_HEADS.findall(value)) > 1:
                ways = [ignore(name), mapped("instruction", name)]
            raise open_question(what, f"Say which with {' or '.join(ways)}")


def asked(row: Row, options: FormatOptions) -> str:
    """What the user says in an instruction row.

    Raises:
        RowError: a column is not text, two could be the input and ``--map`` picks none, or an
            input stands beside an instruction that carries a chat template.
    """
    instruction = _turns.text(row, "instruction")
    _require_all_read(row, options.columns)
    name = _INPUT.of(row, options.columns)
    if name is None or row[name] in (None, ""):
        return instruction
    if dialect := stop_text.dialect_of(instruction):
        detail = f"the instruction already carries a chat template ({dialect}), so {name} has "
        raise RowError("bad_column", f"{detail}no place after it")
    more = _passages(row, name)
    return f"{instruction}\n\n{more}" if more else instruction


def _passages(row: Row, name: str) -> str:
    """A text, or those of a list with a blank line between them; options with their letters, also
    in a list among other texts."""
    value = row.get(name)
    if isinstance(value, dict) and _fields.are_options(value):
        return "\n".join(f"{letter}. {said}" for letter, said in value.items() if said)
    if isinstance(value, list):
        told = [words.lettered(one) for one in value if one not in EMPTY]
        if all(map(is_text, told)):
            return "\n\n".join(told)
    return _turns.text(row, name)


class _Alpaca(Asking):
    """``instruction``, ``input``, ``output``, or an instruction with several ``instances`` of both.

    The input, when there is one, follows the instruction after a blank line.
    """

    name = "alpaca"
    kinds = (CONVERSATION,)
    _needs = (Field("question", ("instruction",), is_any), Field("answer", _OUTPUTS, is_any))
    _never = frozenset(("chosen",))
    columns = _COLUMNS
    prompts = ("instruction",)
    passes_on = ("instruction", *_INPUTS, *_OUTPUTS, *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        if isinstance(row.get("instances"), list) and "instruction" in row and "chosen" not in row:
            return "instruction and instances"
        return super().matches(row)

    def _one(self, row: Row, options: FormatOptions) -> Example:
        answer = _turns.text(row, self._needs[1].needed(row, options.columns))
        said = Message("user", asked(row, options)), Message("assistant", answer)
        turns = [*_turns.before(row), *said]
        _turns.add_reasoning(row, turns)
        return Conversation(turns, _turns.tools(row))

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [self._one(row, options)]

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"instances": _Instances()}

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        nested = any(isinstance(row.get("instances"), list) for row in rows)
        return ("instances", "one example per instance") if nested else ("", "")


class _Instances(_Alpaca):
    fans_out = True

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        if "instances" not in row:
            return super().read(row, options)
        instances = row["instances"]
        if not isinstance(instances, list) or not all(isinstance(one, dict) for one in instances):
            raise RowError("bad_column", "column 'instances' is not a list of objects")
        # Each instance with the row's instruction, which its own keys go before.
        return [self._one(Overlaid(row, one), options) for one in instances]


ALPACA = _Alpaca()
TABLE = (_PromptCompletion(), _QueryResponse(), _MessageThinking(), _Text(), ALPACA)
