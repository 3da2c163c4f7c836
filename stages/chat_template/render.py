"""Messages to segments of text, by the model's own chat template.

The template runs once per conversation shape, not once per row (see ``compile``); rows of a shape
that cannot be compiled are rendered one by one. Either way the text is exactly what Jinja prints.
"""

import itertools
import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from stages import columns, contract
from stages.chat_template import appended, loss_weights, reasoning, shapes, template, turn_ends
from stages.chat_template.compile import Compiler, Program
from stages.chat_template.segments import CLOSES, CONTROL, TRAINED, controls_pattern
from stages.errors import RowError
from stages.profile import ModelProfile, TargetModel

_MAX_SHAPES = 4096  # that are kept: where each row has its own tools, each is a shape
COMPILED = "compiled"  # a path in ``rendered``
_MAX_UNITS = 1 << 18  # of all kept programs together; those of long conversations are large


def template_of(model: TargetModel, history: str = appended.RENDERED) -> template.Template:
    """The model's chat template.

    Args:
        history: how earlier answers are printed; both ways are one where it rewrites none.
    """
    own = template_of_profile(model.profile)
    if history == appended.RENDERED or not model.profile.one_example_per_turn:
        return own
    controls = controls_pattern(model.controls)
    ends = turn_ends.declared(own, controls, model.profile.ends)
    return template_of_profile(model.profile, partial(appended.Appended, ends, controls))


def template_of_profile(
    profile: ModelProfile, made: Callable[..., template.Template] = template.Template
) -> template.Template:
    """The chat template of a profile; its date is the profile's, not today's."""
    tokens = {"eos_token": profile.eos_token, "pad_token": profile.pad_token}
    if profile.bos_token is not None:
        tokens["bos_token"] = profile.bos_token
    return made(profile.chat_template, profile.date_string, **tokens)


@dataclass(slots=True)
class Row:
    """One conversation as parallel lists, one for each field of its messages column.

    Attributes:
        shape: everything but the texts, of which it says only whether they are empty.
    """

    roles: list[str]
    contents: list[str | None]
    fields: list[str | None]
    trained: list[bool]
    tools: str | None
    shape: Hashable = None

    def __post_init__(self) -> None:
        self.shape = self.shape or self._own_shape()

    def _own_shape(self) -> Hashable:
        return (tuple(_kinds(self.roles, self.contents, self.fields, self.trained)), self.tools)

    def turns(self) -> list[contract.Message]:
        """The messages as the template sees them."""
        rows = zip(self.roles, self.contents, self.fields, self.trained, strict=True)
        return [contract.Message(r, c, json.loads(f) if f else None, t) for r, c, f, t in rows]

    def prepend(self, system: str) -> None:
        """Put a system text in front."""
        self.roles = ["system", *self.roles]
        self.contents = [system, *self.contents]
        self.fields = [None, *self.fields]
        self.trained = [False, *self.trained]
        self.shape = self._own_shape()

    def with_answers(self, fields: Mapping[str, Any]) -> "Row":
        """The row with more fields in every answer."""
        own = [json.loads(told) if told else {} for told in self.fields]
        told = [
            json.dumps({**one, **fields}) if role == "assistant" else field
            for role, one, field in zip(self.roles, own, self.fields, strict=True)
        ]
        return Row(self.roles, self.contents, told, self.trained, self.tools)


def exchange(question: str, answer: str, system: str | None = None) -> Row:
    """A question and its answer, which is trained."""
    row = Row(["user", "assistant"], [question, answer], [None] * 2, [False, True], tools=None)
    if system is not None:
        row.prepend(system)
    return row


def _kinds(
    roles: list[str], contents: list[str | None], fields: list[str | None], trained: list[bool]
) -> list[Hashable]:
    """What each message adds to the shape of its conversation."""
    filled = [content if not content else True for content in contents]
    return list(zip(roles, filled, fields, trained, strict=True))


class Renderer:
    """Renders conversations; keeps the compiled programs by shape.

    Args:
        train_on: which turns are trained; ``history``: how earlier answers are printed.
    """

    def __init__(
        self, model: TargetModel, train_on: str = "assistant", history: str = appended.RENDERED
    ) -> None:
        self._controls = controls_pattern(model.controls)
        self._end_of_turn = model.profile.end_of_turn
        own = template_of(model)
        self._ends = turn_ends.declared(own, self._controls, model.profile.ends)
        self._compiler = Compiler(
            own if history == appended.RENDERED else template_of(model, history),
            controls=self._controls,
            ends=self._ends,
            variants=[dict(variant) for variant in model.profile.template_variants],
            train_all=train_on == "all",
        )
        self._lead = model.profile.text_lead
        self.step_separator = model.profile.step_tokens.separator
        self._markers = model.profile.text_markers
        self.marker = re.compile("|".join(map(re.escape, self._markers))) if self._markers else None
        self._shapes: dict[Hashable, Program | RowError | None] = {}
        self._units = 0

    def program(self, row: Row) -> Program | RowError | None:
        """The program of a row's shape; why it cannot be rendered; None where Jinja must do it."""
        shape = row.shape
        return self._shapes[shape] if shape in self._shapes else self._learn(shape, row)

    def __call__(self, row: Row) -> tuple[list[str], bytes, str]:
        """Texts and kinds of the segments, and the path: ``compiled``, ``jinja`` or ``bare``.

        Raises:
            RowError: the row cannot be rendered.
        """
        if row.roles[0] == contract.BARE:
            bare = bytes([TRAINED, CONTROL | TRAINED | CLOSES])
            return [self.led(row.contents[0] or ""), self._end_of_turn], bare, "bare"
        if self._markers:
            self._refuse_markers(row)
        program = self.program(row)
        if isinstance(program, Program) and program.fits(row.contents):
            return program.fill(row.contents), program.kinds, COMPILED
        if isinstance(program, RowError):
            raise program
        segments = self._compiler.segments(row.turns(), _parsed(row.tools))
        return [s[0] for s in segments], bytes(s[1] for s in segments), "jinja"

    def weigh(self, row: Row, texts: list[str], kinds: bytes, own: list[float]) -> list[float]:
        """A weight for each segment of a rendered row.

        Args:
            own: of the row's turns, 0 where untrained; not of a system text from ``--system``.

        Raises:
            RowError: the template does not end each turn by itself.
        """
        own = [0.0] * (len(row.roles) - len(own)) + own
        ends = None
        if self._compiler.train_all:
            ends = self._compiler.turn_ends("".join(texts), row.turns(), _parsed(row.tools))
        tokens = self._ends.tokens
        return loss_weights.of_segments(texts, kinds, weights=own, tokens=tokens, ends=ends)

    def led(self, text: str) -> str:
        """A text at the start of a row, with the space that the tokenizer puts there, if any."""
        return text if not text or text.startswith((self._lead, "▁")) else self._lead + text

    def _refuse_markers(self, row: Row) -> None:
        for i, content in enumerate(row.contents):
            marker = next((mark for mark in self._markers if mark in (content or "")), None)
            if marker is not None:
                detail = f"turn {i + 1} holds {marker!r}, which opens a turn in this family's text"
                raise RowError("control_text", detail)

    def _learn(self, shape: Hashable, row: Row) -> Program | RowError | None:
        if len(self._shapes) >= _MAX_SHAPES or self._units >= _MAX_UNITS:
            self._shapes.clear()
            self._units = 0
        program: Program | RowError | None
        try:
            for text in (row.tools, *row.fields):
                control = self._controls.search(text or "")
                if control:
                    detail = f"a field next to the content contains {control.group()!r}"
                    raise RowError("control_text", detail)
            program = self._compiler.compile(row.turns(), _parsed(row.tools))
        except RowError as error:
            program = error
        self._shapes[shape] = program
        self._units += len(program.units) if isinstance(program, Program) else 0
        return program


def _parsed(tools: str | None) -> list[Any] | None:
    parsed: list[Any] | None = json.loads(tools) if tools else None
    return parsed


def conversations(batch: contract.Batch, name: str, system: str | None) -> Iterator[Row]:
    """The conversations of a column of messages; ``system`` goes before those that have none."""
    offsets, turns = columns.list_parts(batch.column(name))
    roles, contents, fields, trained = (turns.field(i).to_pylist() for i in range(4))
    # Shapes are made for all messages of the batch at once, and sliced for each row.
    kinds = _kinds(roles, contents, fields, trained)
    all_tools = batch.column("tools").to_pylist()
    for (a, b), tools in zip(itertools.pairwise(offsets.tolist()), all_tools, strict=True):
        shape = (tuple(kinds[a:b]), tools)
        row = Row(roles[a:b], contents[a:b], fields[a:b], trained[a:b], tools, shape)
        if system is not None and row.roles[0] not in ("system", contract.BARE):
            row.prepend(system)
        yield row


@dataclass
class Render:
    """SFT and RM: conversations to segments.

    Attributes:
        prefix: "" for ``messages``; "chosen_" or "rejected_" for one side of a pair.
        ends_with_turn: drop what the template prints after the last end of turn, so that the
            sequence ends where a reward is read.
        system: the system text of conversations that have none.
        mask_reasoning: reasoning is not trained; an answer is trained from the end of it.
    """

    renderer: Renderer
    prefix: str = ""
    ends_with_turn: bool = False
    system: str | None = None
    mask_reasoning: bool = False
    name: str = "render"

    def __post_init__(self) -> None:
        self._roles: dict[str, int] = {}
        self._programs: dict[tuple[bytes, bool], Program | None] = {}

    @property
    def reads(self) -> tuple[str, ...]:
        return (f"{self.prefix}messages", *([] if self.prefix else ["turn_weights"]), "tools")

    @property
    def writes(self) -> tuple[str, ...]:
        own = [] if self.prefix else ["segment_weights"]
        names = [f"{self.prefix}{name}" for name in ("outline", "texts", "segments")]
        return (*names, *own, "rendered")

    def _program(self, key: tuple[bytes, bool], row: Row) -> Program | None:
        """The program of a shape as this stage needs it; None where it has none."""
        if key not in self._programs:
            if len(self._programs) >= _MAX_SHAPES:
                self._programs.clear()
            program = self.renderer.program(row)
            ours = program if isinstance(program, Program) else None
            if ours is not None and self.ends_with_turn:
                ours = ours.ended()
            if ours is not None and key[1]:
                marker, system = self.renderer.marker, self.system or ""
                ours = None if marker and marker.search(system) else ours.given(0, system)
            self._programs[key] = ours
        return self._programs[key]

    def _shapes(self, batch: contract.Batch, column: shapes.Conversations) -> list[shapes.Shape]:
        """The rows that programs render, by shape."""
        if self.mask_reasoning:
            return []
        plain = column.plain()
        if not self.prefix:
            plain &= np.diff(batch.column("turn_weights").offsets.to_numpy()) == 0
        given = column.without_system() if self.system is not None else np.zeros(len(plain), bool)
        number, keys = column.keys(self._roles)
        rows = np.flatnonzero(plain & (number >= 0))
        code = 2 * number[rows] + given[rows]
        order = np.argsort(code, kind="stable")
        alike = np.split(rows[order], np.flatnonzero(np.diff(code[order])) + 1)
        found = []
        for same in alike if len(rows) else ():
            first = int(same[0])
            one = next(conversations(batch.slice(first, 1), column.name, self.system))
            program = self._program((keys[number[first]], bool(given[first])), one)
            if program is not None:
                begin = column.offsets[same] - int(given[first])
                found.append(column.fitting(shapes.Shape(program, same, begin)))
        return [one for one in found if len(one.rows)]

    def __call__(self, batch: contract.Batch) -> contract.Batch:
        column = shapes.Conversations(batch, f"{self.prefix}messages", self.renderer.marker)
        outline, texts = shapes.outline_columns(column, self._shapes(batch, column), batch.num_rows)
        batch = columns.put(batch, f"{self.prefix}outline", outline)
        batch = columns.put(batch, f"{self.prefix}texts", texts)
        others = np.flatnonzero(outline.is_null().to_numpy(zero_copy_only=False))
        return self._one_by_one(batch, others)

    def _one_by_one(self, batch: contract.Batch, numbers: columns.Ints) -> contract.Batch:
        """Render the rows that are left, and put the other columns of this stage."""
        growing = shapes.SegmentsColumn()
        turn_weights = {} if self.prefix else loss_weights.nonempty(batch.column("turn_weights"))
        segment_weights: dict[int, list[float]] = {}
        left = batch.take(pa.array(numbers)) if len(numbers) < batch.num_rows else batch
        rows = conversations(left, f"{self.prefix}messages", self.system) if len(numbers) else ()
        for number, row in zip(numbers.tolist(), rows, strict=True):
            try:
                texts, kinds, path = self.renderer(row)
                if self.mask_reasoning:
                    texts, kinds = reasoning.untrain(texts, kinds)
                if number in turn_weights:
                    segment_weights[number] = self.renderer.weigh(
                        row, texts, kinds, turn_weights[number]
                    )
            except RowError as error:
                growing.refuse(number, error)
                continue
            if self.ends_with_turn:
                end = max(i for i, kind in enumerate(kinds) if kind & CONTROL and kind & TRAINED)
                texts, kinds = texts[: end + 1], kinds[: end + 1]
            growing.add(number, texts, kinds, path)
        if not self.prefix:
            column = loss_weights.lists(segment_weights, batch.num_rows)
            batch = columns.put(batch, "segment_weights", column)
        return growing.into(batch, f"{self.prefix}segments", otherwise=COMPILED)
