"""Segments: the unit of encoding, and what each one is.

A segment is a control token that the template printed, or the text between two of them, cut once
more where training starts. Text segments are encoded with special tokens off, so nothing that a
user wrote can become a control token.

A question and its answer in ChatML, as the template prints them::

    <|im_start|>system
    Be kind.<|im_end|>
    <|im_start|>user
    Hi<|im_end|>
    <|im_start|>assistant
    Hello!<|im_end|>

become these segments, and with the tokenizer of Qwen2 these ids (the first two turns are alike, so
only the second is shown)::

    segment         kind                        ids               label
    <|im_start|>    CONTROL                     151644            -100
    user\\nHi        0                           872 198 13048     -100
    <|im_end|>      CONTROL                     151645            -100
    \\n              0                           198               -100
    <|im_start|>    CONTROL                     151644            -100
    assistant\\n     0                           77091 198         -100
    Hello!          TRAINED                     9707 0            the ids
    <|im_end|>      CONTROL | TRAINED           151645            the id
    \\n              CLOSES                      198               -100

``assistant\\nHello!`` is one text between two control tokens; it is cut where the generation prompt
ends, because inference encodes the prompt alone. The line break behind the answer is printed by the
template but never generated, so it is not trained; ``--too-long trim-turns`` may cut after it.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import orjson

CONTROL = 1  # one registered special token
TRAINED = 2
STEP = 4  # a PRM step; its marker comes right after
CLOSES = 8  # a trained turn is complete here: an example may be cut after this segment
MARKER = 16  # a step marker

Segment: TypeAlias = tuple[str, int]
Span: TypeAlias = tuple[int, int]  # a stretch of text: start included, stop not


def controls_pattern(controls: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds any of the control tokens; the longest of several that match."""
    return re.compile("|".join(re.escape(c) for c in sorted(controls, key=len, reverse=True)))


def _pieces(text: str, controls: re.Pattern[str]) -> Iterator[tuple[int, int, int]]:
    """Start, stop and kind (``CONTROL`` or 0) of each control token and of each text between."""
    at = 0
    for match in controls.finditer(text):
        if match.start() > at:
            yield at, match.start(), 0
        yield match.start(), match.end(), CONTROL
        at = match.end()
    if at < len(text):
        yield at, len(text), 0


def cut(text: str, trained: Sequence[Span], controls: re.Pattern[str]) -> list[Segment]:
    """Cut rendered text into segments.

    Args:
        trained: disjoint spans in order.

    Raises:
        ValueError: training starts or stops inside a control token.
    """
    # Starts and stops alternate (start, stop, start, ...): a place with an odd number of edges at
    # or before it is inside a span.
    edges = [edge for span in trained for edge in span]
    segments: list[Segment] = []
    for start, stop, kind in _pieces(text, controls):
        inner = edges[bisect_right(edges, start) : bisect_right(edges, stop - 1)]
        if kind and inner:
            raise ValueError(f"training starts inside the control token {text[start:stop]!r}")
        points = [start, *dict.fromkeys(inner), stop]
        for a, b in itertools.pairwise(points):
            inside = bisect_right(edges, a) % 2
            segments.append((text[a:b], kind | (TRAINED if inside else 0)))
    return _closed(segments)


def _closed(segments: list[Segment]) -> list[Segment]:
    """Mark where a trained turn is complete: at its last control token, or at blanks after it."""
    for i, (_, kind) in enumerate(segments):
        following = segments[i + 1] if i + 1 < len(segments) else ("", 0)
        if kind & CONTROL and kind & TRAINED and not following[1] & TRAINED:
            at = i + 1 if following[0].isspace() and not following[1] & CONTROL else i
            segments[at] = (segments[at][0], segments[at][1] | CLOSES)
    return segments


# Outlines: the segments of all rows of one shape, as one text.
#
# Where a shape's template is compiled (see ``compile``), its rows differ in their own texts only.
# So a batch has the segments of a shape once, as JSON: a list of text and kind, with null for the
# text where a text of the row belongs::
#
#     [["<|im_start|>",1],[null,0],["<|im_end|>",1],...]
#
# and each row has its own texts in a list. Together they are the row's segments.


Outline: TypeAlias = list[tuple[str | None, int]]


def spelled(segments: Iterable[tuple[str | None, int]]) -> str:
    """An outline as the text that the column ``outline`` has."""
    return orjson.dumps([*segments]).decode()


def parsed(text: str) -> Outline:
    """The outline that a text spells."""
    return [(text, kind) for text, kind in orjson.loads(text)]


def filled(outline: Outline, texts: Iterable[str]) -> list[str]:
    """The texts of all segments of a row, given its own."""
    own: Iterator[str] = iter(texts)
    return [next(own) if text is None else text for text, _ in outline]
