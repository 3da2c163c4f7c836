"""Helpers of the probes that render conversations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa

from stages.chat_template.render import Row
from stages.chat_template.segments import CONTROL, TRAINED
from stages.columns import SEGMENTS
from stages.errors import RowError
from stages.probes import BrokenError, ProbeSubject

Turns = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Rendering:
    """A conversation's segments, and how it was rendered (see ``Renderer``)."""

    texts: list[str]
    kinds: bytes
    path: str

    def text(self, trained: bool) -> str:
        """The trained or the untrained text, joined."""
        pairs = zip(self.texts, self.kinds, strict=True)
        return "".join(text for text, kind in pairs if bool(kind & TRAINED) == trained)

    @property
    def whole(self) -> str:
        return "".join(self.texts)

    @property
    def edges(self) -> set[int]:
        """Where segments start and stop, in characters."""
        return set(itertools.accumulate(map(len, self.texts), initial=0))

    @property
    def begins(self) -> int:
        """Characters before training starts."""
        first = next((i for i, kind in enumerate(self.kinds) if kind & TRAINED), len(self.kinds))
        return len("".join(self.texts[:first]))


def row_of(turns: Turns, trained: set[int] | None = None, tools: str | None = None) -> Row:
    """A conversation as columns; every answer is trained unless ``trained`` says which turns."""
    roles = [role for role, _ in turns]
    if trained is None:
        trained = {i for i, role in enumerate(roles) if role == "assistant"}
    flags = [i in trained for i in range(len(turns))]
    return Row(roles, [text for _, text in turns], [None] * len(turns), flags, tools)


def dialogue(subject: ProbeSubject) -> Turns:
    """Three exchanges; only one where all is trained and each trained turn is its own example."""
    alone = subject.model.profile.one_example_per_turn and subject.train_on == "all"
    return _DIALOGUE[:2] if alone else _DIALOGUE


def examples(subject: ProbeSubject, turns: Turns) -> list[tuple[Row, set[int]]]:
    """The examples of a conversation in a build: itself, or one per trained turn."""
    everything = range(len(turns)) if subject.train_on == "all" else ()
    answers = [i for i, (role, _) in enumerate(turns) if role == "assistant" or i in everything]
    if not subject.model.profile.one_example_per_turn:
        return [(row_of(turns, set(answers)), set(answers))]
    return [(row_of(turns[: i + 1], {i}), {i}) for i in answers if turns[i][0] == "assistant"]


def rendered(subject: ProbeSubject, row: Row) -> Rendering:
    """The segments of a row that every model must be able to render.

    Raises:
        BrokenError: it cannot be rendered.
    """
    try:
        return Rendering(*subject.renderer(row))
    except RowError as error:
        raise BrokenError(detail=error.detail) from error


def ids_of(subject: ProbeSubject, rendering: Rendering) -> tuple[list[int], list[int]]:
    """Ids of a rendering as a build encodes it, and those of its text segments alone."""
    pairs = zip(rendering.texts, rendering.kinds, strict=True)
    segments = [[{"text": text, "kind": kind} for text, kind in pairs]]
    encoded = subject.encoder(pa.array(segments, SEGMENTS))
    return encoded.ids.tolist(), encoded.ids[(encoded.kinds & CONTROL) == 0].tolist()


QUESTION: Turns = [("user", "x"), ("assistant", "y")]
_DIALOGUE: Turns = [
    ("user", "first question"),
    ("assistant", "first answer"),
    ("user", "second question"),
    ("assistant", "second answer"),
    ("user", "third question"),
    ("assistant", "third answer"),
]
