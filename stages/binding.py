"""Bind a profile to a tokenizer: check what the profile declares against the tokenizer's bytes."""

from __future__ import annotations

from stages import probes
from stages.models.profile import ModelProfile, TargetModel, declare


def bind(profile: ModelProfile, tokenizer_json: bytes, with_steps: bool) -> TargetModel:
    """Check what the profile declares of tokens against the tokenizer's bytes.

    Raises:
        ModelError: a token is not one id, not the id that the family has, lies outside the
            embedding, or two that must differ are the same.
    """
    model = declare(profile, tokenizer_json, with_steps)
    model.probes.update(probes.require(probes.ProbeSubject(model, tokenizer_json), probes.TOKENS))
    return model
