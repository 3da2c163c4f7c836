"""Every token at which generation stops is one id."""

from __future__ import annotations

from stages.probes import TOKENS, Probe, ProbeSubject
from stages.probes._tokens import one_id, seen


def _check(subject: ProbeSubject) -> str | None:
    tokens = subject.model.profile.generation_eos
    return ", ".join(seen(token, one_id(subject, token)) for token in tokens) or None


PROBE = Probe(
    name="generation_eos_are_tokens",
    proves="every token at which generation stops is one id",
    fails="generation eos token {token!r} {why}",
    remedy="Name tokens of this tokenizer in the profile.",
    check=_check,
    kind=TOKENS,
)
