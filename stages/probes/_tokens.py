"""What the probes of single tokens have in common."""

from __future__ import annotations

from stages.probes import BrokenError, Subject


def one_id(subject: Subject, token: str) -> int:
    """The id of a token that the tokenizer gives as a whole.

    Raises:
        BrokenError: it is none, or several.
    """
    if token.isdecimal():
        raise BrokenError(token=token, why="is a number; a token is named by its text")
    index = subject.tokenizer.token_to_id(token)
    ids = subject.tokenizer.encode(token, add_special_tokens=False).ids
    if index is None or ids != [index]:
        raise BrokenError(token=token, why=f"is not one token of the tokenizer (it gives {ids})")
    return int(index)


def seen(token: str, index: int) -> str:
    """How a token and its id are shown."""
    return f"{token} = {index}"
