"""What a profile says of its tokens: each is one id, inside the embedding, and none is another."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from stages.columns import IDS
from stages.errors import counted
from stages.tokenizers.probes import TOKENS, BrokenError, Probes, ProbeSubject
from stages.tokenizers.template_probes import QUESTION, dialogue, examples, ids_of, rendered, row_of
from stages.tokens.padded import pad

PROBES = Probes(TOKENS)


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


def _each(subject: ProbeSubject, tokens: Sequence[str]) -> str | None:
    """Tokens of one use, each of which must be one id; None where there are none."""
    return ", ".join(seen(token, one_id(subject, token)) for token in tokens) or None


@PROBES.add
def end_of_turn_is_one_token(subject: ProbeSubject) -> str | None:
    """The end of a turn is one id, which a server can stop at."""
    seen = _each(subject, tuple(dict.fromkeys(subject.model.profile.ends)))
    return seen and f"turns end in {seen.replace(', ', ', those of calls in ')}"


@PROBES.add
def eos_is_one_token(subject: ProbeSubject) -> str | None:
    """The eos token of the written tokenizer is one id."""
    return _each(subject, (subject.model.profile.eos_token,))


@PROBES.add
def generation_eos_are_tokens(subject: ProbeSubject) -> str | None:
    """Every token at which generation stops is one id."""
    return _each(subject, subject.model.profile.generation_eos)


@PROBES.add
def promoted_markers_are_one_token(subject: ProbeSubject) -> str | None:
    """Turn markers that a profile makes special are one id each."""
    return _each(subject, subject.model.profile.promoted)


@PROBES.add
def end_of_turn_is_special(subject: ProbeSubject) -> str:
    """The end of a turn is a special token, which no text can forge."""
    ends = dict.fromkeys(subject.model.profile.ends)
    for token in ends:
        if token not in subject.model.controls:
            raise BrokenError(token=token)
    return f"{', '.join(ends)} is registered"


@PROBES.add
def generation_stops_at_end_of_turn(subject: ProbeSubject) -> str | None:
    """Generation stops at the token that training ends a turn with."""
    profile = subject.model.profile
    if profile.pair:
        return None  # an encoder generates nothing
    ends, stops = dict.fromkeys(profile.ends), ", ".join(profile.generation_eos)
    for token in ends:
        if token not in profile.generation_eos:
            raise BrokenError(token=token, stops=stops)
    return f"{', '.join(ends)} is among {stops}"


@PROBES.add
def ids_are_the_familys(subject: ProbeSubject) -> str | None:
    """The tokens that a family is known by have that family's ids."""
    declared = subject.model.profile.token_ids
    for token, index in declared:
        actual = subject.tokenizer.token_to_id(token)
        if actual != index:
            raise BrokenError(token=token, index=index, actual=actual)
    return f"{counted(len(declared), 'id')} as declared" if declared else None


@PROBES.add
def ids_inside_embedding(subject: ProbeSubject) -> str:
    """Every token that a build relies on has a row in the model's embedding."""
    profile = subject.model.profile
    named = {
        "end-of-turn token": profile.end_of_turn,
        "end-of-call token": profile.ends[1],
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


@PROBES.add
def pad_is_one_token(subject: ProbeSubject) -> str:
    """The pad token is a string of the vocabulary, one id, and decodes to itself."""
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


@PROBES.add
def pad_id_is_the_pad_token(subject: ProbeSubject) -> str | None:
    """A pad id in a model's configuration is the pad token's, not another family's."""
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


@PROBES.add
def pad_is_not_eos(subject: ProbeSubject) -> str:
    """The pad token is neither eos nor the end of a turn."""
    model, claims = subject.model, subject.claims
    if model.pad_id in (model.eos_id, *model.end_ids):
        raise BrokenError(token=model.profile.pad_token)
    # A pad token that is the declared eos can stay where turns end in others.
    barred = {claims.eos_token, *model.profile.ends} - {model.profile.pad_token, None}
    if claims.pad_token in barred:
        raise BrokenError(token=claims.pad_token)
    return f"{model.pad_id} differs from {', '.join(map(str, (model.eos_id, *model.end_ids)))}"


@PROBES.add
def padding_sides_leave_ids(subject: ProbeSubject) -> str:
    """Padding, on either side, leaves a sequence's ids as they are."""
    rows = [row_of(QUESTION), *(row for row, _ in examples(subject, dialogue(subject)))]
    sequences = [ids_of(subject, rendered(subject, row))[0] for row in rows]
    pad_id = subject.model.pad_id
    if any(pad_id in ids for ids in sequences):
        raise BrokenError(detail=f"the pad id {pad_id} occurs inside a sequence")
    names = [str(i) for i in range(len(rows))]
    ids = pa.array(sequences, IDS)
    table = pa.table({"row_id": names, "input_ids": ids, "labels": ids})
    size = max(map(len, sequences)) + 3
    for side in ("left", "right"):
        padded = pad(table, size=size, side=side, pad_id=pad_id).to_pydict()
        for ours, row, mask in zip(
            sequences, padded["input_ids"], padded["attention_mask"], strict=True
        ):
            kept = np.array(row)[np.array(mask) == 1].tolist()
            if kept != ours or set(
                row[: size - len(ours)] if side == "left" else row[len(ours) :]
            ) != {pad_id}:
                raise BrokenError(detail=f"padding on the {side} changes ids")
    return f"{counted(len(rows), 'sequence')} padded with {pad_id} on both sides"
