"""A chat template compiled: per conversation shape, a list of literals and content slots.

A conversation's *shape* is everything about it but its texts. For a shape the template is
rendered once with placeholders in the texts' place. The placeholders watch what the template does
with them: as long as it only concatenates them, what it prints is the same for every text, and
the rendering is a program of literals and slots, some of them stripped. What it asks about a text
becomes a condition of the program; rows that do not meet it are rendered one by one, and so are all
rows of a shape whose texts it looks into in another way (see ``placeholders``).

Training starts at the end of the generation prompt, and every trained turn must begin with
exactly the prompt that inference would feed; both are read off renderings of the turns before it.
"""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stages.errors import RowError
from stages.placeholders import (
    SLOT,
    Guard,
    LookedIntoError,
    Placeholder,
    placeholder,
    stripped,
)
from stages.segments import Segment, Span, cut
from stages.template import Template

_TOLD = ("tool_calls", "reasoning_content", "reasoning", "thinking")
_PROBES = (" \n\t", "\n\n</think>\n\n", "{{ x }}&<>'\"\\")
_REASONING = "</think>"
_HIDE, _SHOW = "\ue002", "\ue003"
_HIDDEN = re.compile(f"{_HIDE}(\\d+){_SHOW}")


@dataclass(frozen=True, slots=True)
class Unit:
    """One segment of a program: a literal, or a text between two literals.

    Attributes:
        slots: which contents stand in it, between the literals (one more literal than slots),
            and how each is stripped.
    """

    literals: tuple[str, ...]
    slots: tuple[tuple[int, str], ...]
    kind: int


@dataclass(frozen=True)
class Program:
    """A compiled shape.

    Attributes:
        guards: what must be so of a row's texts, or the program does not print what the template
            does.
    """

    units: tuple[Unit, ...]
    guards: tuple[Guard, ...] = ()

    @functools.cached_property
    def kinds(self) -> bytes:
        """The segments' kinds, one byte each."""
        return bytes(unit.kind for unit in self.units)

    @functools.cached_property
    def _literal(self) -> list[str]:
        """The texts of units without slots; the others are filled in per row."""
        return [unit.literals[0] for unit in self.units]

    @functools.cached_property
    def _single(self) -> list[tuple[int, str, int, str, str]]:
        """Units with one slot, nearly all: place, text before, slot, strips, text behind."""
        found = [(i, unit) for i, unit in enumerate(self.units) if len(unit.slots) == 1]
        return [(i, u.literals[0], *u.slots[0], u.literals[1]) for i, u in found]

    @functools.cached_property
    def _several(self) -> list[tuple[int, Unit]]:
        return [(i, unit) for i, unit in enumerate(self.units) if len(unit.slots) > 1]

    def fits(self, contents: Sequence[str | None]) -> bool:
        """Whether the program prints what the template prints for these contents."""
        return all(guard.holds(contents[guard.slot] or "") for guard in self.guards)

    def fill(self, contents: Sequence[str | None]) -> list[str]:
        """The segments' texts for a row's contents."""
        texts = self._literal.copy()
        for at, before, slot, how, behind in self._single:
            content = contents[slot] or ""
            texts[at] = f"{before}{stripped(content, how) if how else content}{behind}"
        for at, unit in self._several:
            parts = [unit.literals[0]]
            for (slot, how), literal in zip(unit.slots, unit.literals[1:], strict=True):
                parts += (stripped(contents[slot] or "", how), literal)
            texts[at] = "".join(parts)
        return texts


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as the template sees it."""

    role: str
    content: str | None
    fields: dict[str, Any] | None
    trained: bool

    def seen(self) -> dict[str, Any]:
        return {"role": self.role, "content": self.content, **(self.fields or {})}


class Compiler:
    """Compiles shapes of one template, and renders what cannot be compiled.

    Args:
        controls: finds control tokens in text.
        end_of_turn: the token that must end every trained turn.
        variants: keyword sets of the generation prompt.
        train_all: everything is trained, not only the answers.
    """

    def __init__(
        self,
        template: Template,
        controls: re.Pattern[str],
        end_of_turn: str,
        variants: Sequence[dict[str, Any]],
        train_all: bool = False,
    ) -> None:
        self._template = template
        self._controls = controls
        self._end_of_turn = end_of_turn
        self._variants = variants
        self.train_all = train_all

    def compile(self, turns: Sequence[Turn], tools: list[Any] | None) -> Program | None:
        """The program of a shape; None when the template looks into the texts.

        Raises:
            RowError: the template refuses the shape, loses a text, or does not end a trained turn.
        """
        placed = [
            Turn(t.role, placeholder(i) if t.content else t.content, t.fields, t.trained)
            for i, t in enumerate(turns)
        ]
        asked: list[Guard] = []
        Placeholder.asked = asked
        try:
            text, spans = self._rendered(placed, tools)
            self._require_printed(placed, tools, text)
        except LookedIntoError:
            return None
        present = sorted(int(match[1]) for match in SLOT.finditer(text))
        wanted = [i for i, turn in enumerate(turns) if turn.content]
        if present != wanted:
            missing = [i + 1 for i in wanted if present.count(i) != 1]
            raise RowError("lost_in_template", f"the template drops or repeats turn {missing[0]}")
        units = tuple(_unit(segment) for segment in cut(text, spans, self._controls))
        program = Program(units, tuple(dict.fromkeys(asked)))
        return program if self._holds(program, turns, tools) else None

    def _require_printed(self, turns: Sequence[Turn], tools: list[Any] | None, text: str) -> None:
        """What a row says beside its texts must change what is printed.

        Raises:
            RowError: the template drops the tools, a call, or the reasoning of a trained turn.
        """
        seen = [turn.seen() for turn in turns]
        if tools and self._template.render(seen, None) == text:
            detail = "the template does not print the tools; use a --model or a --chat-template"
            raise RowError("lost_in_template", f"{detail} that does")
        for i, turn in enumerate(turns):
            for name in _TOLD if turn.trained else _TOLD[:1]:
                if not (turn.fields or {}).get(name):
                    continue
                without = {key: value for key, value in seen[i].items() if key != name}
                if self._would_print([*seen[:i], without, *seen[i + 1 :]], tools) == text:
                    detail = f"the template does not print {name} of turn {i + 1}"
                    detail += "" if name == _TOLD[0] else "; see --reasoning-in think"
                    raise RowError("lost_in_template", detail)

    def _require_reasoning(self, turns: Sequence[Turn], text: str, spans: Sequence[Span]) -> None:
        """Reasoning inside a trained answer is printed, and so is all that stands around it.

        Templates look for it there, and may move its blanks; many print what follows it alone.

        Raises:
            RowError: a part of such an answer is dropped.
        """
        answers = [i for i, turn in enumerate(turns) if turn.role == "assistant" and turn.trained]
        for i, (begin, stop) in zip(answers, spans, strict=not self.train_all):
            said = turns[i].content or ""
            if _REASONING not in said:
                continue
            # What the prompt opens an answer with, <think> for instance, is not in its span.
            opened = max(0, text.rfind(self._end_of_turn, 0, begin))
            where = text if self.train_all else text[opened:stop]
            if _squeezed(said) not in _squeezed(where):
                detail = f"the template drops a part of turn {i + 1}, which holds {_REASONING}; "
                detail += "use a --chat-template that prints it, or --reasoning strip"
                raise RowError("lost_in_template", detail)

    def _would_print(self, seen: list[dict[str, Any]], tools: list[Any] | None) -> str | None:
        try:
            return self._template.render(seen, tools)
        except RowError:  # a turn without what it said beside its text may be no turn at all
            return None

    def _holds(self, program: Program, turns: Sequence[Turn], tools: list[Any] | None) -> bool:
        """Whether the program prints what the template prints, for texts made to trip it.

        Catches what the placeholders cannot watch: text captured in a block and changed there.
        """
        for probe in _PROBES:
            contents = [
                f"{probe}{i}{probe}" if turn.content else "" for i, turn in enumerate(turns)
            ]
            if not program.fits(contents):
                continue
            texts = [
                Turn(turn.role, text if turn.content else turn.content, turn.fields, turn.trained)
                for turn, text in zip(turns, contents, strict=True)
            ]
            rendered = self._template.render([turn.seen() for turn in texts], tools)
            if "".join(program.fill(contents)) != rendered:
                return False
        return True

    def segments(self, turns: Sequence[Turn], tools: list[Any] | None) -> list[Segment]:
        """Render one row with its own texts.

        Control tokens that a text holds are hidden behind stand-ins until the rendered text has
        been cut, so that they are not taken for the template's own.

        Raises:
            RowError: as ``compile``.
        """
        hidden: list[str] = []

        def hide(match: re.Match[str]) -> str:
            hidden.append(match.group())
            return f"{_HIDE}{len(hidden) - 1}{_SHOW}"

        shown = [
            Turn(t.role, t.content and self._controls.sub(hide, t.content), t.fields, t.trained)
            for t in turns
        ]
        if hidden and any(_HIDDEN.search(turn.content or "") for turn in turns):
            raise RowError("control_text", "a text holds both control tokens and private-use text")
        text, spans = self._rendered(shown, tools)
        self._require_printed(shown, tools, text)
        self._require_reasoning(shown, text, spans)
        segments = cut(text, spans, self._controls)
        if not hidden:
            return segments
        restored = [(_HIDDEN.sub(lambda m: hidden[int(m[1])], s), kind) for s, kind in segments]
        real = self._template.render([turn.seen() for turn in turns], tools)
        if "".join(text for text, _ in restored) != real:
            raise RowError("control_text", "the template changes a text that holds a control token")
        return restored

    def _rendered(self, turns: Sequence[Turn], tools: list[Any] | None) -> tuple[str, list[Span]]:
        seen = [turn.seen() for turn in turns]
        text = self._template.render(seen, tools)
        answers = {
            i: self._answer(text, seen[:i], tools, i)
            for i, turn in enumerate(turns)
            if turn.role == "assistant" and (turn.trained or self.train_all)
        }
        if self.train_all:
            ends = None
            if not all(turn.trained for turn in turns):
                ends = self.turn_ends(text, seen, tools)
            return text, self._all_turns(text, turns, list(answers.values()), ends)
        return text, list(answers.values())

    def turn_ends(
        self, text: str, seen: list[dict[str, Any]], tools: list[Any] | None
    ) -> list[int]:
        """Where each turn stops in the rendered text.

        Raises:
            RowError: the template does not print one turn after the other.
        """
        ends = []
        for i in range(len(seen)):
            prefix = self._template.render(seen[: i + 1], tools)
            if not text.startswith(prefix):
                detail = f"a turn is left out, and the template joins turn {i + 1} with others"
                raise RowError("untrainable_turn", detail)
            ends.append(len(prefix))
        return ends

    def _all_turns(
        self, text: str, turns: Sequence[Turn], answers: list[Span], ends: list[int] | None
    ) -> list[Span]:
        """Every turn up to its end-of-turn token, cut where answers start.

        What stands behind the last one stays untrained, and so do turns that the row leaves out
        (``ends`` says where each turn stops, when there are such).
        """
        stops = [match.end() for match in re.finditer(re.escape(self._end_of_turn), text)]
        spans = []
        own = [] if ends is None else [bisect_left(ends, stop) for stop in stops]
        for at, (start, stop) in enumerate(itertools.pairwise([0, *stops])):
            # Before the first turn's own may stand a system turn that the template brings.
            brought = own[at : at + 2] == [0, 0]
            if not own or brought or turns[own[at]].trained:
                edges = [start, *(a for a, _ in answers if start <= a < stop), stop]
                spans += [(a, b) for a, b in itertools.pairwise(edges) if a < b]
        return spans

    def _answer(
        self, text: str, before: list[dict[str, Any]], tools: list[Any] | None, index: int
    ) -> Span:
        """Where a trained turn starts and stops in the rendered text."""
        prompts = [
            self._template.render(before, tools, add_generation_prompt=True, **variant)
            for variant in self._variants
        ]
        fitting = [len(prompt) for prompt in prompts if text.startswith(prompt)]
        if not fitting:
            detail = f"turn {index + 1} is not rendered behind the prompt that inference would feed"
            raise RowError("not_prefix_stable", detail)
        start = max(fitting)
        stop = text.find(self._end_of_turn, start)
        if stop < 0:
            raise RowError("no_end_of_turn", f"the template does not end turn {index + 1}")
        return start, stop + len(self._end_of_turn)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _unit(segment: Segment) -> Unit:
    parts = SLOT.split(segment[0])
    slots = tuple((int(slot), how) for slot, how in zip(parts[1::3], parts[2::3], strict=True))
    return Unit(tuple(parts[::3]), slots, segment[1])
