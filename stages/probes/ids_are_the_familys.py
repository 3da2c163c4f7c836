"""The tokens that a profile declares have the ids that it declares."""

from __future__ import annotations

from stages.counted import counted
from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str | None:
    declared = subject.model.profile.token_ids
    for token, index in declared:
        actual = subject.tokenizer.token_to_id(token)
        if actual != index:
            raise BrokenError(token=token, index=index, actual=actual)
    return f"{counted(len(declared), 'id')} as declared" if declared else None


PROBE = Probe(
    name="ids_are_the_familys",
    proves="the tokens that a family is known by have that family's ids",
    fails="{token!r} is {index} in this family, but {actual} here",
    remedy="This is another model's tokenizer; give the one that the profile was written for.",
    check=_check,
    kind=TOKENS,
)
