"""The pad token is a string that is one id and decodes to itself."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, Subject
from stages.probes._tokens import one_id, seen


def _check(subject: Subject) -> str:
    token = subject.model.profile.pad_token
    index = one_id(subject, token)
    if subject.tokenizer.id_to_token(index) != token:
        raise BrokenError(token=token, ids=[index])
    return seen(token, index)


PROBE = Probe(
    name="pad_is_one_token",
    proves="the pad token is a string of the vocabulary, one id, and decodes to itself",
    fails="pad token {token!r} is not one token of the tokenizer (it gives {ids})",
    remedy="Name one that is, or use the tokenizer that the profile was written for.",
    check=_check,
    kind=TOKENS,
)
