"""Every token that a build uses has a row in the model's embedding."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str:
    profile = subject.model.profile
    named = {
        "end-of-turn token": profile.end_of_turn,
        "eos token": profile.eos_token,
        "pad token": profile.pad_token,
        **{f"generation eos token {i + 1}": t for i, t in enumerate(profile.generation_eos)},
    }
    if subject.model.step_id >= 0:
        steps = profile.step_tokens
        named |= {"step token": steps.step, "good token": steps.good, "bad token": steps.bad}
    named |= {f"added token {text}": text for text in profile.added_tokens}
    highest = -1
    for what, token in named.items():
        index = subject.tokenizer.token_to_id(token)
        if index is None:
            continue  # reported by the probes of single tokens
        if index >= profile.embedding_size:
            raise BrokenError(what=what, token=token, id=index, rows=profile.embedding_size)
        highest = max(highest, index)
    return f"{highest} < {profile.embedding_size}"


PROBE = Probe(
    name="ids_inside_embedding",
    proves="every token that a build relies on has a row in the model's embedding",
    fails="{what} {token!r} has id {id}, outside the model's {rows} embedding rows",
    remedy="Use a model with spare rows, or tokens that it has. Or resize the embedding first "
    "(resize_token_embeddings), save the model, and give that directory with --model.",
    check=_check,
    kind=TOKENS,
)
