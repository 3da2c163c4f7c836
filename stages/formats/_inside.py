"""What stands inside of texts beside the same thing as data: tools, their calls, their results.

A chat template prints the tools of a row, wraps the results of tools and writes the calls out.
Where the texts of a row have these already, the model would read them twice. So every example of a
conversation or of a pair comes through here, whatever its format is.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stages.contract import Conversation, Example, FormatOptions, Message, Pair, Row, StepChain
from stages.errors import AskError, RowError
from stages.formats import _rated_steps, _templates, _tools

_RESULT = re.compile(
    r"\s*<(?P<tag>\w*(?:response|result|output)s?)>(?P<said>.*?)</(?P=tag)>\s*", re.DOTALL
)
_CALL = re.compile(r"\s*<(?P<tag>\w*call\w*)>.*?</(?P=tag)>\s*", re.DOTALL)
# How a text lists tools: between tags, after a sentence that announces them, as JSON.
_LISTS = re.compile(r"<\w*(?:tools|functions)>|following (?:tools|functions)|[\"']name[\"']\s*:")
_ALLOW = "--already-templated"


def results(text: str) -> list[str]:
    """The results of tools that a text has between the marks of a chat template; none where it has
    anything else."""
    found, at = [], 0
    while at < len(text) and (match := _RESULT.match(text, at)):
        found.append(match["said"].strip())
        at = match.end()
    return found if at == len(text) else []


def settled(examples: Iterable[Example], row: Row, options: FormatOptions) -> list[Example]:
    """The examples of a row, in which nothing is said both inside of a text and as data; rated
    steps with the row's own system text.

    Raises:
        AskError: something is, and no option says what becomes of it.
        RowError: the two do not say the same.
    """
    return [_settled(one, row, options) for one in examples]


def _settled(example: Example, row: Row, options: FormatOptions) -> Example:
    if isinstance(example, StepChain):
        _templates.require_plain(example)
        own = _rated_steps.system_text(row)
        return example if own is None else replace(example, system=own)
    if isinstance(example, Pair):
        example = _templates.pair(example, options)
    elif isinstance(example, Conversation) and _templates.carry(example.messages):
        example = replace(example, messages=_templates.unfolded(example.messages, options))
    if not isinstance(example, Conversation | Pair):
        return example
    parts = [example.messages] if isinstance(example, Conversation) else _sides(example)
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
    if example.tools and _tools.TOOLS[0] not in options.columns:
        for turn in parts[0]:
            _require_once(turn, example.tools)
    return example


def _sides(pair: Pair) -> list[list[Message]]:
    return [pair.prompt, pair.chosen, pair.rejected]


def _taken(turn: Message) -> list[Any]:
    """The tools that a turn has beside its text, which then stand with the example."""
    held = [name for name in _tools.TOOLS if turn.fields and name in turn.fields]
    if not held or turn.role == "assistant":
        return []
    fields = dict(turn.fields or {})
    listed = [_tools.listed_in(fields.pop(name), f"{name} of a turn") for name in held]
    turn.fields = fields or None
    return next(filter(None, listed), [])


def _name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(inner.get("name") or "") if isinstance(inner, dict) else ""


def _require_once(turn: Message, tools: list[Any]) -> None:
    """Raises AskError where a system text lists the tools that the row has as data too."""
    if turn.role != "system" or not turn.content or not _LISTS.search(turn.content):
        return
    names = [name for name in map(_name, tools) if name and name in turn.content]
    if names:
        what = f"the system text lists the tools of the row too ({names[0]}), so that the template "
        how = "Say which with --ignore tools or, to have both printed, --map tools=tools"
        raise _ask("bad_tools", f"{what}would print them twice", how)


def _ask(code: str, what: str, how: str) -> AskError:
    return AskError(code, f"{what}; {how[:1].lower()}{how[1:]}", how)


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
            raise _ask("already_templated", f"{what} writes it", how)
        return [replace(turn, content=one) for one in said]
    calls = (turn.fields or {}).get("tool_calls")
    if turn.role == "assistant" and calls and (marked := _CALL.findall(text)):
        if not options.already_templated:
            what = f"an answer has its tool calls both in <{marked[0]}> and as data"
            how = f"Add {_ALLOW} to read the data, or --ignore 'messages[].tool_calls' for the text"
            raise _ask("already_templated", what, how)
        if len(marked) != len(calls):
            detail = f"an answer writes {len(marked)} tool calls out and has {len(calls)} as data"
            raise RowError("bad_tool_call", detail)
        return [replace(turn, content=_CALL.sub("", text))]
    return [turn]
