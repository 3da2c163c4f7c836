"""The token that ends a turn is one id."""

from __future__ import annotations

from stages.probes import TOKENS, Probe, ProbeSubject
from stages.probes._tokens import one_id, seen


def _check(subject: ProbeSubject) -> str:
    token = subject.model.profile.end_of_turn
    return seen(token, one_id(subject, token))


PROBE = Probe(
    name="end_of_turn_is_one_token",
    proves="the end of a turn is one id, which a server can stop at",
    fails="end-of-turn token {token!r} {why}",
    remedy="Name a token with one id, or use the tokenizer that the profile was written for.",
    check=_check,
    kind=TOKENS,
)
