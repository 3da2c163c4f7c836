"""What inference feeds is what stands before every trained turn."""

from __future__ import annotations

from stages.probes import Probe, Subject
from stages.probes._rendering import question, rendered


def _check(subject: Subject) -> str:
    prompt, _, _ = rendered(subject, question())
    return f"it begins behind {prompt.rstrip()[-40:]!r}"


PROBE = Probe(
    name="generation_prompt_is_prefix",
    proves="the generation prompt is a prefix of the example at every trained turn",
    fails="the chat template cannot be trained on: {detail}",
    remedy="Give another with --chat-template, or its end-of-turn token with --eos.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
