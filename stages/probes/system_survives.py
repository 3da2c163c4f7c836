"""A system text is printed and not trained, or rows that have one are refused."""

from __future__ import annotations

from stages.errors import RowError
from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import QUESTION, Rendering, row_of


def _check(subject: ProbeSubject) -> str:
    wanted = subject.system
    text = wanted if wanted is not None else "a system text"
    try:
        rendering = Rendering(*subject.renderer(row_of([("system", text), *QUESTION])))
    except RowError as error:
        if wanted is not None:
            raise BrokenError(detail=f"--system cannot be printed: {error.detail}") from error
        return f"rows with a system text are refused: {error.detail}"
    if text.strip() not in rendering.whole:
        raise BrokenError(detail=f"a system text {text[:40]!r} is not printed")
    if subject.train_on != "all" and text.strip() not in rendering.text(trained=False):
        raise BrokenError(detail="a system text is trained")
    return "a system text is printed"


PROBE = Probe(
    name="system_survives",
    proves="a system text is printed and not trained, or rows that have one are refused",
    fails="the chat template loses the system text: {detail}",
    remedy="Leave --system out, or give another template with --chat-template.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
