"""The pad token is neither the eos token nor the end-of-turn token."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str:
    model = subject.model
    if model.pad_id in (model.eos_id, model.end_of_turn_id):
        raise BrokenError(token=model.profile.pad_token)
    claims = subject.claims
    if claims.pad_token is not None and claims.pad_token in (
        claims.eos_token,
        model.profile.end_of_turn,
    ):
        raise BrokenError(token=claims.pad_token)
    return f"{model.pad_id} differs from {model.eos_id} and {model.end_of_turn_id}"


PROBE = Probe(
    name="pad_is_not_eos",
    proves="the pad token is neither eos nor the end of a turn",
    fails=(
        "pad token {token!r} is also the eos or end-of-turn token, so a loss that ignores padding "
        "would never train the stop"
    ),
    remedy="Name another pad token: in the profile, or in the directory's tokenizer_config.json.",
    check=_check,
    needs=("pad_is_one_token", "eos_is_one_token", "end_of_turn_is_one_token"),
    kind=TOKENS,
)
