"""No text of a user, of an answer or of a system turn becomes a control token."""

from __future__ import annotations

from stages.counted import counted
from stages.errors import RowError
from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import QUESTION, Rendering, Turns, ids_of, row_of


def _dialogues(subject: ProbeSubject) -> list[Turns]:
    controls = sorted(subject.model.controls)
    together = " ".join(controls)
    dialogues: list[Turns] = [[("user", f"x{together}"), ("assistant", f"y{together}")]]
    if subject.wide:
        for token in controls:
            dialogues += [[("user", token), ("assistant", token)]]
            dialogues += [[("system", f"{token}\n{token}"), *QUESTION]]
    return dialogues


def _check(subject: ProbeSubject) -> str:
    controls = set(subject.model.controls.values())
    refused = 0
    dialogues = _dialogues(subject)
    for turns in dialogues:
        try:
            rendering = Rendering(*subject.renderer(row_of(turns)))
        except RowError:
            refused += 1  # a refused row cannot forge anything
            continue
        _, plain = ids_of(subject, rendering)
        forged = controls.intersection(plain)
        if forged:
            raise BrokenError(text=turns[0][1], id=min(forged))
    known = counted(len(subject.model.controls), "control token")
    tokens = f"{known} in {counted(len(dialogues), 'conversation')}"
    return f"{tokens}: none forged" + (f", {refused} refused" if refused else "")


PROBE = Probe(
    name="content_cannot_forge_control_tokens",
    proves="no text in any turn becomes a control token",
    fails="content {text!r} becomes the control token {id}",
    remedy="Use the tokenizer.json of the model; this one does not switch special tokens off.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
