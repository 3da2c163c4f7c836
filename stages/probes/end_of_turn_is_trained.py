"""A trained answer ends in a trained end-of-turn token."""

from __future__ import annotations

from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import QUESTION, dialogue, examples, rendered, row_of


def _check(subject: ProbeSubject) -> str:
    end = subject.model.profile.end_of_turn
    rendering = rendered(subject, row_of(QUESTION))
    if not rendering.text(trained=True).endswith(end):
        raise BrokenError(detail=f"an answer 'y' is trained as {rendering.text(trained=True)!r}")
    for row, answers in examples(subject, dialogue(subject)):
        trained = rendered(subject, row).text(trained=True)
        if trained.count(end) < len(answers):
            raise BrokenError(detail=f"{len(answers)} answers are trained as {trained!r}")
    return f"an answer 'y' is trained as {rendering.text(trained=True)!r} ({rendering.path})"


PROBE = Probe(
    name="end_of_turn_is_trained",
    proves="every trained answer ends in a trained end-of-turn token",
    fails="the chat template cannot be trained on: {detail}",
    remedy="Give another with --chat-template, or its end-of-turn token with --eos.",
    check=_check,
    needs=("end_of_turn_is_one_token",),
)
