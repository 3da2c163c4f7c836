"""The common part of encoders: two texts, read at the first token, padded right."""

from __future__ import annotations

from typing import Any

from stages.models.profile import ModelProfile, PairFraming
from stages.profiles import template

# The markers of turns in the pair template.
TURN_MARKERS = ("System:", "User:", "Assistant:", "Tool:")


def encoder(name: str, pad_token: str, pair: PairFraming, **rest: Any) -> ModelProfile:
    """A profile whose sequences end in the framing's last token; encoders generate nothing."""
    separator = pair.after[-1]
    return ModelProfile(
        name=name,
        chat_template=template("pair"),
        end_of_turn=separator,
        eos_token=separator,
        pad_token=pad_token,
        generation_eos=(),
        is_base=True,
        padding_side="right",
        text_markers=TURN_MARKERS,
        pair=pair,
        **rest,
    )
