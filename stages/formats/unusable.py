"""Rows that are recognised to be refused by their name: no example of the task is in them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _messages, _turns
from stages.kinds import CONVERSATION, PAIR, STEPS
from stages.rows import column_names
from stages.rows.column_names import peek


class Unusable(Format, abstract=True):
    """A format that none of the tasks can use.

    Args:
        says: what its rows are, in one sentence.
        evidence: why a row looks like it, in words; None when it does not.
        what: what such rows are, as the rest of a sentence that begins with the evidence.
        instead: what to give instead.
    """

    usable = False

    def __init__(
        self,
        name: str,
        kinds: tuple[str, ...],
        says: str,
        *,
        columns: Columns,
        evidence: Callable[[Row], str | None],
        what: str,
        instead: str,
    ) -> None:
        self.name, self.kinds, self.columns, self.__doc__ = name, kinds, columns, says
        self._evidence, self._what, self._instead = evidence, what, instead

    def matches(self, row: Row) -> str | None:
        return self._evidence(row)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        said = next(reason for row in rows if (reason := self._evidence(row)))
        return f"{said}: {self._what}", self._instead

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        raise RowError(self.name, self._what)


def _is_batch_line(row: Row) -> str | None:
    if "custom_id" not in row:
        return None
    if isinstance(peek(row, "body"), dict):
        return "custom_id and body"
    return "custom_id and response" if isinstance(peek(row, "response"), dict) else None


_ONE = ("completion", "response", "answer", "output", "messages", "conversations")
_SECOND = ("chosen", "rejected", "responses", "answers", "completions", "candidates", "label")
_NUMBERS = tuple(
    "reward score rating helpfulness quality reward_score overall_score correctness".split()
)


def _has_one_number(row: Row) -> str | None:
    if any(name in row for name in _SECOND):
        return None
    answers = [name for name in _ONE if isinstance(peek(row, name), (str, list))]
    number = next((name for name in _NUMBERS if type(peek(row, name)) in (int, float)), None)
    return f"one {answers[0]} with one {number}" if len(answers) == 1 and number else None


def _has_segments(row: Row) -> str | None:
    value = peek(row, "segments")
    if not isinstance(value, list) or not value:
        return None
    known = all(isinstance(one, dict) and {"text", "label"} <= one.keys() for one in value)
    return "segments with text and label" if known else None


_TURNS = ("prompt", "context_messages")
_TEXTS = ("prompt", "question", "problem", "query", "instruction")
_CHECKED = ("reward_model", "ground_truth", "reference_answer", "verification_info", "test_cases")
# Any of these may hold an answer; then the row is for another format.
_ANSWERS = frozenset(
    "answers responses solutions completions chosen rejected candidates messagecontent steps "
    "labels replies children instances text inputids".split()
)
_HELD = {*_TURNS, *_CHECKED, "extra_info", "metadata", "meta", "tools", "tags", "info"}


def _ends_unanswered(value: Any) -> bool:
    if not _turns.are_turns(value):
        return False
    return all(_messages.role_of(turn) in ("system", "user") for turn in value)


def _has_no_answer(row: Row) -> str | None:
    said = [name for name, value in row.items() if value not in (None, "", [], {})]
    checked = next((name for name in _CHECKED if name in said), None)
    turns = next((name for name in _TURNS if _ends_unanswered(peek(row, name))), None)
    asked = turns or next((name for name in _TEXTS if isinstance(peek(row, name), str)), None)
    if asked is None or (not checked and not turns and asked != "prompt"):
        return None
    names = [column_names.plain(name) for name in said]
    if any(column_names.is_a(name, "answer") for name in said):
        return None
    if any(name in _ANSWERS or "response" in name or "output" in name for name in names):
        return None
    if any(isinstance(peek(row, name), (list, dict)) for name in said if name not in _HELD):
        return None
    return f"{asked} and {checked}" if checked else f"{asked} without an answer"


_UNANSWERED = (
    "no answer is written here that could be trained, as in prompts for reinforcement learning"
)
_ANSWER_THEM = (
    "Give rows with an answer (messages that end with the assistant, or prompt and completion; for "
    "rm chosen and rejected)"
)


def unanswered(rows: Sequence[Row], columns: Iterable[str]) -> tuple[str, str] | None:
    """What rows are of which every one has turns and no turn of an assistant; as ``doubt`` says it.

    Args:
        columns: those that may hold the turns.
    """
    for name in columns:
        if rows and all(_ends_unanswered(peek(row, name)) for row in rows):
            return f"{name} without an answer: {_UNANSWERED}", _ANSWER_THEM
    return None


TABLE = (
    Unusable(
        "batch_lines",
        (CONVERSATION, PAIR, STEPS),
        "Lines of a batch file for an inference server: requests without answers, or only the "
        "answers.",
        columns={"id": ("custom_id",), "request": ("body",), "answer": ("response",)},
        evidence=_is_batch_line,
        what="lines of a batch file, which hold either the requests or the answers to them",
        instead="Join both files by custom_id, and write rows with messages: those of "
        "body.messages, and after them response.body.choices[0].message",
    ),
    Unusable(
        "prompts_alone",
        (CONVERSATION, PAIR),
        "Prompts without an answer, with or without a reference to check answers against: RL data.",
        columns={"prompt": tuple(dict.fromkeys((*_TURNS, *_TEXTS))), "checked": _CHECKED},
        evidence=_has_no_answer,
        what=_UNANSWERED,
        instead=_ANSWER_THEM,
    ),
    Unusable(
        "regression_reward",
        (PAIR,),
        "One answer and a number for it: data for a regression, from which no pair can be made.",
        columns={"answer": _ONE, "number": _NUMBERS},
        evidence=_has_one_number,
        what="data for a regression, and this trains reward models on pairs",
        instead="Give rows with two answers to one prompt (chosen and rejected), or with all "
        "answers to one prompt and their scores (responses and scores)",
    ),
    Unusable(
        "segments",
        (CONVERSATION,),
        "``segments``: texts with a label each, which some trainers read without a chat template.",
        columns={"segments": ("segments",)},
        evidence=_has_segments,
        what="segments with their own turn markers, to which no chat template can be applied",
        instead="Give rows with messages, and a weight of 0 on the turns that must not be trained; "
        "or token ids with labels (input_ids and labels, -100 where nothing is trained)",
    ),
)
