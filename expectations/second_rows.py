"""What the sequences of a row must be, read from the row a second time without columns or batches.

The format reads the row again, one row at a time. Which turns are trained, which sequence of the
row is which, and which texts a chain of steps has are decided here by code of its own, so that an
error in ``conversations``, ``kinds`` or ``normalize`` shows as a difference.

Values that a build chooses by are looked up again, too, in some rows of every batch: one in the
place of another row would leave out the wrong example, and nothing else of the build would show it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from stages import contract, profile
from stages.errors import ReadingError, counted
from stages.files.line_block import dump
from stages.normalize.stage import Normalize
from stages.rows.carried import VALUES


@dataclass(frozen=True, slots=True)
class Expected:
    """One sequence of a row, as its columns must have it.

    Attributes:
        sides: one conversation, or the chosen and the rejected one; every turn's ``trained`` is
            decided, and so is the ``weight`` of those that are trained.
        steps, tail: of a chain: the texts before each marker, and the text after the last.
        system: of a chain: its row's own system text.
    """

    sides: tuple[tuple[contract.Message, ...], ...] = ()
    tools: list[Any] | None = None
    margin: float | None = None
    problem: str = ""
    steps: tuple[str, ...] = ()
    tail: str | None = None
    system: str | None = None
    ratings: tuple[float | None, ...] = ()
    tokens: contract.Tokens | None = None

    @property
    def text(self) -> str:
        """All that turns, problem and steps say."""
        said = [turn.content or "" for side in self.sides for turn in side]
        return "\n".join([*said, self.problem, *self.steps])


def _conversation(example: contract.Conversation, train_on: str) -> tuple[contract.Message, ...]:
    answers = [i for i, turn in enumerate(example.messages) if turn.role == "assistant"]
    by_policy = {
        "assistant": set(answers),
        "last": set(answers[-1:]),
        "all": set(range(len(example.messages))),
    }[train_on]
    turns = []
    for i, turn in enumerate(example.messages):
        trained = i in by_policy if turn.trained is None else turn.trained
        turns.append(_decided(turn, trained or turn.role == contract.BARE))
    return tuple(turns)


def _decided(turn: contract.Message, trained: bool) -> contract.Message:
    weight = 1.0 if turn.weight is None else turn.weight
    return replace(turn, trained=trained, weight=weight if trained else 0.0)


def _turn_by_turn(turns: tuple[contract.Message, ...]) -> Iterator[tuple[contract.Message, ...]]:
    """For each trained answer the conversation up to it, in which only that answer is trained.

    A text without turns stays as it is.
    """
    if turns[0].role == contract.BARE:
        yield turns
    for i, turn in enumerate(turns):
        if turn.trained and turn.role == "assistant":
            yield (*(_decided(t, False) for t in turns[:i]), turn)


def _pair(example: contract.Pair) -> Expected:
    prompt = [_decided(turn, False) for turn in example.prompt]
    sides = [
        (*prompt, *(_decided(turn, turn.role == "assistant") for turn in side))
        for side in (example.chosen, example.rejected)
    ]
    return Expected(tuple(sides), example.tools, example.margin)


def _chain(example: contract.StepChain, raw: bool, between: str) -> Expected:
    problem = example.problem.strip()
    steps = [step.strip() for step in example.steps]
    tail = None
    if raw and example.pieces is not None:
        *steps, tail = example.pieces
    elif raw:  # a row of lists: the steps as written, with a separator where there is no line break
        steps, tail = list(example.steps), ""
        for i in range(len(steps) - 1, -1, -1):
            left = example.steps[i - 1] if i else problem
            if left[-1:] != "\n" and steps[i][:1] != "\n":
                steps[i] = (between if i else "\n") + steps[i]
        steps[0] = problem + steps[0]
    return Expected(
        problem=problem,
        steps=tuple(steps),
        tail=tail,
        system=example.system,
        ratings=tuple(example.labels),
    )


def sequences(example: contract.Example, normalize: Normalize) -> list[Expected]:
    """The sequences that an example must become with the options of ``normalize``."""
    if isinstance(example, contract.Conversation):
        turns = _conversation(example, normalize.train_on)
        each = _turn_by_turn(turns) if normalize.turn_by_turn else [turns]
        return [Expected((one,), example.tools) for one in each]
    if isinstance(example, contract.Pair):
        return [_pair(example)]
    if isinstance(example, contract.StepChain):
        return [_chain(example, normalize.raw, normalize.step_separator)]
    return [Expected(tokens=example)] if isinstance(example, contract.Tokens) else []


_SIDES = ("messages", "chosen_messages", "rejected_messages")


def _same_turns(turns: tuple[contract.Message, ...], column: list[dict[str, Any]]) -> bool:
    expected = [(t.role, t.content, dump(t.fields) if t.fields else None, t.trained) for t in turns]
    return expected == [(t["role"], t["content"], t["fields"], t["trained"]) for t in column]


def _same_steps(expected: Expected, row: Mapping[str, Any]) -> bool:
    labels = row["step_labels"]
    ratings = [x if x is None else float(np.float32(x)) for x in expected.ratings[: len(labels)]]
    own = (expected.problem, expected.system, list(expected.steps), expected.tail, ratings)
    return own == (row["problem"], row["system"], row["steps"], row["tail"], labels)


def matches(expected: Expected, row: Mapping[str, Any]) -> bool:
    """Whether the columns of a row say the same.

    Args:
        row: the columns that normalize writes; ratings of steps that were dropped are missing.
    """
    if expected.tokens is not None:
        return True  # their ids and labels are compared by ``sample``
    if expected.steps:
        return _same_steps(expected, row)
    tools = dump(expected.tools) if expected.tools else None
    columns = [row[name] for name in _SIDES if name in row]
    same = len(columns) == len(expected.sides) and row["tools"] == tools
    if not same or not all(map(_same_turns, expected.sides, columns)):
        return False
    margin = None if expected.margin is None else float(np.float32(expected.margin))
    return "margin" not in row or bool(row["margin"] == margin)


def sequence_of(
    per_example: list[list[Expected | None]], row: Mapping[str, Any]
) -> Expected | None:
    """The expected sequence that belongs to a row of columns; None when none is equal to it.

    Args:
        per_example: the sequences of each example of the row; None for a refused one, which is
            numbered like the others.
    """
    every = [sequence for one in per_example for sequence in one]
    number = row["sequence"]
    if number < 0:
        return _if_equal(every[0], row) if len(every) == 1 else None
    if len(per_example) > 1 and any(len(one) != 1 for one in per_example):
        # An example that is refused as a whole has one number, but would have been several
        # sequences here: numbers do not correspond, so an equal sequence is searched.
        return next((sequence for sequence in every if _if_equal(sequence, row)), None)
    return _if_equal(every[number], row) if number < len(every) else None


def _if_equal(expected: Expected | None, row: Mapping[str, Any]) -> Expected | None:
    return expected if expected is not None and matches(expected, row) else None


ROWS = 16  # of each batch, evenly spaced


def _at(value: Any, path: str) -> Any:
    """What is at a path: a key with dots in it comes before what is inside."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if key.isdigit() and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _alike(stored: Mapping[str, Any], value: Any) -> bool:
    found = [one for one in stored.values() if one is not None]
    if value is None or value != value:  # NaN
        return not found
    if isinstance(value, list | dict):
        return found == [True] and stored["other"] is True
    return found == [value] and isinstance(found[0], bool) == isinstance(value, bool)


def check_values(
    batch: contract.Batch,
    paths: Sequence[str],
    records: Mapping[int, contract.Record],
    place_of: Callable[[int], str],
) -> None:
    """Look some rows of a batch up again.

    Args:
        paths: of the values that it carries, in their order.
        records: by line; ``place_of``: gives a line its name in messages.

    Raises:
        ReadingError: a row has not the value of its record.
    """
    if not paths or not batch.num_rows:
        return
    chosen = np.unique(np.linspace(0, batch.num_rows - 1, ROWS).astype(np.int64))
    some = pa.table(batch).select(["line", VALUES]).take(pa.array(chosen))
    for row in some.to_pylist():
        record = records[row["line"]]
        for path, stored in zip(paths, row[VALUES], strict=True):
            if not _alike(stored, _at(record.data, path)):
                shown = json.dumps(path)
                raise ReadingError(
                    f"{place_of(row['line'])}: the value at {shown} is not that of the row."
                )


# Check that input and label texts of a PRM row have equally many tokens.
#
# Older trainers encode a row twice: with the step token after every step, and with the token of
# each rating in its place. They assert that both have the same number of tokens, since labels are
# read by position.


def require_aligned(
    text: str,
    ratings: Sequence[float | None],
    tokens: profile.StepTokens,
    count: Callable[[str], int],
) -> None:
    """Check that both texts of a row have equally many tokens.

    Args:
        text: of the row, with a step token after each step.
        ratings: one for each step; where it is None, the step token stays in both texts.
        count: gives the number of tokens of a text.

    Raises:
        ReadingError: they have not, or there are not as many step tokens as ratings.
    """
    spelled = [
        tokens.step if one is None else tokens.good if one >= 0.5 else tokens.bad for one in ratings
    ]
    between = text.split(tokens.step)
    if len(between) != len(spelled) + 1:
        raise ReadingError(
            f"{counted(len(between) - 1, 'step token')} for {counted(len(spelled), 'rating')}."
        )
    rated = "".join(a + b for a, b in zip_longest(between, spelled, fillvalue=""))
    inputs, labels = count(text), count(rated)
    if inputs != labels:
        raise ReadingError(
            f"{inputs} tokens with step tokens, {labels} with the ratings' tokens in their place."
        )
