"""Pairs that say no more than a prompt and two answers: they become columns without an object.

Both answers are texts, turns, or one turn each, behind a prompt that is a text or turns; or both
are whole conversations that begin alike. Every other row is read by its format, one by one, which
would give these the same columns.
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from stages import columns, kinds
from stages.columns import offsets_of
from stages.format import Format
from stages.formats import _pairs
from stages.normalize.plain import SAID, Reading, reading_beside
from stages.normalize.turns import ASSISTANT, FOLLOWS, SPELLED, USER, Made, Turns
from stages.rows import stop_text

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize

Talk: TypeAlias = tuple[tuple[int, ...], list[str]]  # the roles of some turns, and their texts


@dataclass(slots=True)
class _Side:
    """One side of many pairs, whole conversations row after row."""

    roles: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def add(self, prompt: Talk, answer: Talk) -> None:
        """One more row."""
        self.roles += prompt[0] + answer[0]
        self.texts += prompt[1]
        self.texts += answer[1]
        self.sizes.append(len(prompt[0]) + len(answer[0]))

    def messages(self, prompts: Sequence[int]) -> pa.ListArray:
        """The column of turns; ``prompts``: how many of each row's come before the answer."""
        roles, sizes = np.array(self.roles, np.int8), np.array(self.sizes, np.int64)
        offsets = offsets_of(sizes)
        within = np.arange(len(roles)) - np.repeat(offsets[:-1], sizes)
        trained = (roles == ASSISTANT) & (within >= np.repeat(np.array(prompts), sizes))
        return Turns(roles, pa.array(self.texts, pa.string()), offsets).messages(trained)


@dataclass(slots=True)
class Pairs(Made):
    """Pairs, flat: both sides, and how many turns of each row are the prompt."""

    chosen: _Side = field(default_factory=_Side)
    rejected: _Side = field(default_factory=_Side)
    prompts: list[int] = field(default_factory=list)

    def add(self, prompt: Talk, chosen: Talk, rejected: Talk) -> None:
        """One more row."""
        self.chosen.add(prompt, chosen)
        self.rejected.add(prompt, rejected)
        self.prompts.append(len(prompt[0]))

    def columns(self, normalize: "Normalize") -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        count = len(self.prompts)
        return {
            "chosen_messages": self.chosen.messages(self.prompts),
            "rejected_messages": self.rejected.messages(self.prompts),
            "tools": pa.nulls(count, columns.TYPES["tools"]),
            "margin": pa.nulls(count, columns.TYPES["margin"]),
        }


def _is_ordinary(answer: str) -> bool:
    """Whether an answer ends as ordinary text does, and leaves no reasoning open."""
    if not answer.strip() or stop_text.ending_stop(answer):
        return False
    return not stop_text.opens_reasoning(answer)


def _turns(value: Sequence[Any]) -> Talk | None:
    """A list of turns that are a role and a text each; None where one is more, or says nothing."""
    roles: list[int] = []
    texts: list[str] = []
    for turn in value:
        if type(turn) is not dict or len(turn) != 2:
            return None
        who, said = SAID[0] if "role" in turn else SAID[1]
        spelled, text = turn.get(who), turn.get(said)
        role = SPELLED.get(spelled) if type(spelled) is str else None
        if role is None or type(text) is not str or not text.strip():
            return None
        if role == ASSISTANT and not _is_ordinary(text):
            return None
        roles.append(role)
        texts.append(text)
    return (tuple(roles), texts) if roles else None


def _side(value: Any) -> Talk | None:
    """One answer, or one whole conversation."""
    if type(value) is str:
        # A text that begins as a list may be the JSON of turns.
        plain = _is_ordinary(value) and stop_text.read(value) is None and value.lstrip()[0] != "["
        return ((ASSISTANT,), [value]) if plain else None
    if type(value) is dict:
        return _turns((value,))
    return _turns(value) if type(value) is list else None


def _prompt(value: Any, in_turns: bool) -> Talk | None:
    """The prompt of two answers; ``in_turns``: its column holds turns alone."""
    if type(value) is str:
        return ((USER,), [value]) if not in_turns and stop_text.read(value) is None else None
    return _turns(value) if type(value) is list else None


def _restates(value: Any, prompt: Talk) -> bool:
    """Whether a prompt column repeats turns of the prompt that two conversations share."""
    wanted = (None, [value]) if type(value) is str else _prompt(value, in_turns=True)
    said = {text.strip() for text in prompt[1]}
    return wanted is not None and all(text.strip() in said for text in wanted[1])


@functools.lru_cache(4096)
def _alternates(roles: tuple[int, ...]) -> bool:
    """Whether turns are somebody's question and its answer, again and again."""
    follow = all(FOLLOWS[a, b] for a, b in itertools.pairwise(roles))
    return follow and roles[0] != ASSISTANT == roles[-1]


def _pair(chosen: Any, rejected: Any, asked: Any, name: str, format_: Format) -> Sequence[Talk]:
    """Prompt and both answers; nothing where the row is not plain.

    Args:
        asked: the value of the prompt's column ``name``; None where there is no such column.
    """
    better, worse = _side(chosen), _side(rejected)
    if better is None or worse is None or better == worse:
        return ()
    if better[0][0] == ASSISTANT == worse[0][0]:
        prompt = _prompt(asked, name not in format_.asks)
        if prompt is None:
            return ()
    elif better[0][0] != ASSISTANT != worse[0][0]:
        first, second = ([*zip(*side, strict=True)] for side in (better, worse))
        count = _pairs.shared(first, second, is_answer=lambda turn: turn[0] == ASSISTANT)
        prompt = better[0][:count], better[1][:count]
        if asked is not None and not (name in format_.restates and _restates(asked, prompt)):
            return ()
        better, worse = ((roles[count:], texts[count:]) for roles, texts in (better, worse))
    else:
        return ()
    # Sides that begin with one answer may go on with different questions: their format looks.
    differ_at_once = better[1][0] != worse[1][0]
    whole = differ_at_once and prompt[0][-1:] == (USER,)
    whole = whole and all(_alternates(prompt[0] + side[0]) for side in (better, worse))
    return (prompt, better, worse) if whole else ()


def _take(
    made: Pairs, chosen: Any, rejected: Any, asked: Any = None, *, name: str, format_: Format
) -> bool:
    found = _pair(chosen, rejected, asked, name, format_)
    if found:
        made.add(*found)
    return bool(found)


def reading_of(names: Sequence[str], format_: Format, kind: kinds.Kind) -> Reading | None:
    """How rows of a prompt and two answers are read."""
    if format_.answers is None or not all(name in names for name in format_.answers):
        return None
    asked = [name for name in names if name in format_.asks or name in format_.asks_in_turns]
    if len(asked) > 1:
        return None
    take = functools.partial(_take, name=asked[0] if asked else "", format_=format_)
    return reading_beside((*format_.answers, *asked), names, format_, kind, Pairs, take)
