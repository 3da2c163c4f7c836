"""Rows of a prompt and two answers, or of rated steps, alone: columns without an object.

Both answers are texts, turns, or one turn each, behind a prompt that is a text or turns; or both
are whole conversations that begin alike. Every other row is read by its format, one by one, which
would give these the same columns.
"""

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from stages import columns, contract, kinds
from stages.columns import offsets_of
from stages.format import Format
from stages.formats import _pairs, _rated_steps, _ratings, _turns
from stages.normalize import plain, turns
from stages.normalize.turns import ASSISTANT, FOLLOWS, SPELLED, USER, Made, Turns
from stages.rows import examples, stop_text

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


def _talk(value: Sequence[Any]) -> Talk | None:
    """A list of turns that are a role and a text each; None where one is more, or says nothing."""
    roles: list[int] = []
    texts: list[str] = []
    for turn in value:
        if type(turn) is not dict or len(turn) != 2:
            return None
        who, said = plain.SAID[0] if "role" in turn else plain.SAID[1]
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
        return _talk((value,))
    return _talk(value) if type(value) is list else None


def _prompt(value: Any, in_turns: bool) -> Talk | None:
    """The prompt of two answers; ``in_turns``: its column holds turns alone."""
    if type(value) is str:
        return ((USER,), [value]) if not in_turns and stop_text.read(value) is None else None
    return _talk(value) if type(value) is list else None


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


def reading_of(names: Sequence[str], format_: Format, kind: kinds.Kind) -> plain.Reading | None:
    """How rows of a prompt and two answers are read."""
    if format_.answers is None or not all(name in names for name in format_.answers):
        return None
    asked = [name for name in names if name in format_.asks or name in format_.asks_in_turns]
    if len(asked) > 1:
        return None
    take = functools.partial(_take, name=asked[0] if asked else "", format_=format_)
    return plain.reading_beside((*format_.answers, *asked), names, format_, kind, Pairs, take)


# Rows that are a problem, its steps and their ratings alone: columns without an object.
#
# The steps stand in a list, or in one text with a tag behind each. Every other row is read by its
# format, one by one, which would give these the same columns.


_USUAL = {True: 1.0, False: 0.0, "+": 1.0, "-": 0.0, None: None}
_USUAL_TYPES = frozenset(map(type, _USUAL))  # a number may equal a boolean


@dataclass(slots=True)
class Chains(turns.Made):
    """Rows of steps.

    Attributes:
        ready: each with its problem and steps stripped, and its steps as written.
        rewritten: the rows whose steps lose an indent or blank lines.
    """

    ready: list[tuple[contract.StepChain, list[str]]] = field(default_factory=list)
    rewritten: list[int] = field(default_factory=list)

    def add(
        self,
        problem: str,
        written: list[str],
        ratings: list[float | None],
        pieces: list[str] | None = None,
    ) -> bool:
        """One more row; False where it is not plain.

        Raises:
            RowError: it would train nothing, or something wrong.
        """
        if stop_text.read(problem) is not None:
            return False
        chain = examples.chain(contract.StepChain(problem, written, ratings, pieces))
        if stop_text.ending_stop(chain.steps[-1]):
            return False
        if not all(map(_is_joined, written, chain.steps)) and examples.is_rewritten(written):
            self.rewritten.append(len(self.ready))
        self.ready.append((chain, written))
        return True

    def columns(self, normalize: "Normalize") -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        filled = kinds.MEMBERS[kinds.STEPS].filled(self.ready, normalize)
        return {name: pa.array(values, columns.TYPES[name]) for name, values in filled.items()}

    def odd(self, normalize: "Normalize") -> Mapping[int, list[str]]:
        """Rows of which stripping changes more than blanks between steps."""
        return {} if normalize.raw else {row: ["steps_rewritten"] for row in self.rewritten}


def _is_joined(written: str, step: str) -> bool:
    """Whether a step has no blanks around it but one line break before it and one behind it."""
    more = len(written) - len(step)
    if more == 0:
        return True
    return more == (written[0] == "\n") + (written[-1] == " ")


@dataclass(frozen=True, slots=True)
class _Cut:
    """Cuts a text at its tags.

    Attributes:
        tags: the first of them that stands in a text is the tag of the text.
        separator: before the first step; ``second``: before the second, where it has numbers.
    """

    tags: tuple[str, ...]
    separator: str
    second: str

    def __call__(self, text: str) -> tuple[str, list[str], list[str]] | None:
        """The problem, the steps, the pieces; None where one of them is not clear."""
        tag = next((tag for tag in self.tags if tag in text), None)
        if tag is None:
            return None
        pieces = text.split(tag)
        first = pieces[0]
        at = first.find(self.separator)
        # Where a text numbers more steps, which of them is the answer's first takes more care.
        again = first.find(self.separator, at + 1) >= 0 or self.second in first[at:]
        if at < 0 or again or pieces[-1].strip():
            return None
        return first[:at], [first[at:], *pieces[1:-1]], pieces


def _rated(values: Any, count: int) -> list[float | None]:
    """One rating per step; usual ones are looked up, and others read with more care."""
    usual = (
        type(values) is list and len(values) == count and _USUAL_TYPES.issuperset(map(type, values))
    )
    if usual and all(value in _USUAL for value in values):
        return [_USUAL[value] for value in values]
    return _ratings.ratings(values, count, "")


def _take_lists(made: Chains, problem: Any, steps: Any, values: Any) -> bool:
    """A row with a list of steps and a list of ratings."""
    if type(problem) is not str or type(steps) is not list or {*map(type, steps)} != {str}:
        return False
    return made.add(problem, steps, _rated(values, len(steps)))


def _take_text(made: Chains, text: Any, label: Any, cut: _Cut, listed: bool) -> bool:
    """A row with a text that has a tag behind each step.

    Args:
        listed: ``label`` is a list of ratings, not another text that has a sign for each tag.
    """
    parts = cut(text) if type(text) is str else None
    if parts is None:
        return False
    problem, steps, pieces = parts
    if listed:
        ratings = _rated(label, len(steps))
    else:
        ratings = _ratings.aligned(pieces, _turns.text({"label": label}, "label"))
    return made.add(problem, steps, ratings, pieces)


def _wanted(format_: Format, options: contract.FormatOptions) -> tuple[Any, plain.Take] | None:
    """The names of the columns that a plain row has, and how such a row is taken."""
    if format_.step_lists is not None:
        return format_.step_lists, _take_lists
    separator = options.prompt_separator
    second = re.sub(r"\b1\b", "2", separator, count=1)
    tags = (options.step_tag,) if options.step_tag else _rated_steps.TAGS
    names = format_.step_text or format_.step_texts
    if second == separator or names is None:
        return None
    listed = format_.step_text is not None
    return names, functools.partial(_take_text, cut=_Cut(tags, separator, second), listed=listed)


def reading_of_steps(
    names: Sequence[str], format_: Format, kind: kinds.Kind, options: contract.FormatOptions
) -> plain.Reading | None:
    """How rows of rated steps are read."""
    wanted = _wanted(format_, options)
    taken = plain.only_one(wanted[0], names) if wanted else None
    if wanted is None or taken is None:
        return None
    return plain.reading_beside(taken, names, format_, kind, Chains, wanted[1])
