"""Parity: a sample of the rows of every build is read, rendered and encoded a second time.

Each sampled row is read again from its record, rendered by the chat template as a whole and encoded
by the reference tokenizer (see ``second_rows`` and ``second_ids``): its turns, ids, labels, loss
weights, prompt length, margin, step markers and step labels must be those of the columns. Where the
tokenizer would merge across the place at which training starts, ids differ from those of the whole
text on purpose, because inference encodes the prompt alone; such rows must have been counted.

The check itself is checked: in the first row that passes, each of those columns is damaged in turn,
and the second reading must notice every damage.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.second_ids import Reading, SecondReading
from expectations.second_rows import Expected, sequence_of, sequences
from stages.columns import IGNORED
from stages.contract import Batch, Message, Record
from stages.errors import ParityError, ReadingError, RowError, counted
from stages.normalize.stage import Normalize
from stages.tokenizers.survival import loss
from stages.tokens.folded_labels import unfold

# Sized by tokens, since that is what a second reading costs and what a fault would train.
HEAD = 2048  # tokens at the start of a split, all of whose rows are sampled
LEAST = 4  # rows at the start of a split, however long
EVERY = 1 << 19  # and then a row wherever so many tokens have passed
SHAPES = 8  # and the first row of so many shapes of conversation
# Columns of which a damage must be noticed, and those that are compared, or needed to compare.
_JUDGED = (
    *("input_ids", "labels", "chosen_ids", "rejected_ids", "prompt_length", "margin"),
    *("step_labels", "step_positions", "loss_weights"),
)
_READ = (
    *("line", "sequence", "messages", "chosen_messages", "rejected_messages", "tools", "problem"),
    *("system", "steps", "tail", "folded", "truncated", "merged_cuts", "digest", *_JUDGED),
)
_OUTLINES = ("outline", "chosen_outline", "rejected_outline")
Row = Mapping[str, Any]


@dataclass
class Witness:
    """Compares sampled rows, and raises on the first that differs.

    Attributes:
        reading: what a row's texts must become; ``normalize``: reads a record again.
        every: all rows are sampled.
        sampled: rows that were read twice.
        skipped: rows that cannot be compared: the template changes control tokens in their texts.
        lost: rows whose texts the tokenizer does not give back; ``loss``: what the first one lost.
    """

    reading: SecondReading
    normalize: Normalize
    every: bool = False
    sampled: int = 0
    skipped: int = 0
    lost: int = 0
    loss: str = ""
    _rows: int = field(default=0, repr=False)
    _tokens: int = field(default=0, repr=False)
    _shapes: set[str] = field(default_factory=set, repr=False)
    _proved: bool = field(default=False, repr=False)
    _examples: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    _digests: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def restart(self) -> None:
        """Begin another split: which rows are sampled depends on the split alone."""
        self.sampled = self.skipped = self.lost = self._rows = self._tokens = 0
        self.loss = ""
        self._shapes = set()
        self._examples, self._digests = {}, {}

    def _sample(self, batch: Batch) -> list[int]:
        """The rows of a batch that are read again, by what its split had before it."""
        lengths = batch.column("length").to_numpy().astype(np.int64)
        number = np.arange(self._rows, self._rows + batch.num_rows)
        ends = self._tokens + np.cumsum(lengths)
        chosen = (
            self.every
            | (ends <= HEAD)
            | (number < LEAST)
            | (ends // EVERY > (ends - lengths) // EVERY)
        )
        self._rows += batch.num_rows
        self._tokens = int(ends[-1]) if len(ends) else self._tokens
        for name in _OUTLINES:
            if name in batch.schema.names:
                chosen[self._new_shapes(batch.column(name))] = True
        return np.flatnonzero(chosen).tolist()

    def _new_shapes(self, column: pa.DictionaryArray) -> list[int]:
        """The first rows of the shapes that the split has not shown before."""
        spelled = column.dictionary.to_pylist()
        which, first = np.unique(column.indices.fill_null(-1).to_numpy(), return_index=True)
        rows = []
        for row, shape in sorted(zip(first.tolist(), which.tolist(), strict=True)):
            room = len(self._shapes) < SHAPES
            if shape >= 0 and room and spelled[shape] not in self._shapes:
                self._shapes.add(spelled[shape])
                rows.append(row)
        return rows

    def __call__(
        self,
        batch: Batch,
        records: Mapping[int, Record],
        place_of: Callable[[int], str] = "row {}".format,
    ) -> None:
        """Check a sample of a batch that has been encoded, none of whose rows is refused.

        Args:
            records: by line; ``place_of``: gives a line its name in messages.

        Raises:
            ParityError: a row's ids are not the reference's.
            ReadingError: something else of a row is not what the second reading finds.
        """
        rows = self._sample(batch)
        names = [name for name in _READ if name in batch.schema.names]
        sample = unfold(pa.table(batch).select(names).take(pa.array(rows, pa.int64())))
        for row in sample.to_pylist():
            line = row["line"]
            expected = self.expected(row, records[line])
            if expected is None:
                raise ReadingError(
                    f"{place_of(line)}: the turns in the build differ from a second reading of the "
                    "row."
                )
            try:
                compared = self._compare(row, expected)
                self._check_digest(row)
            except ParityError as error:
                raise ParityError(f"{place_of(line)}: {error}") from error
            except ReadingError as error:
                raise ReadingError(f"{place_of(line)}: {error.what}") from error
            lost = loss(self.reading.model, expected.text)
            self.lost += lost is not None
            self.loss = self.loss or lost or ""
            self.sampled += compared
            self.skipped += not compared
            if compared and not self._proved:
                self._prove(row, expected)

    def _check_digest(self, row: Row) -> None:
        """Check that rows of the sample have equal digests only where their examples are equal.

        Raises:
            ReadingError: two rows of the sample show otherwise.
        """
        columns = [row.get(name) for name in _JUDGED if name not in ("margin", "prompt_length")]
        example = repr(columns).encode()
        if self._examples.setdefault(row["digest"], example) != example:
            raise ReadingError("it has the digest of a row with other content.")
        if self._digests.setdefault(example, row["digest"]) != row["digest"]:
            raise ReadingError("its digest differs from that of an equal row.")

    def expected(self, row: Row, record: Record) -> Expected | None:
        """What a row must be by its record; None where no sequence of the record equals it."""
        normalize = self.normalize
        per_example: list[list[Expected | None]] = []
        for example in normalize.read_again(record):
            if isinstance(example, RowError):
                per_example.append([None])
            else:
                per_example.append([*sequences(example, normalize)])
        return sequence_of(per_example, row)

    def _prove(self, row: Row, expected: Expected) -> None:
        """Check that the second reading notices a damage of each column that it compares.

        Raises:
            ReadingError: it does not notice one.
        """
        for name in _JUDGED:
            value = row.get(name)
            if value is None or value == []:
                continue
            damaged = (
                value + 1 if not isinstance(value, list) else [(value[0] or 0) + 1, *value[1:]]
            )
            try:
                self._compare({**row, name: damaged}, expected)
            except (ParityError, ReadingError):
                continue
            raise ReadingError(f"The parity check does not notice a damaged {name}.")
        self._proved = True

    def _compare(self, row: Row, expected: Expected) -> bool:
        """Compare a row, and raise where it differs; False where it cannot be compared."""
        if expected.tokens is not None:
            labels = [IGNORED, *expected.tokens.labels[1:]]
            _same("ids", row["input_ids"], expected.tokens.ids)
            _same("labels", row["labels"], labels)
            return True
        if expected.steps:
            return self._compare_steps(row, expected)
        if len(expected.sides) == 2:
            return self._compare_pair(row, expected)
        reading = self.reading.conversation(expected.sides[0], expected.tools)
        if reading is None:
            return False
        self._compare_ids(row["input_ids"], reading, row)
        upto = min(reading.upto, len(row["labels"]))
        _same("labels", row["labels"][:upto], reading.labels[:upto])
        weights = [float(np.float32(weight)) for weight in reading.weights[:upto]]
        stored_weights = row["loss_weights"] or [float(label != IGNORED) for label in row["labels"]]
        _same("loss weights", stored_weights[:upto], weights)
        return True

    def _compare_pair(self, row: Row, expected: Expected) -> bool:
        readings = self._sides(expected)
        if None in readings:
            return False
        starts = []
        for name, reading in zip(("chosen", "rejected"), readings, strict=True):
            assert reading is not None
            self._compare_ids(row[f"{name}_ids"], reading, row)
            starts.append(next(i for i, weight in enumerate(reading.weights) if weight))
        _same("prompt length", [row["prompt_length"]], [min(starts)])
        margin = None if expected.margin is None else float(np.float32(expected.margin))
        _same("margin", [row["margin"]], [margin])
        return True

    def _sides(self, expected: Expected) -> list[Reading | None]:
        if self.reading.model.profile.pair is None:
            readings = [self.reading.conversation(side, expected.tools) for side in expected.sides]
            return [reading and reading.ended() for reading in readings]
        sides = [list(side) for side in expected.sides]
        if self.reading.system is not None and sides[0][0].role != "system":
            system = Message("system", self.reading.system, trained=False, weight=0.0)
            sides = [[system, *side] for side in sides]
        prompt = min(next(i for i, turn in enumerate(side) if turn.trained) for side in sides)
        return [self.reading.pair(side[:prompt], side[prompt:]) for side in sides]

    def _compare_steps(self, row: Row, expected: Expected) -> bool:
        kept = len(row["step_labels"])
        if not row["truncated"] and kept != len(expected.steps):
            raise ReadingError(
                f"{counted(len(expected.steps), 'step')}, and {counted(kept, 'label')} of steps."
            )
        ratings = [x if x is None else float(np.float32(x)) for x in expected.ratings[:kept]]
        reading = self.reading.steps(
            expected.problem,
            expected.steps[:kept],
            ratings=ratings,
            tail=expected.tail,
            own=expected.system,
        )
        if reading is None:
            return False
        model = self.reading.model
        self._compare_ids(row["input_ids"], reading, {**row, "truncated": 0})
        places = [i for i, token in enumerate(reading.ids) if token == model.step_id]
        labels = [IGNORED] * len(reading.ids)
        for place, rating in zip(places, ratings, strict=True):
            if rating is not None:
                labels[place] = model.good_id if rating >= 0.5 else model.bad_id
        _same("positions of steps", row["step_positions"], places)
        _same("labels of steps", row["step_labels"], ratings)
        _same("labels", row["labels"], labels)
        return True

    def _compare_ids(self, ours: list[int], reading: Reading, row: Row) -> None:
        """Compare the ids that are known; their number too, unless the row was truncated.

        Raises:
            ParityError: they differ.
        """
        # Behind the last answer whose prompt was rendered, the text encoded as one takes over. That
        # is the same wherever no merge crosses the start of an answer.
        theirs, upto = reading.ids, reading.upto
        if upto < len(theirs) and reading.whole and not row["merged_cuts"]:
            theirs, upto = reading.whole, len(reading.whole)
        if row["truncated"]:
            upto = min(upto, len(ours))
        elif upto == len(theirs) != len(ours):
            raise ParityError(f"{len(ours)} tokens, but the reference encoder gives {len(theirs)}")
        at = next((i for i in range(upto) if ours[i : i + 1] != theirs[i : i + 1]), None)
        if at is not None:
            raise ParityError(
                f"id {at} is {ours[at : at + 1]}, the reference gives {theirs[at : at + 1]}"
            )
        if reading.whole and not row["merged_cuts"] and reading.whole[:upto] != theirs[:upto]:
            raise ParityError(
                "the tokenizer merges across the start of an answer, and merged_cuts is 0"
            )


def _same(what: str, ours: list[Any], theirs: list[Any]) -> None:
    """Raise with the first place where two lists differ."""
    if ours == theirs:
        return
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if at is None:
        raise ReadingError(f"{len(ours)} {what}, but the second reading gives {len(theirs)}.")
    raise ReadingError(f"{what}[{at}] is {ours[at]}, the second reading gives {theirs[at]}.")
