"""Text that looks like a control token or like the marker of a turn stays text, or is refused."""

from __future__ import annotations

import itertools

from stages.chat_template.render import Row
from stages.chat_template.render_pair import PairRenderer, prove_pair
from stages.chat_template.segments import CONTROL
from stages.counted import counted
from stages.errors import RowError
from stages.probes import PAIR, BrokenError, Probe, ProbeSubject
from stages.probes._rendering import (
    QUESTION,
    Rendering,
    Turns,
    dialogue,
    examples,
    ids_of,
    rendered,
    row_of,
)


def _dialogues(subject: ProbeSubject) -> list[Turns]:
    controls = sorted(subject.model.controls)
    together = " ".join(controls)
    dialogues: list[Turns] = [[("user", f"x{together}"), ("assistant", f"y{together}")]]
    if subject.wide:
        for token in controls:
            dialogues += [[("user", token), ("assistant", token)]]
            dialogues += [[("system", f"{token}\n{token}"), *QUESTION]]
    return dialogues


def _controls(subject: ProbeSubject) -> str:
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


def _turn_markers(subject: ProbeSubject) -> str:
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


def _framing(subject: ProbeSubject) -> str:
    return "; ".join(prove_pair(subject.model).values())


def _pair_turns(subject: ProbeSubject) -> str:
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


PROBES = (
    Probe(
        name="content_cannot_forge_control_tokens",
        proves="no text in any turn becomes a control token",
        fails="content {text!r} becomes the control token {id}",
        remedy="Use the tokenizer.json of the model; this one does not switch special tokens off.",
        check=_controls,
        needs=("end_of_turn_is_trained",),
    ),
    Probe(
        name="turn_markers_cannot_be_forged",
        proves="a control token is between two turns, or rows with the markers' text are refused",
        fails="the turn marker {marker!r} is ordinary text, and a row that contains it is not "
        "refused",
        remedy="Name it among the profile's text markers.",
        check=_turn_markers,
        needs=("turns_survive",),
    ),
    Probe(
        name="pair_framing_is_the_tokenizers",
        proves="an encoder's two texts get the special tokens that its own tokenizer adds",
        fails="the special tokens around two texts differ from the tokenizer's",
        remedy="Give the tokenizer that the profile was written for.",
        check=_framing,
        kind=PAIR,
    ),
    Probe(
        name="pair_turns_cannot_be_forged",
        proves="a row whose text could be taken for several turns is refused",
        fails="a text that contains {marker!r} is not refused",
        remedy="Please report it with the profile.",
        check=_pair_turns,
        kind=PAIR,
    ),
)
