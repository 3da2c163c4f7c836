"""Every turn of a dialogue is printed, in order, the answers trained and the questions not."""

from __future__ import annotations

from stages.counted import counted
from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import dialogue, examples, rendered


def _check(subject: ProbeSubject) -> str:
    rows = examples(subject, dialogue(subject))
    for row, answers in rows:
        rendering = rendered(subject, row)
        at = 0
        for i, text in enumerate(row.contents):
            at = rendering.whole.find(str(text), at)
            if at < 0:
                raise BrokenError(detail=f"turn {i + 1} is missing or out of order")
            everything = subject.train_on == "all"
            if not everything and (str(text) in rendering.text(trained=True)) != (i in answers):
                raise BrokenError(detail=f"turn {i + 1} is trained where it must not be, or not")
    once = "one example per trained turn" if len(rows) > 1 else "one example"
    return f"{counted(len(dialogue(subject)), 'turn')} printed in order, {once}"


PROBE = Probe(
    name="turns_survive",
    proves="every turn of a dialogue is printed in order, answers trained, questions not",
    fails="the chat template does not print several turns correctly: {detail}",
    remedy="Give one with --chat-template that prints each message once, in order.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
