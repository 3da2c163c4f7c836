"""The step token is one id between every kind of neighbour, not only when it stands alone."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, Subject
from stages.probes._tokens import one_id

_BEFORE = ("3.", "x", " ", "\n", "+", "ки", "好", ".\n\n")
_AFTER = ("", "\nStep 2", " +", "x", "\n\n")


def _check(subject: Subject) -> str | None:
    if subject.model.step_id < 0:
        return None
    tokens = subject.model.profile.step_tokens
    ids = [one_id(subject, token) for token in tokens]
    for before in _BEFORE:
        for after in _AFTER:
            text = before + tokens.step + after
            found = subject.tokenizer.encode(text, add_special_tokens=False).ids
            if found.count(ids[0]) != 1:
                raise BrokenError(token=tokens.step, why=f"is not one id in {text!r} ({found})")
    return f"{tuple(tokens)} = {tuple(ids)}"


PROBE = Probe(
    name="step_tokens_are_one_id_in_context",
    proves="step and reward tokens are one id each, whatever stands beside them",
    fails="step or reward token {token!r} {why}",
    remedy="Choose tokens that the tokenizer registers.",
    check=_check,
    kind=TOKENS,
)
