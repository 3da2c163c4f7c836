"""A trained answer ends in a trained end-of-turn token."""

from __future__ import annotations

from stages.probes import BrokenError, Probe, Subject
from stages.probes._rendering import question, rendered


def _check(subject: Subject) -> str:
    _, trained, path = rendered(subject, question())
    if not trained.endswith(subject.model.profile.end_of_turn):
        raise BrokenError(detail=f"an answer 'y' is trained as {trained!r}")
    return f"an answer 'y' is trained as {trained!r} ({path})"


PROBE = Probe(
    name="end_of_turn_is_trained",
    proves="a trained answer ends in a trained end-of-turn token",
    fails="the chat template cannot be trained on: {detail}",
    remedy="Give another with --chat-template, or its end-of-turn token with --eos.",
    check=_check,
)
