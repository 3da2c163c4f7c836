"""A sequence begins with one bos token or with none, as the profile says."""

from __future__ import annotations

from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import QUESTION, ids_of, rendered, row_of


def _check(subject: ProbeSubject) -> str:
    profile = subject.model.profile
    if profile.bos_token is None:
        return "the model has no bos token"
    bos = subject.tokenizer.token_to_id(profile.bos_token)
    ids, _ = ids_of(subject, rendered(subject, row_of(QUESTION)))
    count = 0 if bos is None else ids.count(bos)
    wanted = 1 if profile.bos_policy == "template" else 0
    if count != wanted or (wanted and ids[0] != bos):
        raise BrokenError(token=profile.bos_token, count=count, wanted=wanted, head=ids[:4])
    if not wanted:
        return f"the template prints no {profile.bos_token}"
    added = subject.tokenizer.encode("x", add_special_tokens=True).ids[:1] == [bos]
    note = "; encoding templated text with special tokens on would add a second" if added else ""
    return f"the template prints one {profile.bos_token}{note}"


PROBE = Probe(
    name="no_double_bos",
    proves="a sequence begins with one bos token or with none, as the profile says",
    fails=(
        "a sequence has {count} bos tokens {token!r} where it must have {wanted} at its start "
        "(its first ids: {head})"
    ),
    remedy="Give a template that prints it as the profile says with --chat-template.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
