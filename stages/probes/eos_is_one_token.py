"""The eos token is one id."""

from __future__ import annotations

from stages.probes import TOKENS, Probe, ProbeSubject
from stages.probes._tokens import one_id, seen


def _check(subject: ProbeSubject) -> str:
    token = subject.model.profile.eos_token
    return seen(token, one_id(subject, token))


PROBE = Probe(
    name="eos_is_one_token",
    proves="the eos token of the written tokenizer is one id",
    fails="eos token {token!r} {why}",
    remedy="Name a token with one id, or use the tokenizer that the profile was written for.",
    check=_check,
    kind=TOKENS,
)
