"""The ways in which chat templates write turns as text, each with its own parser."""

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.chat_template.reasoning import FIELD
from stages.contract import Message
from stages.rows.speakers import SPOKEN, role_named

DIALOGUE = "Human/Assistant"  # of the dialect of dialogues in one text
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
STOPS = tuple(_TABLE["stops"])
MARKERS = (*STOPS, *_TABLE["markers"])


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns in a text.

    Attributes:
        closed: whether the last turn's end is marked; False also where a dialect marks none.
        owed: the rest of the last header, where the text ends inside it; an answer that was cut
            out of the same text begins with it.
        unread: what else the text has, which no message here holds; empty for nothing.
    """

    messages: list[Message]
    closed: bool
    owed: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of writing turns as text.

    Attributes:
        opens: pattern of how such a text begins.
        parse: gives its turns; None when the text is not of this dialect.
        closers: markers that may follow an answer that was cut out of such a text.
        strips: whether blanks around a content belong to the format, not to the content.
    """

    name: str
    opens: str
    parse: Callable[[str], Turns | None]
    closers: tuple[str, ...] = ()
    strips: bool = False


def _begun(pattern: re.Pattern[str], text: str) -> tuple[int, list[Message]]:
    """Where the first header of a text stands, and the system turn before it, if there is one."""
    begun = pattern.match(text)
    system = begun.groupdict().get("system") if begun else None
    return begun.end() if begun else 0, [Message("system", system)] if system else []


def _closing(
    name: str,
    opens: str,
    preamble: str,
    header: str,
    gap: str,
    closers: Sequence[str],
    unclosed: str = "",
    loose: bool = False,
) -> Dialect:
    """A dialect that marks both ends of a turn, so that contents are exact.

    Args:
        gap: the text between a header and its turn. The last header of a prompt may lack some of
            it: programs strip prompts, or cut them right after the role.
        unclosed: a role whose turns end where the next one begins.
        loose: a turn may follow its header without a gap.
    """
    whole = f"{header}(?P<gap>{re.escape(gap)}|\\s*\\Z{'|' * loose})"
    head = re.compile(whole)
    before = re.compile(preamble)
    ends = rf"(?:(?:{'|'.join(map(re.escape, closers))})\s*)+"
    close, either = re.compile(ends), re.compile(f"{ends}|(?={whole})")

    def parse(text: str) -> Turns | None:
        at, messages = _begun(before, text)
        closed, owed = True, ""
        while at < len(text):
            header_match = head.match(text, at)
            role = role_named(header_match["role"]) if header_match else None
            if header_match is None or role is None or not closed:
                return None
            bare = header_match.end() == len(text) and header_match["gap"] != gap
            if bare and role != "assistant":
                return None
            owed = gap.removeprefix(header_match["gap"]) if bare else ""
            end = (either if role == unclosed else close).search(text, header_match.end())
            closed = end is not None
            stop, at = end.span() if end else (len(text), len(text))
            messages.append(Message(role, text[header_match.end() : stop]))
        return Turns(messages, closed, owed) if messages else None

    return Dialect(name, opens, parse, tuple(closers))


def _headed(
    name: str,
    opens: str,
    header: str,
    preamble: str = "",
    closers: Sequence[str] = (),
    alone: str = "",
) -> Dialect:
    """A dialect that marks only where a turn begins; blanks around contents are stripped.

    Each role has one word in a text: another one that means it is part of what is said. A mark
    behind which nothing follows is no turn of a user.

    Args:
        closers: markers that may end an answer nevertheless.
        alone: pattern of words of which one mark is enough, with which no question begins.
    """
    head, before = re.compile(header), re.compile(preamble)

    def parse(text: str) -> Turns | None:
        at, messages = _begun(before, text)
        heads = list(head.finditer(text))
        words = {role_named(one["role"]): one["role"] for one in reversed(heads)}
        heads = [one for one in heads if one["role"] in words.values()]
        if not heads or text[at : heads[0].start()].strip():
            return None
        stops = [*(head_match.start() for head_match in heads[1:]), len(text)]
        for head_match, stop in zip(heads, stops, strict=True):
            role = role_named(head_match["role"]) or head_match["role"]
            content = text[head_match.end() : stop].strip()
            for closer in closers:
                content = content.removesuffix(closer)
            if content or not (role == "system" or (role == "user" and stop == len(text))):
                messages.append(Message(role, content))
        roles = {message.role for message in messages}
        single = roles == {"user"} and re.fullmatch(alone, heads[0]["role"])
        return Turns(messages, False) if single or roles >= {"user", "assistant"} else None

    return Dialect(name, opens, parse, tuple(closers), strips=True)


_ALPACA = re.compile(
    r"\s*(?:Below is an instruction that describes a task[^\n]*\n+)?### Instruction:[ \t]*\n"
    r"(?P<asked>.*?)\n?\n### Response:(?:[ \t]*(?:\n|\Z)| ?)(?P<answer>.*)",
    re.DOTALL,
)
_INPUT = re.compile(r"\n\n### Input:[ \t]*\n")


def _alpaca(text: str) -> Turns | None:
    found = _ALPACA.match(text)
    if found is None:
        return None
    instruction, *extra = _INPUT.split(found["asked"], maxsplit=1)
    question = "\n\n".join([instruction, *filter(None, extra)])
    return Turns([Message("user", question), Message("assistant", found["answer"])], False)


_SYS = re.compile(r"\s*<<SYS>>\n(?P<system>.*?)\n<</SYS>>\n\n", re.DOTALL)
_INST = re.compile(
    r"(?:<s>)?\s*\[INST\](?P<asked>.*?)\[/INST\](?P<answer>.*?)(?P<end></s>\s*|(?=\[INST\])|\Z)",
    re.DOTALL,
)


def _inst(text: str) -> Turns | None:
    messages: list[Message] = []
    at, closed = 0, True
    while at < len(text):
        turn = _INST.match(text, at)
        if turn is None:
            return None
        system = None if messages else _SYS.match(turn["asked"])
        if system:
            messages.append(Message("system", system["system"].strip()))
        asked = turn["asked"][system.end() if system else 0 :]
        messages += [Message("user", asked.strip()), Message("assistant", turn["answer"].strip())]
        closed, at = bool(turn["end"]), turn.end()
    return Turns(messages, closed) if messages else None


_HARMONY_TO = r" ?to=[^\s<]+\s*<\|(?:channel|constrain|message)\|>"  # a call, cut behind the role
_HARMONY_OPENS = (
    r"\s*(?:<\|(?:start\|>\w+(?:<\|| to=|\s*\Z)|channel\|>\w+<\|message\|>)"
    rf"|{_HARMONY_TO})"
)
_HARMONY_ENDS = ("<|end|>", "<|return|>", "<|call|>")
# The settings that a template prints by itself are no turn; any others are.
_SETTINGS = re.compile(
    r"\s*(?:<\|start\|>system<\|message\|>You are ChatGPT,[^<#]*"
    r"\nReasoning: medium\s+# Valid channels:[^\n<]*(?:\nCalls to these [^\n<]*)?<\|end\|>)?"
)
# Who says a message, to whom, and on which channel; an answer that was cut out of a text begins
# with its channel, and a prompt ends behind the role.
_MESSAGE = re.compile(
    rf"(?:<\|start\|>(?P<role>[\w.]+)|\A\s*(?=<\|channel\|>|{_HARMONY_TO}))"
    r"(?P<to> ?to=[^\s<]+\s*)?"
    r"(?:<\|channel\|>(?P<channel>\w+)(?P<more>[^<]*(?:<\|constrain\|>[^<]*)?))?"
    r"(?:<\|message\|>|\s*\Z)"
)
_ENDS_MESSAGE = re.compile(rf"(?:(?:{'|'.join(map(re.escape, _HARMONY_ENDS))})\s*)+")
_UNANSWERED = "reasoning without an answer behind it"
# As a template prints a system text.
_TOLD = re.compile(r"# Instructions\n\n(.*?)(?:\n\n)?", re.DOTALL)


def _harmony(text: str) -> Turns | None:
    """Messages on channels: of an answer's, the one that thinks is the reasoning of the final one.
    Those on others, calls and tools are left unread."""
    text = text.lstrip()
    at, messages = _begun(_SETTINGS, text)
    thought: str | None = None
    unread, closed, bare = "", True, False
    while at < len(text):
        head = _MESSAGE.match(text, at)
        if head is None or not closed:
            return None
        role, channel = role_named(head["role"] or "assistant"), head["channel"] or "final"
        end = _ENDS_MESSAGE.search(text, head.end())
        closed = end is not None
        stop, at = end.span() if end else (len(text), len(text))
        content, bare = text[head.end() : stop], not head[0].endswith("<|message|>")
        if bare and (role != "assistant" or head["channel"]):
            return None
        if head["to"] or head["more"] or (role == "system" and "# Tools\n" in content):
            unread = "tools and calls"
        elif role is None:
            return None
        elif role == "assistant" and channel == "analysis" and thought is None:
            thought = content
            continue
        elif channel != "final":
            unread = unread or f"a message on the channel {channel}"
        told = _TOLD.fullmatch(content) if role == "system" else None
        if thought is not None and role != "assistant":
            unread = unread or _UNANSWERED
        messages.append(Message(role or "tool", told[1] if told else content))
        if thought and role == "assistant":
            messages[-1].fields = {FIELD: thought}
        thought = None
    if thought is not None:
        unread = unread or _UNANSWERED
        messages.append(Message("assistant", thought))
    owed = "<|channel|>final<|message|>" if bare else ""
    return Turns(messages, closed, owed, unread) if messages else None


_DIALOGUE = r"(?:\A\s*|\n\n)(?P<role>Human|Assistant):"
# Who speaks, where a line begins, also behind the marks of a heading; words without letter case may
# stand anywhere.
_SPOKEN = (
    r"(?:(?<![^\n])[ \t]*(?:\#{1,4}[ ]?|\*\*)?|(?=[^\W\d_a-zA-Z]))"
    rf"(?P<role>{SPOKEN})(?:\*\*)?[:：](?:\*\*)?"
)
# The same in small letters, or in brackets, which a line may introduce, or in a tag.
_SMALL = rf"(?<![^\n])(?P<role>{SPOKEN.lower()}):"
_BRACKET = rf"\[\|?(?P<role>{SPOKEN}|{SPOKEN.lower()})\|?\][:：]?"
_TAG = rf"<(?P<role>(?i:{SPOKEN.lower()}))>[:：]?"
_INTRODUCED = rf"\A(?:(?P<system>[^\n\[][^\n]*)\n+)?(?={_BRACKET.replace('?P<role>', '')})"
_DIALOGUE_OPENS = (
    r"\s*(?:\#{1,4} ?|\*\*)?"
    r"(?:H(?:uman|UMAN)|U(?:ser|SER)|S(?:ystem|YSTEM)|P(?:rompter|ROMPTER)|用户|系统)"
    rf"(?:\*\*)?[:：]|\s*(?:human|user|prompter):|{_INTRODUCED}"
    rf"|\s*{_TAG.replace('?P<role>', '')}(?![\s\S]*</)"  # no elements of XML
)

DIALECTS = (
    *(_closing(**one) for one in _TABLE["closing"]),
    Dialect("Harmony", _HARMONY_OPENS, _harmony, _HARMONY_ENDS[:2]),
    Dialect("Llama 2 or Mistral", r"(?:<s>)?\s*\[INST\]", _inst, ("</s>",), strips=True),
    Dialect(
        "Alpaca", r"\s*(?:Below is an instruction that describes a task|### Instruction:)", _alpaca
    ),
    *(_headed(**one) for one in _TABLE["headed"]),
    # A dialogue in one text: with blank lines between its turns, else with a line for each.
    *(
        _headed(DIALOGUE, _DIALOGUE_OPENS, header, before, alone="(?i:prompter)")
        for before, header in (
            ("", _DIALOGUE),
            ("", _SPOKEN),
            ("", _SMALL),
            (_INTRODUCED, rf"(?<![^\n]){_BRACKET}"),
            ("", rf"(?<![^\n]){_TAG}"),
        )
    ),
)
