"""The text before every trained turn is the generation prompt that inference uses."""

from __future__ import annotations

from typing import Any

from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import QUESTION, Turns, dialogue, rendered, row_of


def _prompts(subject: ProbeSubject, turns: Turns) -> list[str]:
    seen = [{"role": role, "content": text} for role, text in turns]
    variants: list[dict[str, Any]] = [dict(v) for v in subject.model.profile.template_variants]
    return [subject.template.render(seen, add_generation_prompt=True, **v) for v in variants]


def _check(subject: ProbeSubject) -> str:
    turns = dialogue(subject)
    answers = [i for i, (role, _) in enumerate(turns) if role == "assistant"]
    for i in answers:
        rendering = rendered(subject, row_of(turns[: i + 1], {i}))
        prompts = _prompts(subject, turns[:i])
        starts = rendering.edges if subject.train_on == "all" else {rendering.begins}
        if not any(rendering.whole.startswith(p) and len(p) in starts for p in prompts):
            before = rendering.whole[: rendering.begins]
            raise BrokenError(
                detail=f"turn {i + 1} is trained after {before[-40:]!r}, "
                f"and inference would feed {prompts[0][-40:]!r}"
            )
    once = subject.model.profile.one_example_per_turn
    if not once:
        whole = rendered(subject, row_of(turns)).whole
        for i in answers:
            if not any(whole.startswith(prompt) for prompt in _prompts(subject, turns[:i])):
                raise BrokenError(
                    detail=f"turn {i + 1} of a dialogue is not rendered after the prompt that "
                    "inference would feed"
                )
    shown = max(_prompts(subject, QUESTION[:1]), key=len)[-40:]
    return f"it begins after {shown!r}" + (", one example per trained turn" if once else "")


PROBE = Probe(
    name="generation_prompt_is_prefix",
    proves="the generation prompt is a prefix of the example at every trained turn",
    fails="the chat template cannot be trained on: {detail}",
    remedy="Give one with --chat-template whose generation prompt is just how its answers begin.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
