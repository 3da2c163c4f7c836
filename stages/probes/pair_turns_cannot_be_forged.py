"""In a text of several turns, turn markers are ordinary text; rows with that text are refused."""

from __future__ import annotations

from stages.chat_template.render import Row
from stages.chat_template.render_pair import PairRenderer
from stages.errors import RowError
from stages.probes import PAIR, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str:
    renderer = PairRenderer(subject.model)
    markers = subject.model.profile.text_markers
    for marker in markers:
        texts = [f"x\n{marker} y", "z", "u", "v"]
        roles = ["user", "assistant"] * 2
        try:
            trained = [False, False, False, True]
            renderer(Row(roles, [*texts], fields=[None] * 4, trained=trained, tools=None), 3)
        except RowError:
            continue
        raise BrokenError(marker=marker)
    shown = " ".join(markers) or "no text that is known"
    return f"a prompt of several turns is marked with {shown}; rows that contain it are refused"


PROBE = Probe(
    name="pair_turns_cannot_be_forged",
    proves="a row whose text could be taken for several turns is refused",
    fails="a text that contains {marker!r} is not refused",
    remedy="Please report it with the profile.",
    check=_check,
    kind=PAIR,
)
