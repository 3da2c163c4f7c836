"""The prompts that a model's template can feed at inference, and which of them a build trains.

A hybrid reasoning model has two, chosen by an argument of its chat template: Qwen3's
``enable_thinking=False`` closes an empty block of reasoning before the answer. An answer is trained
behind one of them, and a server has to feed the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from stages import encoders
from stages.columns import SEGMENTS
from stages.encode import SegmentEncoder
from stages.errors import ModelError, RowError
from stages.profile import ModelProfile, TargetModel
from stages.render import template_of
from stages.segments import CONTROL, controls_pattern, cut
from stages.template import Template

AUTO, ON, OFF = "auto", "on", "off"  # --thinking
NAMES = {True: "thinking", False: "non_thinking"}
SWITCHES = ("enable_thinking", "thinking")  # arguments by which templates turn reasoning off
_ASKED = [{"role": "user", "content": "x"}]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One generation prompt.

    Attributes:
        name: ``thinking`` or ``non_thinking``; empty where a model has one prompt only.
        arguments: of the chat template.
        tail: ids of its last control token and of what stands behind it.
    """

    name: str
    arguments: dict[str, bool]
    tail: tuple[int, ...]


def variants(template: Template) -> tuple[tuple[tuple[str, object], ...], ...]:
    """Keyword sets of a template's different generation prompts, the one without any first."""
    by_text: dict[str, tuple[tuple[str, object], ...]] = {}
    for name in SWITCHES:
        if name not in template.source:
            continue
        for keywords in ((), ((name, False),), ((name, True),)):
            try:
                text = template.render(_ASKED, None, add_generation_prompt=True, **dict(keywords))
            except RowError:
                continue
            by_text.setdefault(text, keywords)
        if len(by_text) > 1:
            return tuple(by_text.values())
    return ((),)


def switch_of(profile: ModelProfile) -> str | None:
    """The template's argument that turns reasoning on and off; None where there is none."""
    keywords = [pair for variant in profile.template_variants for pair in variant]
    return next((key for key, value in keywords if isinstance(value, bool)), None)


def chosen(profile: ModelProfile, wanted: str) -> ModelProfile:
    """The profile with the prompt that ``--thinking`` asks for.

    Raises:
        ModelError: it has one prompt only.
    """
    if wanted == AUTO:
        return profile
    switch = switch_of(profile)
    if switch is None:
        raise ModelError(
            f"The chat template of {profile.name} has one prompt for all answers, so --thinking "
            f"{wanted} has nothing to choose.",
            "Leave --thinking out.",
        )
    return replace(profile, template_variants=(((switch, wanted == ON),),))


def allowed(prompt: Prompt, model: TargetModel) -> bool:
    """Whether answers may stand behind it: the profile leaves both prompts, or this one alone."""
    variants_left = model.profile.template_variants
    return (
        len(variants_left) != 1
        or not variants_left[0]
        or dict(variants_left[0]) == prompt.arguments
    )


def _tail(model: TargetModel, prompt: str) -> tuple[int, ...]:
    """Ids from the last control token on; empty where the prompt has none."""
    pieces = cut(prompt, [], controls_pattern(model.controls))
    encoder = SegmentEncoder(
        model, encoders.load("tokenizers", model.tokenizer_json), 1 << 30, "reject"
    )
    segments = [[{"text": text, "kind": kind} for text, kind in pieces]]
    encoded = encoder(pa.array(segments, SEGMENTS))
    control = np.flatnonzero(encoded.kinds & CONTROL)
    return tuple(encoded.ids[control[-1] :].tolist()) if len(control) else ()


def prompts(model: TargetModel) -> tuple[Prompt, ...]:
    """A model's generation prompts, the longest tail first; none where text alone opens answers."""
    if model.profile.pair is not None:
        return ()
    template, switch = template_of(model), switch_of(model.profile)
    settings = [{}] if switch is None else [{switch: value} for value in (True, False)]
    by_tail: dict[tuple[int, ...], Prompt] = {}
    for arguments in settings:
        try:
            text = template.render(_ASKED, None, add_generation_prompt=True, **arguments)
        except RowError:  # a template that asks for more than a question
            return ()
        tail = _tail(model, text)
        if tail:
            name = NAMES[next(iter(arguments.values()))] if arguments else ""
            by_tail.setdefault(tail, Prompt(name, arguments, tail))
    return tuple(sorted(by_tail.values(), key=lambda prompt: -len(prompt.tail)))
