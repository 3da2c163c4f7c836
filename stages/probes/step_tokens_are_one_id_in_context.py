"""Step, good and bad token are one id each, whatever text is next to them, in the same place.

So a text with step tokens and the same text with the ratings' tokens have equally many tokens, and
each label has the position of its marker. Trainers that encode both texts assert this of every row.
"""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject
from stages.probes._tokens import one_id

_BEFORE = ("3.", "x", " ", "\n", "+", "ки", "好", ".\n\n")
_AFTER = ("", "\nStep 2", " +", "x", "\n\n")


def _check(subject: ProbeSubject) -> str | None:
    if subject.model.step_id < 0:
        return None
    tokens = subject.model.profile.step_tokens
    ids = [one_id(subject, token) for token in tokens]
    for before in _BEFORE:
        for after in _AFTER:
            frames = []
            for token, own in zip(tokens, ids, strict=True):
                text = before + token + after
                encoded = subject.tokenizer.encode(text, add_special_tokens=False).ids
                if encoded.count(own) != 1:
                    raise BrokenError(token=token, why=f"is not one id in {text!r} ({encoded})")
                at = encoded.index(own)
                frames.append((encoded[:at], encoded[at + 1 :]))
            if frames[1:] != frames[:-1]:
                raise BrokenError(token=tokens.step, why=f"changes its neighbours in {text!r}")
    return f"{tuple(tokens)} = {tuple(ids)}"


PROBE = Probe(
    name="step_tokens_are_one_id_in_context",
    proves="step and reward tokens are one id each, whatever text is next to them",
    fails="step or reward token {token!r} {why}",
    remedy="Give the profile's step_tokens texts that are one special token each.",
    check=_check,
    kind=TOKENS,
)
