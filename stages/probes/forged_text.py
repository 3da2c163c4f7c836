"""Text that looks like a control token or like the marker of a turn stays text, or is refused."""

from __future__ import annotations

import itertools

from stages.chat_template.render_pair import PairRenderer, prove_pair
from stages.chat_template.segments import CONTROL
from stages.errors import RowError, counted
from stages.probes import PAIR, TEMPLATE, BrokenError, Probes, ProbeSubject
from stages.probes.templates import (
    QUESTION,
    Rendering,
    Turns,
    dialogue,
    examples,
    ids_of,
    rendered,
    row_of,
)

PROBES = Probes(TEMPLATE)


def _dialogues(subject: ProbeSubject) -> list[Turns]:
    controls = sorted(subject.model.controls)
    together = " ".join(controls)
    dialogues: list[Turns] = [[("user", f"x{together}"), ("assistant", f"y{together}")]]
    if subject.wide:
        for token in controls:
            dialogues += [[("user", token), ("assistant", token)]]
            dialogues += [[("system", f"{token}\n{token}"), *QUESTION]]
    return dialogues


@PROBES.add(
    fails="content {text!r} becomes the control token {id}",
    remedy="Use the tokenizer.json of the model; this one does not switch special tokens off.",
    needs=("end_of_turn_is_trained",),
)
def content_cannot_forge_control_tokens(subject: ProbeSubject) -> str:
    """No text in any turn becomes a control token."""
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


@PROBES.add(
    fails="the turn marker {marker!r} is ordinary text, and a row that contains it is not refused",
    remedy="Name it among the profile's text markers.",
    needs=("turns_survive",),
)
def turn_markers_cannot_be_forged(subject: ProbeSubject) -> str:
    """A control token is between two turns, or rows with the markers' text are refused."""
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


@PROBES.add(
    fails="the special tokens around two texts differ from the tokenizer's",
    remedy="Give the tokenizer that the profile was written for.",
    kind=PAIR,
)
def pair_framing_is_the_tokenizers(subject: ProbeSubject) -> str:
    """An encoder's two texts get the special tokens that its own tokenizer adds."""
    return "; ".join(prove_pair(subject.model).values())


@PROBES.add(
    fails="a text that contains {marker!r} is not refused",
    remedy="Please report it with the profile.",
    kind=PAIR,
)
def pair_turns_cannot_be_forged(subject: ProbeSubject) -> str:
    """A row whose text could be taken for several turns is refused."""
    renderer = PairRenderer(subject.model)
    markers = subject.model.profile.text_markers
    for marker in markers:
        turns = [("user", f"x\n{marker} y"), ("assistant", "z"), ("user", "u"), ("assistant", "v")]
        try:
            renderer(row_of(turns, trained={3}), 3)
        except RowError:
            continue
        raise BrokenError(marker=marker)
    shown = " ".join(markers) or "no text that is known"
    return f"a prompt of several turns is marked with {shown}; rows that contain it are refused"
