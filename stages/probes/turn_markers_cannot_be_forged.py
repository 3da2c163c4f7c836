"""Turn markers are control tokens; where they are text, rows that contain that text are refused."""

from __future__ import annotations

import itertools

from stages.chat_template.segments import CONTROL
from stages.errors import RowError
from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import dialogue, examples, rendered, row_of

_STOP = "\x00"


def _markers(subject: ProbeSubject) -> list[str]:
    """The texts between two turns where no control token is."""
    row, _ = examples(subject, dialogue(subject))[-1]
    rendering = rendered(subject, row)
    pairs = zip(rendering.texts, rendering.kinds, strict=True)
    text = "".join(_STOP if kind & CONTROL else piece for piece, kind in pairs)
    plain = []
    for (_, left), (_, right) in itertools.pairwise(dialogue(subject)):
        start = text.find(left)
        between = text[start + len(left) : text.find(right, start)]
        if start >= 0 and _STOP not in between:
            plain.append(between.strip())
    return list(dict.fromkeys(plain))


def _check(subject: ProbeSubject) -> str:
    markers = _markers(subject)
    for marker in markers:
        turns = [("user", f"x {marker} y"), ("assistant", "z")]
        try:
            subject.renderer(row_of(turns))
        except RowError:
            continue
        raise BrokenError(marker=marker)
    if markers:
        shown = ", ".join(map(repr, markers))
        return f"turn markers are ordinary text ({shown}); rows that contain it are refused"
    return "a control token is between any two turns"


PROBE = Probe(
    name="turn_markers_cannot_be_forged",
    proves="a control token is between two turns, or rows with the markers' text are refused",
    fails="the turn marker {marker!r} is ordinary text, and a row that contains it is not refused",
    remedy="Name it among the profile's text markers.",
    check=_check,
    needs=("turns_survive",),
)
