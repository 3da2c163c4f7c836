"""Turn markers that a profile makes special are one id each."""

from __future__ import annotations

from stages.probes import TOKENS, Probe, ProbeSubject
from stages.probes._tokens import one_id, seen


def _check(subject: ProbeSubject) -> str | None:
    tokens = subject.model.profile.promoted
    return ", ".join(seen(token, one_id(subject, token)) for token in tokens) or None


PROBE = Probe(
    name="promoted_markers_are_one_token",
    proves="turn markers that a profile makes special are one id each",
    fails="turn marker {token!r} {why}",
    remedy="Use the tokenizer that the profile was written for.",
    check=_check,
    kind=TOKENS,
)
