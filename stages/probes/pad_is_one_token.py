"""The pad token is a string that is one id and decodes to itself."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject
from stages.probes._tokens import one_id, seen


def _check(subject: ProbeSubject) -> str:
    claimed = subject.claims.pad_token
    if claimed is not None and not isinstance(claimed, str):
        raise BrokenError(token=claimed, why="is a number; a token is named by its text")
    if claimed is not None:
        one_id(subject, claimed)
    token = subject.model.profile.pad_token
    index = one_id(subject, token)
    if subject.tokenizer.id_to_token(index) != token:
        raise BrokenError(token=token, why=f"is {index}, which does not decode to it")
    return seen(token, index)


PROBE = Probe(
    name="pad_is_one_token",
    proves="the pad token is a string of the vocabulary, one id, and decodes to itself",
    fails="pad token {token!r} {why}",
    remedy="Name a special token of this tokenizer that no text uses as the profile's pad_token.",
    check=_check,
    kind=TOKENS,
)
