"""A problem and its steps to segments of text, by the model's own chat template.

Rows of a batch differ in their texts and in how many steps they have. So those with equally many
share an outline, and their texts are put together as columns; see ``shapes``. Rows that the program
of the template does not fit are rendered one by one.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns, contract
from stages.chat_template import segments as outlines
from stages.chat_template.compile import Program
from stages.chat_template.render import COMPILED, Renderer, exchange
from stages.chat_template.segments import CONTROL, STEP, TRAINED, Segment
from stages.chat_template.shapes import SegmentsColumn, asked, printed, trimmed
from stages.columns import Bools, Ints, count_per_row, list_parts, make_list, offsets_of
from stages.errors import RowError


class _Chat(NamedTuple):
    """The program of a question and an answer, for an answer that is cut into steps.

    Attributes:
        at: which of its segments is the answer; ``printed``: what the template prints before it.
        problem: the number of the problem among the turns; the answer is the next one.
    """

    program: Program
    at: int
    printed: str
    problem: int

    def outline(self, steps: int) -> str:
        """The outline of rows with so many steps."""
        units = self.program.units
        # Nothing is trained but markers, which are put behind the steps later.
        around = [(None if u.slots else u.literals[0], u.kind & CONTROL) for u in units]
        return outlines.spelled(
            [*around[: self.at], *[(None, STEP)] * steps, *around[self.at + 1 :]]
        )


def _chat_of(program: Program | RowError | None, problem: int) -> _Chat | None:
    """None where the template does more with the two texts than to print each of them once."""
    if not isinstance(program, Program):
        return None
    own = [(at, unit) for at, unit in enumerate(program.units) if unit.slots]
    if [[slot for slot, _ in unit.slots] for _, unit in own] != [[problem], [problem + 1]]:
        return None
    at, answer = own[1]
    ours = answer.kind & TRAINED and not answer.kind & CONTROL and not answer.literals[1]
    return _Chat(program, at, answer.literals[0], problem) if ours else None


@dataclass
class RenderSteps:
    """PRM: a problem and its steps to segments; each step's text is a segment of its own.

    Attributes:
        raw: the row's own text, without template or roles.
        system: the system text of rows that have none, where the template does not add its own.
    """

    renderer: Renderer
    raw: bool = False
    system: str | None = None
    name: str = "render"
    reads: tuple[str, ...] = ("problem", "system", "steps", "tail")
    writes: tuple[str, ...] = ("outline", "texts", "segments", "rendered")

    def _program(self) -> _Chat | None:
        """The program of all rows; None where each has to be rendered by itself."""
        marker = self.renderer.marker
        if self.raw or (marker and marker.search(self.system or "")):
            return None
        program = self.renderer.program(exchange("x", "y", self.system))
        if self.system is not None and isinstance(program, Program):
            program = program.given(0, self.system)
        return _chat_of(program, int(self.system is not None))

    def _chat(self, asked: str, steps: list[str], own: str | None) -> tuple[list[str], bytes, str]:
        between = self.renderer.step_separator
        # The steps are rendered as one answer, and that segment is then cut into the steps.
        answer = between.join(steps)
        texts, kinds, path = self.renderer(exchange(asked, answer, own or self.system))
        segments: list[Segment] = []
        placed = False
        for text, kind in zip(texts, kinds, strict=True):
            if kind & TRAINED and not kind & CONTROL and text.endswith(answer):
                # The first step keeps what the template prints before an answer.
                first = text.removesuffix(answer) + steps[0]
                segments += [(first, STEP), *((f"{between}{step}", STEP) for step in steps[1:])]
                placed = True
            else:
                segments.append((text, kind & CONTROL))
        if not placed:
            raise RowError(
                "steps_changed", "the chat template does not print the steps as they are"
            )
        return [s[0] for s in segments], bytes(s[1] for s in segments), path

    def _fitting(self, chat: _Chat, problems: pa.Array, offsets: Ints, steps: pa.Array) -> Bools:
        """The rows whose texts the template prints as the program does."""
        answers = pc.binary_join(make_list(offsets, steps), self.renderer.step_separator)
        texts = {chat.problem: problems, chat.problem + 1: answers}
        empty = pc.equal(pc.binary_length(steps), 0).to_numpy(zero_copy_only=False)
        fits: Bools = (np.diff(offsets) > 0) & (count_per_row(offsets, empty) == 0)
        fits &= pc.greater(pc.binary_length(problems), 0).to_numpy(zero_copy_only=False)
        for guard in chat.program.guards:
            fits &= ~asked(guard, texts[guard.slot])
        ((_, how),) = chat.program.units[chat.at].slots
        if how:
            fits &= pc.equal(trimmed(answers, how), answers).to_numpy(zero_copy_only=False)
        if self.renderer.marker is not None:
            for column in texts.values():
                found = pc.match_substring_regex(column, self.renderer.marker.pattern)
                fits &= ~found.to_numpy(zero_copy_only=False)
        return fits

    def _columns(self, batch: contract.Batch) -> contract.Batch:
        """Put ``outline`` and ``texts``: null and empty for rows that are left to be rendered."""
        chat, count = self._program(), batch.num_rows
        problems = batch.column("problem").fill_null("")
        offsets, steps = list_parts(batch.column("steps").fill_null([]))
        fits = np.zeros(count, bool)
        if chat is not None and count:
            fits = self._fitting(chat, problems, offsets, steps)
            fits &= batch.column("system").is_null().to_numpy(zero_copy_only=False)
        if chat is None or not fits.any():
            batch = columns.put(batch, "outline", pa.nulls(count, columns.OUTLINE))
            return columns.put(batch, "texts", make_list(np.zeros(count + 1, np.int64), steps[:0]))
        numbers, which = np.unique(np.where(fits, np.diff(offsets), 0), return_inverse=True)
        spelled = pa.array([chat.outline(number) for number in numbers.tolist()], pa.string())
        outlines = pa.DictionaryArray.from_arrays(pa.array(which, pa.int32(), mask=~fits), spelled)
        batch = columns.put(batch, "outline", outlines)
        return columns.put(batch, "texts", self._texts(chat, problems, offsets, steps, fits))

    def _texts(
        self, chat: _Chat, problems: pa.Array, offsets: Ints, steps: pa.Array, fits: Bools
    ) -> pa.ListArray:
        """The problem and the steps of each row that fits, with what is printed around them."""
        (unit,) = (u for u in chat.program.units if u.slots and u.slots[0][0] == chat.problem)
        begins = np.zeros(len(steps), bool)
        begins[offsets[:-1][np.diff(offsets) > 0]] = True
        # The first step has what the template prints before an answer, the others what separates.
        led = pc.if_else(pa.array(begins), chat.printed, self.renderer.step_separator)
        flat = pa.concat_arrays(
            [printed(unit, lambda _: problems), pc.binary_join_element_wise(led, steps, "")]
        )
        own, sizes = np.arange(len(problems)), np.diff(offsets) + 1
        order = np.insert(len(problems) + np.arange(len(steps)), offsets[:-1], own)
        place = order[np.repeat(fits, sizes)]
        return make_list(offsets_of(np.where(fits, sizes, 0)), flat.take(pa.array(place)))

    def __call__(self, batch: contract.Batch) -> contract.Batch:
        batch = self._columns(batch)
        growing = SegmentsColumn()
        numbers = np.flatnonzero(batch.column("outline").is_null().to_numpy(zero_copy_only=False))
        left = batch.take(pa.array(numbers)) if len(numbers) < batch.num_rows else batch
        names = ("problem", "steps", "tail", "system")
        rows = zip(*(left.column(name).to_pylist() for name in names), strict=True)
        for number, (problem, steps, tail, own) in zip(numbers.tolist(), rows, strict=True):
            try:
                if self.raw:
                    kinds = bytes([STEP] * len(steps) + [0] * bool(tail))
                    led = [self.renderer.led(steps[0]), *steps[1:]]
                    growing.add(number, led + [tail] * bool(tail), kinds, "raw")
                else:
                    growing.add(number, *self._chat(problem, steps, own))
            except RowError as error:
                growing.refuse(number, error)
        return growing.into(batch, "segments", otherwise=COMPILED)
