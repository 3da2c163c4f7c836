"""A problem and its steps to segments of text, by the model's own chat template."""

from __future__ import annotations

from dataclasses import dataclass

from stages.chat_template.render import Renderer, Row
from stages.chat_template.segments import CONTROL, STEP, TRAINED, Segment
from stages.chat_template.segments_column import SegmentsColumn
from stages.contract import Batch
from stages.errors import RowError


@dataclass
class RenderSteps:
    """PRM: a problem and its steps to segments; each step's text is a segment of its own.

    Attributes:
        raw: the row's own text, without template or roles.
        system: the system text, where the template does not add its own.
    """

    renderer: Renderer
    raw: bool = False
    system: str | None = None
    name: str = "render"
    reads: tuple[str, ...] = ("problem", "steps", "tail")
    writes: tuple[str, ...] = ("segments", "rendered")

    def _chat(self, problem: str, steps: list[str]) -> tuple[list[str], bytes, str]:
        between = self.renderer.step_separator
        # The steps are rendered as one answer, and that segment is then cut into the steps.
        answer = between.join(steps)
        roles = ["user", "assistant"]
        row = Row(roles, [problem, answer], fields=[None] * 2, trained=[False, True], tools=None)
        if self.system is not None:
            row.prepend(self.system)
        texts, kinds, path = self.renderer(row)
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

    def __call__(self, batch: Batch) -> Batch:
        growing = SegmentsColumn()
        names = ("problem", "steps", "tail")
        rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        for number, (problem, steps, tail) in enumerate(rows):
            try:
                if self.raw:
                    kinds = bytes([STEP] * len(steps) + [0] * bool(tail))
                    led = [self.renderer.led(steps[0]), *steps[1:]]
                    growing.add(number, led + [tail] * bool(tail), kinds, "raw")
                else:
                    growing.add(number, *self._chat(problem, steps))
            except RowError as error:
                growing.refuse(number, error)
        return growing.into(batch, "segments")
