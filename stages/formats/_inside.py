"""What stands inside of texts: turns that a chat template wrote, and tools beside the same as data.

Texts that carry a chat template, in any turn, side or step, are replaced by the turns inside.
A chat template prints the tools of a row, wraps the results of tools and writes the calls out.
Where the texts of a row have these already, the model would read them twice. So every example of a
conversation or of a pair comes through here, whatever its format is.
"""

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stages.chat_template import reasoning
from stages.contract import Conversation, Example, FormatOptions, Message, Pair, Row, StepChain
from stages.errors import AskError, RowError
from stages.formats import _pairs, _parts, _rated_steps, _turns
from stages.formats._fields import open_question
from stages.rows import stop_text
from stages.rows.dialects import DIALOGUE, Dialect, Turns
from stages.rows.examples import tool_name
from stages.rows.speakers import ASSISTANT, SYSTEM, USER

_RESULT = re.compile(
    r"\s*<(?P<tag>\w*(?:response|result|output)s?)>(?P<said>.*?)</(?P=tag)>\s*", re.DOTALL
)
_CALL = re.compile(r"\s*<(?P<tag>\w*call\w*)>.*?</(?P=tag)>\s*", re.DOTALL)
# Where an answer begins a call, and does not talk of the mark. In a fence it shows one.
_BEGINS = re.compile(
    r"(?:^[ \t]*<tool_call>(?=\s*[{\[<]|[ \t]*$)|<tool_call>(?=[ \t]*\n\s*[{\[<]))\s*", re.MULTILINE
)
_ENDS = "</tool_call>"
_FENCED = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
# How a text lists tools: between tags, after a sentence that announces them, as JSON.
_LISTS = re.compile(r"<\w*(?:tools|functions)>|following (?:tools|functions)|[\"']name[\"']\s*:")
_ALLOW = "--already-templated"


_TEMPLATED = "already_templated"
Templated = tuple[Dialect, Turns]


def _turns_in(turn: Message) -> Templated | None:
    """The turns in the text of one; None where it is a text like any other. An answer may be that
    of the assistant alone, between its marks."""
    text = turn.content
    if turn.role not in (USER, ASSISTANT) or not text or not stop_text.opens(text):
        return None
    found = stop_text.read(text, alone=turn.role == ASSISTANT)
    if found is None or (turn.role == ASSISTANT and found[0].name == DIALOGUE):
        return None  # an answer may be a dialogue
    return found if turn.role == ASSISTANT or stop_text.is_asked(found) else None


def carry(turns: list[Message]) -> bool:
    """Whether a text of some turns carries a chat template."""
    return any(map(_turns_in, turns))


def unfolded(turns: list[Message], options: FormatOptions) -> list[Message]:
    """Turns with those inside of their texts.

    Raises:
        RowError: nobody allowed it, or the turns inside do not fit the others.
    """
    out: list[Message] = []
    asked: Templated | None = None  # the question that the next answer continues
    for turn in turns:
        found = _turns_in(turn)
        if found is not None:
            stop_text.require_allowed(found, f"a turn ({turn.role})", options.already_templated)
        begins = ASSISTANT if found is None else found[1].messages[0].role
        whole = turn.role == ASSISTANT and begins != ASSISTANT
        if asked is not None and turn.role == ASSISTANT and not whole:
            said = stop_text.answered(*asked, turn.content or "")
            out = _turns.joined(out, [*said[:-1], _filled(turn, said[-1])])
            asked = None
            continue
        if asked is not None:
            out, asked = _turns.joined(out, stop_text.question(asked[1])), None
        if found is None:
            out.append(turn)
        elif turn.role == USER:
            asked = found
        else:
            out = _continued(out, found[1].messages, turn)
    return out if asked is None else _turns.joined(out, stop_text.question(asked[1]))


def _filled(turn: Message, inside: Message) -> Message:
    """A turn with the text and the fields of the one inside of it."""
    fields = {**(turn.fields or {}), **(inside.fields or {})}
    return replace(turn, content=inside.content, fields=fields or None)


def _said(turns: list[Message]) -> list[tuple[str, str]]:
    return [(one.role, (one.content or "").strip()) for one in turns if one.role != SYSTEM]


def _continued(before: list[Message], inside: list[Message], turn: Message) -> list[Message]:
    """The turns before an answer and those inside of it, which may repeat them.

    Raises:
        RowError: they are other ones.
    """
    last = _filled(turn, inside[-1])
    if inside[0].role == ASSISTANT and len(inside) == 1:
        return [*before, last]
    repeats = _said(before) in ([], _said(inside[:-1]))
    if inside[-1].role != ASSISTANT or not repeats:
        detail = "an answer carries a chat template, and its turns do not repeat those before it"
        raise RowError(_TEMPLATED, detail)
    ahead = [one for one in before if one.role == SYSTEM]
    return _turns.joined(ahead, [*inside[:-1], last])


def pair(example: Pair, options: FormatOptions) -> Pair:
    """The same of both sides of a pair behind their prompt."""
    sides = [[*example.prompt, *side] for side in (example.chosen, example.rejected)]
    if not any(map(carry, sides)):
        return example
    chosen, rejected = (unfolded(side, options) for side in sides)
    prompt = _pairs.split(chosen, rejected)
    return replace(example, prompt=prompt, chosen=chosen, rejected=rejected)


def results(text: str) -> list[str]:
    """The results of tools that a text has between the marks of a chat template; none where it has
    anything else."""
    found, at = [], 0
    while at < len(text) and (match := _RESULT.match(text, at)):
        found.append(match["said"].strip())
        at = match.end()
    return found if at == len(text) else []


def broken_call(text: str) -> str:
    """What is wrong with a call that an answer writes out behind its reasoning; empty for nothing.

    Models write JSON there, or syntax of their own, of which only the end is known.
    """
    if "<tool_call>" not in text:
        return ""
    said = _FENCED.sub("", text.rpartition(reasoning.CLOSE)[2])
    for begun in _BEGINS.finditer(said):
        call, end, _ = said[begun.end() :].partition(_ENDS)
        if not end:
            return f"has no {_ENDS}"
        if call.startswith(("{", "[")) and not _is_value(call.strip()):
            return f"is not JSON: {call.strip():.80}"
    return ""


def _is_value(text: str) -> bool:
    """Whether a text is JSON, or the same as Python prints it, which public data sets have."""
    try:
        (ast.literal_eval if text.lstrip("[{ \n").startswith("'") else json.loads)(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def settled(examples: Iterable[Example], row: Row, options: FormatOptions) -> list[Example]:
    """The examples of a row, in which nothing is said both inside of a text and as data; rated
    steps with the row's own system text.

    Raises:
        AskError: something is, and no option says what becomes of it.
        RowError: the two do not say the same.
    """
    try:
        return [_settled(one, row, options) for one in examples]
    except RowError as error:
        if error.code == "two_system_texts" and not isinstance(error, AskError):
            raise _turns.two_systems(row, error.detail) from error
        raise


def _settled(example: Example, row: Row, options: FormatOptions) -> Example:
    if isinstance(example, StepChain):
        return _asked(example, _rated_steps.system_text(row), options)
    if isinstance(example, Pair):
        example = pair(example, options)
        parts, trained = [example.prompt, example.chosen, example.rejected], example.chosen
    elif isinstance(example, Conversation):
        if carry(example.messages):
            example = replace(example, messages=unfolded(example.messages, options))
        parts, trained = [example.messages], example.messages
    else:
        return example
    named: list[Any] = []
    for turns in parts:
        if any(turn.role == "tool" or turn.fields for turn in turns):
            turns[:] = [one for turn in turns for one in _unmarked(turn, options)]
            named += [listed for turn in turns if (listed := _taken(turn))]
    if named:
        given = [one for one in (example.tools, *named) if one]
        if any(one != given[0] for one in given):
            raise RowError("bad_tools", "two places of the row name different tools")
        example = replace(example, tools=given[0])
    # An answer that is rejected, or a rated step, may be bad for its call.
    for turn in trained:
        may_train = turn.role == ASSISTANT and turn.content and turn.trained is not False
        if may_train and (wrong := broken_call(turn.content or "")):
            raise RowError("bad_tool_call", f"a <tool_call> in an answer {wrong}")
    if example.tools and _parts.TOOLS[0] not in options.columns:
        for turn in parts[0]:
            _require_once(turn, example.tools)
    return example


def _asked(chain: StepChain, own: str | None, options: FormatOptions) -> StepChain:
    """Rated steps with the question that stands in their problem, and the row's own system text.

    Raises:
        RowError: more than the question stands in it, or another system text; a step, which is a
            piece of one answer, carries a chat template.
    """
    for number, step in enumerate(chain.steps, 1):
        if (found := _turns_in(Message(ASSISTANT, step))) is not None:
            detail = f"step {number} carries a chat template ({found[0].name}); give its text alone"
            raise RowError(_TEMPLATED, detail)
    turns = [Message(USER, chain.problem)]
    if carry(turns):
        turns = unfolded([*([Message(SYSTEM, own)] if own else []), *turns], options)
        if turns[0].role == SYSTEM:
            own = turns.pop(0).content
        if [turn.role for turn in turns] != [USER]:
            raise RowError("bad_column", "the templated problem has more than one question")
        chain = replace(chain, problem=turns[0].content or "")
    return replace(chain, system=own) if own and own.strip() else chain


def _taken(turn: Message) -> list[Any]:
    """The tools that a turn has beside its text, which then stand with the example."""
    held = [name for name in _parts.TOOLS if turn.fields and name in turn.fields]
    if not held or turn.role == "assistant":
        return []
    fields = dict(turn.fields or {})
    listed = [_parts.listed_in(fields.pop(name), f"{name} of a turn") for name in held]
    turn.fields = fields or None
    return next(filter(None, listed), [])


def _require_once(turn: Message, tools: list[Any]) -> None:
    """Raises AskError where a system text lists the tools that the row has as data too."""
    if turn.role != "system" or not turn.content or not _LISTS.search(turn.content):
        return
    names = [name for name in map(tool_name, tools) if name and name in turn.content]
    if names:
        what = f"the system text lists the tools of the row too ({names[0]}), so that the template "
        how = "Say which with --ignore tools or, to have both printed, --map tools=tools"
        raise open_question(f"{what}would print them twice", how, "bad_tools")


def _unmarked(turn: Message, options: FormatOptions) -> list[Message]:
    """A turn without the marks that the template puts around what it says.

    Several results in one text are turns of their own.
    """
    text = turn.content or ""
    if turn.role == "tool" and (said := results(text)):
        if not options.already_templated:
            mark = text.lstrip().partition(">")[0]
            what = f"a tool's result already stands between {mark}> and its end, as a template"
            how = f"Add {_ALLOW} to read what is between, or --role tool=user to keep it as it is"
            raise open_question(f"{what} writes it", how, _TEMPLATED)
        return [replace(turn, content=one) for one in said]
    calls = (turn.fields or {}).get("tool_calls")
    if turn.role == "assistant" and calls and (marked := _CALL.findall(text)):
        if not options.already_templated:
            what = f"an answer has its tool calls both in <{marked[0]}> and as data"
            how = f"Add {_ALLOW} to read the data, or --ignore 'messages[].tool_calls' for the text"
            raise open_question(what, how, _TEMPLATED)
        if len(marked) != len(calls):
            detail = f"an answer writes {len(marked)} tool calls out and has {len(calls)} as data"
            raise RowError("bad_tool_call", detail)
        return [replace(turn, content=_CALL.sub("", text))]
    return [turn]
