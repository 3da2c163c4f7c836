"""Tools are printed, calls trained and outputs not, or rows that have them are refused."""

from __future__ import annotations

import json

from stages.chat_template.render import Row
from stages.errors import RowError
from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import Rendering

_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up_word",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
_CALL = {"function": {"name": "look_up_word", "arguments": {"word": "quince"}}}
_OUTPUT = "a sour fruit"


def _row(*trained: int) -> Row:
    """A question, a call, its output and an answer, up to the last trained turn."""
    fields = json.dumps({"tool_calls": [{"id": "abcdefghi", "type": "function", **_CALL}]})
    output = json.dumps({"name": "look_up_word", "tool_call_id": "abcdefghi"})
    stop = trained[-1] + 1
    return Row(
        roles=["user", "assistant", "tool", "assistant"][:stop],
        contents=["What is a quince?", None, _OUTPUT, "It is a fruit."][:stop],
        fields=[None, fields, output, None][:stop],
        trained=[i in trained for i in range(stop)],
        tools=json.dumps([_TOOL]),
    )


def _check(subject: ProbeSubject) -> str:
    try:
        call = Rendering(*subject.renderer(_row(1)))
        answer = Rendering(*subject.renderer(_row(3)))
    except RowError as error:
        return f"rows with tools are refused: {error.detail}"
    for word in ("look_up_word", "quince"):
        if word not in call.text(trained=True):
            raise BrokenError(detail=f"a call is trained as {call.text(trained=True)!r}")
    # With --train-on all, the turn in which the tools are printed is trained, too.
    printed = call.whole if subject.train_on == "all" else call.text(trained=False)
    if "Looks a word up." not in printed:
        raise BrokenError(detail="the tools are not printed")
    if _OUTPUT not in answer.whole:
        raise BrokenError(detail="the output of a tool is not printed")
    if subject.train_on != "all" and _OUTPUT in answer.text(trained=True):
        raise BrokenError(detail="the output of a tool is trained")
    return "tools are printed, a call is trained, its output is not"


PROBE = Probe(
    name="tools_survive",
    proves="tools are printed, calls trained and outputs not, or rows that have them are refused",
    fails="the chat template loses tools: {detail}",
    remedy="Give one with --chat-template that prints tools, or leave them out: --ignore tools.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
