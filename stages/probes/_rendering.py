"""What the probes that render have in common."""

from __future__ import annotations

from stages.errors import RowError
from stages.probes import BrokenError, Subject
from stages.render import Row
from stages.segments import TRAINED


def rendered(subject: Subject, row: Row) -> tuple[str, str, str]:
    """A conversation's untrained and trained text, and the path that rendered it.

    Raises:
        BrokenError: it cannot be rendered.
    """
    try:
        texts, kinds, path = subject.renderer(row)
    except RowError as error:
        raise BrokenError(detail=error.detail) from error
    pairs = list(zip(texts, kinds, strict=True))
    prompt = "".join(text for text, kind in pairs if not kind & TRAINED)
    return prompt, "".join(text for text, kind in pairs if kind & TRAINED), path


def question(*more: tuple[str, str]) -> Row:
    """A conversation of one question and its answer, and whatever follows."""
    turns = [("user", "x"), ("assistant", "y"), *more]
    roles = [role for role, _ in turns]
    trained = [role == "assistant" for role in roles]
    return Row(roles, [text for _, text in turns], [None] * len(turns), trained, None)
