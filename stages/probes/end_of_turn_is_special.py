"""The end of a turn is a registered special token, so that no text can forge it."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str:
    token = subject.model.profile.end_of_turn
    if token not in subject.model.controls:
        raise BrokenError(token=token)
    return f"{token} is registered"


PROBE = Probe(
    name="end_of_turn_is_special",
    proves="the end of a turn is a special token, which no text can forge",
    fails="end-of-turn {token!r} is not a special token, so that text could forge it",
    remedy='In tokenizer.json, list it in added_tokens with "special": true, or name another with '
    "--eos.",
    check=_check,
    needs=("end_of_turn_is_one_token",),
    kind=TOKENS,
)
