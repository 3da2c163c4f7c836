"""What a profile says of its tokens: each is one id, inside the embedding, and none is another."""

from __future__ import annotations

from collections.abc import Callable

from stages.counted import counted
from stages.probes import TOKENS, BrokenError, Check, Probe, ProbeSubject
from stages.profile import ModelProfile


def one_id(subject: ProbeSubject, token: str) -> int:
    """The id of a text that must be one token.

    Raises:
        BrokenError: it is no token, or several.
    """
    if token.isdecimal():
        raise BrokenError(token=token, why="is a number; a token is named by its text")
    index = subject.tokenizer.token_to_id(token)
    ids = subject.tokenizer.encode(token, add_special_tokens=False).ids
    if index is None or ids != [index]:
        raise BrokenError(token=token, why=f"is not one token of the tokenizer (it gives {ids})")
    return int(index)


def seen(token: str, index: int) -> str:
    """A token and its id for messages."""
    return f"{token} = {index}"


def _each(tokens: Callable[[ModelProfile], tuple[str, ...]]) -> Check:
    """The check that each of a profile's tokens of one use is one id."""

    def check(subject: ProbeSubject) -> str | None:
        named = tokens(subject.model.profile)
        return ", ".join(seen(token, one_id(subject, token)) for token in named) or None

    return check


def _special(subject: ProbeSubject) -> str:
    token = subject.model.profile.end_of_turn
    if token not in subject.model.controls:
        raise BrokenError(token=token)
    return f"{token} is registered"


def _stops(subject: ProbeSubject) -> str | None:
    profile = subject.model.profile
    if profile.pair:
        return None  # an encoder generates nothing
    if profile.end_of_turn not in profile.generation_eos:
        raise BrokenError(token=profile.end_of_turn, stops=", ".join(profile.generation_eos))
    return f"{profile.end_of_turn} is among {', '.join(profile.generation_eos)}"


def _of_family(subject: ProbeSubject) -> str | None:
    declared = subject.model.profile.token_ids
    for token, index in declared:
        actual = subject.tokenizer.token_to_id(token)
        if actual != index:
            raise BrokenError(token=token, index=index, actual=actual)
    return f"{counted(len(declared), 'id')} as declared" if declared else None


def _inside(subject: ProbeSubject) -> str:
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


def _pad(subject: ProbeSubject) -> str:
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


def _pad_id(subject: ProbeSubject) -> str | None:
    claims, tokenizer = subject.claims, subject.tokenizer
    token = claims.pad_token or subject.model.profile.pad_token
    wanted = tokenizer.token_to_id(str(token))
    for file, index in claims.pad_ids.items():
        if index != wanted:
            known = index >= 0 and tokenizer.id_to_token(index) is not None
            text = tokenizer.decode([index], skip_special_tokens=False) if known else None
            what = "no token of this tokenizer" if text is None else repr(text)
            raise BrokenError(file=file, id=index, what=what, token=token, wanted=wanted)
    return ", ".join(f"{file} says {index}" for file, index in claims.pad_ids.items()) or None


def _pad_apart(subject: ProbeSubject) -> str:
    model, claims = subject.model, subject.claims
    if model.pad_id in (model.eos_id, model.end_of_turn_id):
        raise BrokenError(token=model.profile.pad_token)
    barred = (claims.eos_token, model.profile.end_of_turn)
    if claims.pad_token is not None and claims.pad_token in barred:
        raise BrokenError(token=claims.pad_token)
    return f"{model.pad_id} differs from {model.eos_id} and {model.end_of_turn_id}"


_ANOTHER = "Name a token with one id, or use the tokenizer that the profile was written for."

PROBES = (
    Probe(
        name="end_of_turn_is_one_token",
        proves="the end of a turn is one id, which a server can stop at",
        fails="end-of-turn token {token!r} {why}",
        remedy=_ANOTHER,
        check=_each(lambda profile: (profile.end_of_turn,)),
        kind=TOKENS,
    ),
    Probe(
        name="eos_is_one_token",
        proves="the eos token of the written tokenizer is one id",
        fails="eos token {token!r} {why}",
        remedy=_ANOTHER,
        check=_each(lambda profile: (profile.eos_token,)),
        kind=TOKENS,
    ),
    Probe(
        name="generation_eos_are_tokens",
        proves="every token at which generation stops is one id",
        fails="generation eos token {token!r} {why}",
        remedy="Name tokens of this tokenizer in the profile.",
        check=_each(lambda profile: profile.generation_eos),
        kind=TOKENS,
    ),
    Probe(
        name="promoted_markers_are_one_token",
        proves="turn markers that a profile makes special are one id each",
        fails="turn marker {token!r} {why}",
        remedy="Use the tokenizer that the profile was written for.",
        check=_each(lambda profile: profile.promoted),
        kind=TOKENS,
    ),
    Probe(
        name="end_of_turn_is_special",
        proves="the end of a turn is a special token, which no text can forge",
        fails="end-of-turn {token!r} is not a special token, so that text could forge it",
        remedy='In tokenizer.json, list it in added_tokens with "special": true, or name another '
        "with --eos.",
        check=_special,
        needs=("end_of_turn_is_one_token",),
        kind=TOKENS,
    ),
    Probe(
        name="generation_stops_at_end_of_turn",
        proves="generation stops at the token that training ends a turn with",
        fails="generation would never stop: end-of-turn {token!r} is not among its stops ({stops})",
        remedy="Add it to the profile's generation_eos.",
        check=_stops,
        needs=("end_of_turn_is_one_token",),
        kind=TOKENS,
    ),
    Probe(
        name="ids_are_the_familys",
        proves="the tokens that a family is known by have that family's ids",
        fails="{token!r} is {index} in this family, but {actual} here",
        remedy="This is another model's tokenizer; give the one that the profile was written for.",
        check=_of_family,
        kind=TOKENS,
    ),
    Probe(
        name="ids_inside_embedding",
        proves="every token that a build relies on has a row in the model's embedding",
        fails="{what} {token!r} has id {id}, outside the model's {rows} embedding rows",
        remedy="Use a model with spare rows, or tokens that it has. Or resize the embedding first "
        "(resize_token_embeddings), save the model, and give that directory with --model.",
        check=_inside,
        kind=TOKENS,
    ),
    Probe(
        name="pad_is_one_token",
        proves="the pad token is a string of the vocabulary, one id, and decodes to itself",
        fails="pad token {token!r} {why}",
        remedy="Name a special token of this tokenizer that no text uses as the profile's "
        "pad_token.",
        check=_pad,
        kind=TOKENS,
    ),
    Probe(
        name="pad_id_is_the_pad_token",
        proves="a pad id in a model's configuration is the pad token's, not another family's",
        fails="{file} says pad_token_id {id}, which is {what}; the pad token {token!r} is {wanted}",
        remedy="Set pad_token_id to the pad token's id, or take it out.",
        check=_pad_id,
        needs=("pad_is_one_token",),
        kind=TOKENS,
    ),
    Probe(
        name="pad_is_not_eos",
        proves="the pad token is neither eos nor the end of a turn",
        fails="pad token {token!r} is also the eos or end-of-turn token, so a loss that ignores "
        "padding would never train the stop",
        remedy="Name another pad token: in the profile, or in the directory's "
        "tokenizer_config.json.",
        check=_pad_apart,
        needs=("pad_is_one_token", "eos_is_one_token", "end_of_turn_is_one_token"),
        kind=TOKENS,
    ),
)
