"""Tokens that the user adds (``--add-token``): each is one id wherever its text occurs.

Such a token is registered as an ordinary added token, not as a special one. Text is meant to become
it, and the rule that no text becomes a control token still holds.
"""

from __future__ import annotations

from dataclasses import replace

from stages.errors import UsageError
from stages.models.encoders import parsed
from stages.models.profile import ModelProfile


def _problem(text: str, profile: ModelProfile, tokenizer_json: bytes) -> str | None:
    tokenizer = parsed(tokenizer_json)
    controls = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    if not text or text != text.strip():
        return "is empty, or begins or ends in whitespace"
    if text in controls:
        return f"is a control token of {profile.name} already"
    inside = next((token for token in controls if token in text), None)
    if inside is not None:
        return f"holds the control token {inside!r}"
    return None


def _is_word(text: str, tokenizer_json: bytes) -> bool:
    tokenizer = parsed(tokenizer_json)
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return text not in known and (tokenizer.token_to_id(text) is not None or len(ids) == 1)


def register(profile: ModelProfile, tokenizer_json: bytes, wanted: tuple[str, ...]) -> ModelProfile:
    """The profile with those of the wanted tokens that the tokenizer does not have yet.

    Raises:
        UsageError: a text cannot be a token of its own.
    """
    if not (wanted or profile.added_tokens):
        return profile
    for text in wanted:
        problem = _problem(text, profile, tokenizer_json)
        if problem is not None:
            raise UsageError(
                f"--add-token {text!r} {problem}.", "Give another text, such as <search>."
            )
        if _is_word(text, tokenizer_json):
            raise UsageError(
                f"--add-token {text!r} is one token of {profile.name} already, a word of its "
                "vocabulary.",
                "Leave it out; --stop stops at it by its string or its id.",
            )
    known = {t.content for t in parsed(tokenizer_json).get_added_tokens_decoder().values()}
    new = dict.fromkeys(text for text in (*profile.added_tokens, *wanted) if text not in known)
    return replace(profile, added_tokens=tuple(new))
