"""What formats of rated steps have in common: problems, lists of steps, texts with tags, turns."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from stages.contract import FormatOptions, Message, Row, StepChain
from stages.errors import RowError, UndecidedError, counted
from stages.format import Format
from stages.formats import _messages, _turns
from stages.formats._fields import Asking, Field, columns_of, tried
from stages.kinds import STEPS
from stages.rows.column_names import peek
from stages.rows.shapes import is_list_of_texts

# Step tags in the wild: Math-Shepherd, Qwen2.5-Math-PRM, Llama PRMs.
TAGS = ("ки", "<extra_0>", "<|reserved_special_token_0|>", "<step>", "<|step|>")
PROBLEMS, LISTS = columns_of("problem")["problem"], columns_of("listed")["steps"]


class Steps(Asking, abstract=True):
    """A format of rated steps, whose problem stands in a column of its own."""

    kinds = (STEPS,)
    prompts: tuple[str, ...] = PROBLEMS


# What may stand between the steps of a file without tags, the longest first, by variant.
BREAKS = {"five-breaks": "\n" * 5, "paragraphs": "\n\n", "lines": "\n"}
_RIVAL = 0.25  # of the rows that the best one fits: where so many show another, it is asked


def cut(text: str, options: FormatOptions, listed: bool = False) -> list[str]:
    """A text without the step tag that it uses: what stands before each, and after the last.

    Line breaks may be the tag: several of them in a row are one, and none need follow the last
    step.

    Args:
        listed: the ratings are a list; else the text is cut at every tag, to be aligned.

    Raises:
        RowError: it is empty, or no tag that is known, or was named, stands in it.
    """
    if not text.strip():
        raise RowError("no_steps", "the text of the steps is empty")
    tags = (options.step_tag,) if options.step_tag else TAGS
    if listed and tags[0].isspace():
        return [*pieces_of(text, tags[0]), ""]
    tag = next((tag for tag in tags if tag in text), None)
    if tag is not None:
        return text.split(tag)
    detail = f"no step tag ({', '.join(map(_shown, tags))}) occurs in the text"
    raise RowError("no_steps", f"{detail}; see --step-tag")


def pieces_of(text: str, blank: str) -> list[str]:
    """What stands between line breaks, several of which in a row are one."""
    return [piece for piece in re.split(f"(?:{re.escape(blank)})+", text) if piece.strip()]


def is_broken(text: str, count: int) -> bool:
    """Whether a text has so many pieces between line breaks of one kind."""
    return any(len(pieces_of(text, blank)) == count for blank in BREAKS.values())


def _named(way: str) -> str:
    """A tag in a sentence, by its variant."""
    return f"'{_shown(BREAKS[way])}'" if way else "known step tags"


def _steps_in(format_: Format, row: Row, options: FormatOptions) -> list[str]:
    """The steps of a row; empty where it is refused, also in part."""
    made = tried(format_, row, options)
    chains = [] if isinstance(made, Exception) else made
    steps = [one.steps if isinstance(one, StepChain) else None for one in chains]
    return [] if None in steps else [step.strip() for some in steps for step in some or ()]


class Cut(Steps, abstract=True):
    """A format whose steps may stand in one text: all rows of a file are cut at one tag.

    Where nobody named it, it is a known one, or in a variant the line breaks that give as many
    steps as ratings in the most rows.
    """

    ways: tuple[str, ...] = ("tags", *BREAKS)
    _tagged = "tags"

    def _cutting(self, options: FormatOptions) -> FormatOptions:
        """The options with the tag that rows of this variant are cut at."""
        breaks = BREAKS.get(self._way.removeprefix("signed-"))
        return replace(options, step_tag=breaks) if breaks and not options.step_tag else options

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        way, why = super().settle(rows, options)
        if options.step_tag:
            return way, why
        each = {n: f"{way}-{n}".strip("-") or self._tagged for n in ("", *BREAKS)}
        variants = {name: self.variants[one] for name, one in each.items()}
        read = {n: [_steps_in(one, row, options) for row in rows] for n, one in variants.items()}
        for name in BREAKS:  # a text that is cut at a known tag may have line breaks, too
            read[name] = [a if not b else [] for a, b in zip(read[name], read[""], strict=True)]
        fits = {name: sum(map(bool, steps)) for name, steps in read.items()}
        best = max(fits, key=lambda name: fits[name])
        if 2 * fits[best] < len(rows):
            return way, why
        for name in each:
            both = zip(read[name], read[best], strict=True)
            if sum(bool(a) and a != b for a, b in both) > _RIVAL * fits[best]:
                shown = [f"{_named(one)} in {counted(fits[one], 'row')}" for one in (best, name)]
                what = f"as many steps as ratings stand between {' and between '.join(shown)}"
                all_alike = "and one tag is read in all rows of a file"
                raise UndecidedError(f"{what}, {all_alike}", (each[best], each[name]))
        more = f"steps stand between {_named(best)}, as with --step-tag {_named(best)}"
        return (each[best], "; ".join(filter(None, (why, more)))) if best else (way, why)


def _shown(tag: str) -> str:
    """A tag as the option spells it."""
    return tag.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def is_tagged(text: str) -> bool:
    """Whether one of the known step tags stands in a text."""
    return any(tag in text for tag in TAGS)


_CONCLUDED = re.compile(r"\\boxed\{|\banswer\b.{0,12}(?:\bis\b|:)|####", re.IGNORECASE)


def are_attempts(texts: list[str]) -> bool:
    """Whether each of some texts is a whole solution, which ends with an answer."""
    return all(_CONCLUDED.search(text[-80:]) for text in texts)


def require_tail(pieces: list[str]) -> None:
    """After the last tag only whitespace may stand.

    Raises:
        RowError: something else does.
    """
    if pieces[-1].strip():
        detail = f"text after the last step tag: {pieces[-1].strip()[:60]!r}"
        raise RowError("text_after_last_step", detail)


def chain(
    pieces: list[str], labels: list[float | None], options: FormatOptions, own_text: bool = True
) -> StepChain:
    """A chain from a joined text, cut at its tags.

    The problem ends where the first step begins: at ``Step 1:``, or at what ``--prompt-separator``
    says.

    Args:
        own_text: the pieces are one text of the row's own, which ``raw`` rendering repeats.

    Raises:
        RowError: text follows the last tag, or where the first step begins is not said.
    """
    require_tail(pieces)
    at = _first_step(pieces[0], options.prompt_separator)
    steps = [pieces[0][at:], *pieces[1:-1]]
    return StepChain(pieces[0][:at], steps, labels, pieces=pieces if own_text else None)


def _first_step(text: str, separator: str) -> int:
    """Where the first step begins in what stands before the first tag.

    A question may speak of steps itself. Where it numbers more of them before the steps begin again
    at the first, those are the question's own. Otherwise nothing says which one begins the answer.

    Raises:
        RowError: none begins there, or one of several.
    """
    second = re.sub(r"\b1\b", "2", separator, count=1)  # Step 2:
    places = [match.start() for match in re.finditer(re.escape(separator), text)]
    if not places:
        how = "see --prompt-separator"
        if text.strip().count("\n") == 1:
            how = "where the problem is the first line, add --prompt-separator '\\n'"
        detail = f"no {separator!r} before the first tag; {how}"
        raise RowError("no_first_step", detail)
    if second == separator:  # a separator that numbers nothing: the problem ends where it first is
        return places[0]
    numbered = [second in text[a:b] for a, b in pairwise(places)]
    if all(numbered) and second not in text[places[-1] :]:
        return places[-1]
    seen = f"{separator!r} occurs {counted(len(places), 'time')} before the first tag"
    if all(numbered):  # the step before a tag does not number the one behind it
        seen = f"{second!r} occurs after {separator!r} before the first tag"
    detail = "so where the problem ends is not clear; give --prompt-separator a longer text that "
    raise RowError("two_first_steps", f"{seen}, {detail}occurs once")


LISTED = Field("list of steps", LISTS, is_list_of_texts)
SPOKEN = Field("turns", columns_of("spoken")["turns"], _turns.are_turns)


def texts(row: Row, column: str) -> list[str]:
    """A column that must be a list of texts.

    Raises:
        RowError: it is none, or holds other things than texts.
    """
    value = row[column]
    if not isinstance(value, list):
        raise RowError("bad_column", f"column {column!r} is not a list of texts")
    for at, one in enumerate(value):
        if not isinstance(one, str):
            raise RowError("bad_column", f"{column}[{at}] is {_messages.kind_of(one)}, not text")
    return list(value)


def require_alone(row: Row) -> None:
    """Beside its problem, its steps and a system text the row says nothing for the model to read.

    Raises:
        RowError: it has a history.
    """
    if any(turn.role != "system" for turn in _turns.before(row)):
        raise RowError("bad_column", "column 'history' has no place before rated steps")


def problem(row: Row, options: FormatOptions) -> str:
    """The text of the problem, under any of its usual names."""
    require_alone(row)
    named = _turns.first_of(row, PROBLEMS, options.columns)
    name = named or next((one for one in PROBLEMS if one in row), "problem")
    return _turns.text(row, name)


def spoken(turns: list[Row]) -> list[tuple[str | None, Any]]:
    """Role and content of each turn, whatever the dialect."""
    contents = [(turn.get("content"), turn) for turn in turns]
    said = [turn.get("value") if content is None else content for content, turn in contents]
    return [*zip(map(_messages.role_of, turns), said, strict=True)]


def conversation(row: Row, column: str | None = None) -> list[Message]:
    """The row's turns without a system text, which ``system_text`` gives.

    Raises:
        RowError: a turn has a weight of its own, which steps do not.
    """
    column = column or SPOKEN.first(row)
    column = column or next((one for one in SPOKEN.names if one in row), "messages")
    turns = _turns.whole(row, column)
    if any(turn.weight is not None for turn in turns):
        raise RowError("bad_weight", "a turn's weight: steps are trained by their ratings alone")
    return turns[turns[0].role == "system" :]


def system_text(row: Row) -> str | None:
    """The row's own system text: in a column, or as the first turn; None where it has none."""
    if said := _turns.system(row):
        return said[0].content
    column = SPOKEN.first(row)
    role, text = spoken(peek(row, column))[0] if column else (None, None)
    return text if role == "system" and isinstance(text, str) and text.strip() else None
