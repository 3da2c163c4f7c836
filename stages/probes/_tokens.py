"""Helpers of the probes of single tokens."""

from __future__ import annotations

from stages.probes import BrokenError, ProbeSubject


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
