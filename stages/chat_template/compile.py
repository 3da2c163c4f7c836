"""A chat template compiled: per conversation shape, a list of literals and content slots.

Running Jinja for every row is slow, and most rows differ in their texts only. A conversation's
*shape* is everything about it but its texts: roles, fields, tools, which turns are trained, which
texts are empty. For each shape the template is rendered once with placeholders instead of texts,
for example ``<0>`` and ``<1>``::

    <|im_start|>user\\n<0><|im_end|>\\n<|im_start|>assistant\\n<1><|im_end|>\\n

That text is cut into segments like any other, and becomes a *program*: literals with slots, which
``fill`` fills with the texts of each row of the shape. This is right as long as the template only
concatenates and strips its texts. So the placeholders watch what the template does with them (see
``placeholders``). A question that it asks about a text (``'</think>' in content``) becomes a guard
of the program: rows that would be answered otherwise are rendered by Jinja one by one, and so are
all rows of a shape whose texts the template looks into in another way.

Where training starts and stops is read off the rendered text (see ``trained_spans``), which a
template may print in several ways (see ``ways``).
"""

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stages.chat_template import printed_fields, template
from stages.chat_template import segments as outlines
from stages.chat_template.segments import CONTROL, TRAINED, Segment, cut
from stages.chat_template.trained_spans import Chat
from stages.chat_template.turn_ends import Ends
from stages.chat_template.ways import Behind, Way, Ways
from stages.contract import Message
from stages.errors import RowError

# Texts on which a program is compared with the template: blanks that it might strip, a marker that
# it might split at, characters that it might escape.
_PROBES = (" \n\t", "\n\n</think>\n\n", "{{ x }}&<>'\"\\")
_HIDE, _SHOW = "\ue002", "\ue003"
_HIDDEN = re.compile(f"{_HIDE}(\\d+){_SHOW}")


@dataclass(frozen=True, slots=True)
class Unit:
    """One segment of a program: a literal, or a text between two literals.

    Attributes:
        literals: the template's own text before, between and after the slots: one more than these.
        slots: for each slot the turn whose content fills it, and how it is stripped.
        kind: of the segment, see ``segments``.
    """

    literals: tuple[str, ...]
    slots: tuple[tuple[int, str], ...]
    kind: int

    def filled(self, contents: Sequence[str | None]) -> str:
        """The segment's text for a row's contents."""
        text = self.literals[0]
        for (slot, how), literal in zip(self.slots, self.literals[1:], strict=True):
            text += outlines.stripped(contents[slot] or "", how) + literal
        return text

    def given(self, slot: int, text: str) -> "Unit":
        """The unit with a text in the place of a slot."""
        literals, slots = [self.literals[0]], []
        for (number, how), literal in zip(self.slots, self.literals[1:], strict=True):
            if number == slot:
                literals[-1] += outlines.stripped(text, how) + literal
            else:
                slots.append((number, how))
                literals.append(literal)
        return Unit(tuple(literals), tuple(slots), self.kind)


@dataclass(frozen=True)
class Program:
    """A compiled shape.

    Attributes:
        guards: conditions on a row's texts; where one does not hold, the template would print
            something else than the program.
    """

    units: tuple[Unit, ...]
    guards: tuple[outlines.Guard, ...] = ()

    @functools.cached_property
    def kinds(self) -> bytes:
        """The segments' kinds, one byte each."""
        return bytes(unit.kind for unit in self.units)

    @functools.cached_property
    def outline(self) -> str:
        """What the template prints for rows of this shape; see ``outline``."""
        return outlines.spelled(
            (None if unit.slots else unit.literals[0], unit.kind) for unit in self.units
        )

    def ended(self) -> "Program":
        """The program up to the last trained control token, where a reward is read."""
        last = max(i for i, u in enumerate(self.units) if u.kind & CONTROL and u.kind & TRAINED)
        return replace(self, units=self.units[: last + 1])

    def given(self, slot: int, text: str) -> "Program | None":
        """The program for rows that all have one text in a slot; None where it does not fit it."""
        own = [guard for guard in self.guards if guard.slot == slot]
        if not all(guard.holds(text) for guard in own):
            return None
        units = tuple(unit.given(slot, text) for unit in self.units)
        return Program(units, tuple(guard for guard in self.guards if guard.slot != slot))

    def fits(self, contents: Sequence[str | None]) -> bool:
        """Whether the program prints what the template prints for these contents."""
        return all(guard.holds(contents[guard.slot] or "") for guard in self.guards)

    def fill(self, contents: Sequence[str | None]) -> list[str]:
        """The segments' texts for a row's contents."""
        return [unit.filled(contents) if unit.slots else unit.literals[0] for unit in self.units]


class Compiler:
    """Compiles shapes of one template, and renders what cannot be compiled.

    Args:
        controls: finds control tokens in text.
        ends: what must end every trained turn.
        variants: keyword sets of the generation prompt; see ``ModelProfile.template_variants``.
        train_all: everything is trained, not only the answers.
    """

    def __init__(
        self,
        template: template.Template,
        controls: re.Pattern[str],
        ends: Ends,
        variants: Sequence[dict[str, Any]],
        train_all: bool = False,
    ) -> None:
        self._controls, self._ends = controls, ends
        self._ways = Ways(template, ends=ends, variants=variants, train_all=train_all)
        self.train_all = train_all

    def compile(self, turns: Sequence[Message], tools: list[Any] | None) -> Program | None:
        """The program of the shape that some turns have; None when the template looks into texts.

        Raises:
            RowError: the template refuses the shape, loses a text, or does not end a trained turn.
        """

        def read(way: Way) -> Program | None:
            program = self._compiled(way, turns, tools)
            return None if isinstance(way.template, Behind) else program

        return self._ways.first(turns, read)

    def _compiled(
        self, way: Way, turns: Sequence[Message], tools: list[Any] | None
    ) -> Program | None:
        placed = [
            replace(t, content=outlines.placeholder(i) if t.content else t.content)
            for i, t in enumerate(turns)
        ]
        # Placeholders append to this list of their class whatever the template asks about them.
        guards: list[outlines.Guard] = []
        outlines.Placeholder.guards = guards
        try:
            chat = Chat(placed, tools, placed=True)
            text, spans = way.read(chat)
        except outlines.LookedIntoError:
            return None
        # Each text must be printed once: SLOT finds the placeholders that are left in the output.
        present = sorted(int(match[1]) for match in outlines.SLOT.finditer(text))
        wanted = [i for i, turn in enumerate(turns) if turn.content]
        if present != wanted:
            times = Counter(present)
            missing = [i + 1 for i in wanted if times[i] != 1]
            raise RowError("lost_in_template", f"the template drops or repeats turn {missing[0]}")
        units = tuple(_unit(segment) for segment in cut(text, spans, self._controls))
        program = Program(units, tuple(dict.fromkeys(guards)))
        # Guards repeat where a template asks the same in a loop; dict.fromkeys keeps the first.
        proved = self._holds_in_excerpt(way, chat) or self._holds(way, program, turns, tools)
        return program if proved else None

    def _holds_in_excerpt(self, way: Way, chat: Chat) -> bool:
        """Whether an excerpt proves the program of a long conversation with one trained answer.

        One row may become dozens of such conversations, each a bit longer than the one before, and
        proving each of them on its whole length would take the square of the row's length.
        """
        trained = [i for i, turn in enumerate(chat.turns) if turn.trained]
        if len(trained) != 1 or chat.excerpts.whole(trained[0]):
            return False

        def proves(picked: list[int]) -> bool:
            return self._compiled(way, [chat.turns[i] for i in picked], chat.tools) is not None

        return bool(chat.in_excerpt(trained[0], way.proved, proves)[1])

    def _holds(
        self, way: Way, program: Program, turns: Sequence[Message], tools: list[Any] | None
    ) -> bool:
        """Whether the program prints what the template prints, for texts chosen to tell them apart.

        Catches what the placeholders cannot watch: text captured in a block and changed there.
        """
        for probe in _PROBES:
            contents = [f"{probe}{i}{probe}" if t.content else "" for i, t in enumerate(turns)]
            if not program.fits(contents):
                continue
            texts = [
                replace(turn, content=text if turn.content else turn.content)
                for turn, text in zip(turns, contents, strict=True)
            ]
            rendered = way.rendered(turns, [turn.seen() for turn in texts], tools)
            if "".join(program.fill(contents)) != rendered:
                return False
        return True

    def turn_ends(self, text: str, turns: Sequence[Message], tools: list[Any] | None) -> list[int]:
        """Where each turn stops in the rendered text; raises as ``Spans.turn_ends``."""
        return self._ways.plain.spans.turn_ends(Chat(turns, tools, placed=False), text)

    def segments(self, turns: Sequence[Message], tools: list[Any] | None) -> list[Segment]:
        """Render one row with its own texts.

        A text may hold the text of a control token. Until the rendered text has been cut, such
        tokens are replaced by numbered private-use characters, so that ``cut`` finds the template's
        own tokens only.

        Raises:
            RowError: as ``compile``.
        """
        hidden: list[str] = []

        def hide(match: re.Match[str]) -> str:
            hidden.append(match.group())
            return f"{_HIDE}{len(hidden) - 1}{_SHOW}"

        shown = [
            replace(t, content=t.content and self._controls.sub(hide, t.content)) for t in turns
        ]
        if hidden and any(_HIDDEN.search(turn.content or "") for turn in turns):
            raise RowError(
                "control_text", "a text has a control token and Unicode private-use characters"
            )
        way, text, spans = self._ways.located(shown, tools)
        printed_fields.require_reasoning(
            shown, text, spans, ends=self._ends.tokens, train_all=self.train_all
        )
        segments = cut(text, spans, self._controls)
        if not hidden:
            return segments
        # The template saw other texts than the row's: what it prints with the real ones must be the
        # same, or it did more with a text than print it.
        restored = [(_HIDDEN.sub(lambda m: hidden[int(m[1])], s), kind) for s, kind in segments]
        real = way.rendered(turns, [turn.seen() for turn in turns], tools)
        if "".join(text for text, _ in restored) != real:
            raise RowError("control_text", "the template changes a text that holds a control token")
        return restored


def _unit(segment: Segment) -> Unit:
    """A segment with placeholders as a unit of a program."""
    # split with two groups gives: literal, slot, strips, literal, slot, strips, ..., literal.
    parts = outlines.SLOT.split(segment[0])
    slots = tuple((int(slot), how) for slot, how in zip(parts[1::3], parts[2::3], strict=True))
    return Unit(tuple(parts[::3]), slots, segment[1])
