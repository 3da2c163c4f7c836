"""``instruction``, ``input``, ``output``, or an instruction with several ``instances`` of both.

The input, when there is one, follows the instruction after a blank line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import Columns, Conversation, Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _turns
from stages.formats._asked import one_of, says
from stages.kinds import CONVERSATION
from stages.rows import templated
from stages.rows.watched import Overlaid, peek

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
    extra = [_turns.text(row, name) for name in named]
    if len(extra) > 1:
        raise RowError("bad_column", "input and context both say something; see --map input=input")
    if extra and (dialect := templated.dialect_of(instruction)):
        detail = f"the instruction already carries a chat template ({dialect}), so {named[0]} has "
        raise RowError("bad_column", f"{detail}no place after it")
    return "\n\n".join([instruction, *extra])


def _one(row: Row, options: FormatOptions) -> Conversation:
    name = one_of(row, _OUTPUTS, options.columns, what="answer")
    answer = _turns.text(row, name or _turns.chosen_of(row, _OUTPUTS, options.columns) or "output")
    turns = _turns.exchange(row, asked(row, options), answer, options)
    return Conversation(turns, _turns.tools(row))


class _Alpaca(Format):
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
    exchange = (("instruction",), _OUTPUTS)
    question_goes_on = _INPUTS

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


FORMAT = _Alpaca()
