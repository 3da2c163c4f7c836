"""A pad id in a model's configuration is the id of the pad token."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str | None:
    claims, tokenizer = subject.claims, subject.tokenizer
    token = claims.pad_token or subject.model.profile.pad_token
    wanted = tokenizer.token_to_id(str(token))
    for file, index in claims.pad_ids.items():
        if index != wanted:
            known = index >= 0 and tokenizer.id_to_token(index) is not None
            text = tokenizer.decode([index], skip_special_tokens=False) if known else None
            what = "no token of this tokenizer" if text is None else repr(text)
            raise BrokenError(file=file, id=index, what=what, token=token, wanted=wanted)
    if not claims.pad_ids:
        return None
    return ", ".join(f"{file} says {index}" for file, index in claims.pad_ids.items())


PROBE = Probe(
    name="pad_id_is_the_pad_token",
    proves="a pad id in a model's configuration is the pad token's, not another family's",
    fails="{file} says pad_token_id {id}, which is {what}; the pad token {token!r} is {wanted}",
    remedy="Set pad_token_id to the pad token's id, or take it out.",
    check=_check,
    needs=("pad_is_one_token",),
    kind=TOKENS,
)
