"""What ``pipeline show`` prints: stored rows, or examples, and the commands for those around them.

A command that is printed names the build as the user did, and shows its examples as they are shown
now.
"""

import random
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline import tasks
from pipeline.builds.build import Build
from pipeline.report import drawing, painter, search
from pipeline.shards.values import TEXT
from stages.columns import Bools
from stages.errors import UsageError, counted, did_you_mean
from stages.rows.expressions import Asked, key_of, parse

OPTION = "--where"


class Condition:
    """One ``--where`` over the examples of a build.

    Raises:
        UsageError: the text is no condition, or reads what the examples do not have.
    """

    def __init__(self, text: str, build: Build) -> None:
        fields = search.of_build(build)
        named = f"Fields are {', '.join(fields)}; --fields says what they are."
        self._expression = parse(text, Asked(OPTION, named, named, "trained = 0"))
        names = [("column", name) for name in self._expression.columns]
        names += [("figure", name) for name in self._expression.figures]
        self._read = {key_of(*name): self._field(name[1], fields, named) for name in names}
        self._types = {key: field.type for key, field in self._read.items()}
        self([])  # types that do not go together are found before any row is read

    def _field(self, name: str, fields: Mapping[str, search.Field], named: str) -> search.Field:
        field = fields.get(search.known_as(name))
        if field is None:
            text = self._expression.text
            raise UsageError(
                f"{OPTION} {text!r} reads {name}, which examples of this build do not have.",
                did_you_mean(name, fields, named, most=1),
            )
        return field

    def __call__(self, held: Sequence[search.Held]) -> Bools:
        """Whether it is true for each example of some record batches.

        Raises:
            UsageError: it compares what cannot be compared.
        """
        import polars as pl

        from pipeline.shards.filter_expressions import evaluate

        frame: dict[str, Any] = {".": pl.Series(np.zeros(sum(len(h.row) for h in held), bool))}
        for key, field in self._read.items():
            kind = pa.string() if field.type == TEXT else pa.float64()
            chunks = [_array(field.values(one), kind) for one in held]
            frame[key] = pl.Series(pa.chunked_array(chunks, kind))
        found = evaluate(self._expression, pl.DataFrame(frame), self._types)
        return found.fill_null(False).to_numpy()


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(kind)


class Shown(NamedTuple):
    """What of a command the commands that it prints repeat.

    Attributes:
        folder: as it was given; ``split``: None where none was given.
    """

    folder: str
    marks: painter.Marks
    color: str
    split: str | None

    def again(self, *more: str) -> list[str]:
        """A command on the same build."""
        words = ["pipeline", "show", self.folder, *more]
        words += ["--split", self.split] if self.split else []
        words += ["--boundaries"] if self.marks.boundaries else []
        words += ["--ids"] if self.marks.ids else []
        return words + (["--color", self.color] if self.color != "auto" else [])


class Pages:
    """Prints parts of one build."""

    def __init__(self, shards: drawing.Shards, shown: Shown) -> None:
        self._shards, self._shown = shards, shown
        self._canvas = painter.Canvas(shown.color, shown.marks)
        self._build = shards.build

    def fields(self) -> None:
        """What a condition can read."""
        found = search.of_build(self._build)
        for one in found.values():
            name = one.name.ljust(max(map(len, found)))
            self._canvas.say(f"{name}  {one.type:<6}  {one.says}")

    def count(self, where: str) -> None:
        """How many examples fit."""
        search = self._search(where)
        fit = sum(1 for _ in search.matches())
        different = search.different
        copies = "" if different == search.examples else " (a copy is not counted)"
        self._canvas.say(f"{fit:,} of {different:,} examples have {where}{copies}")

    def some(self, count: int, seed: int | None) -> None:
        """Stored rows at random."""
        split = self._shown.split or "train"
        self._shards.require_split(split)
        rows = self._rows(split)
        for number in sorted(random.Random(seed).sample(range(rows), min(count, rows))):
            self._stored(split, number)

    def row(self, number: int) -> None:
        """One stored row with all that is in it, and how to see its neighbours."""
        split = self._shown.split or "train"
        self._shards.require_split(split)
        self._stored(split, number)
        if number + 1 < self._rows(split):
            self._canvas.command("Next", self._shown.again("--pack", str(number + 1)))
        if number:
            self._canvas.command("Previous", self._shown.again("--pack", str(number - 1)))

    def example(self, row_id: str) -> None:
        """One example, wherever it is stored, and how to see its neighbours."""
        found = self._search(None).find(row_id)
        self._example(found)
        stored = self._shards.row(found.at.split, found.at.row)
        there = stored.get("row_ids", [stored.get("row_id")])
        if row_id not in there:
            self._of_several(row_id, next(one for one in there if one.startswith(f"{row_id}#")))
        self._around((), [row_id], backwards=False)

    def _of_several(self, row_id: str, shown: str) -> None:
        """What else became of a row of which one example is shown."""
        others = [one for one in self._shards.examples_of(row_id) if one != shown]
        for other in others[:1]:
            left = counted(len(others), "other example")
            self._canvas.command(f"{left} of {row_id}, the next", self._shown.again("--row", other))

    def found(self, where: str | None, begin: str | None, limit: int, *, backwards: bool) -> None:
        """The next examples that fit, and how to see those after and before them.

        Args:
            begin: the id of the example that the search begins at; None is the end of the build.
        """
        search = self._search(where)
        place = search.find(begin).at if begin is not None else None
        found = list(islice(search.matches(place, backwards=backwards), limit))
        if backwards:
            found.reverse()
        for one in found:
            self._example(one)
        asked = ["--where", where] if where is not None else []
        asked += ["--limit", str(limit)] if limit > 1 else []
        ids = [one.row_id for one in found]
        if ids:
            self._around(asked, ids, first=begin is None, backwards=backwards)
        else:
            also = "" if begin is None else f"{'before' if backwards else 'after'} {begin} "
            none = f"has {where}" if where else "is stored"
            self._canvas.say(f"No example {also}{none}.")
        self._canvas.say(f"Looked at {search.looked:,} of {search.examples:,} examples.")

    def _around(
        self, asked: Sequence[str], ids: Sequence[str], *, backwards: bool, first: bool = False
    ) -> None:
        if not (backwards and first):
            self._canvas.command("Next", self._shown.again(*asked, "--after", ids[-1]))
        if backwards or not first:
            self._canvas.command("Previous", self._shown.again(*asked, "--before", ids[0]))

    def _search(self, where: str | None) -> search.Search:
        condition = Condition(where, self._build) if where is not None else None
        return search.Search(self._shards, condition, self._shown.split)

    def _rows(self, split: str) -> int:
        packs = self._build.manifest.packs.get(split)
        return packs.packs if packs else self._build.splits[split].record.rows

    def _stored(self, split: str, number: int) -> None:
        indexed = split in self._build.manifest.packs
        row = self._shards.pack(split, number) if indexed else self._shards.row(split, number)
        what = "pack" if indexed else "row"
        history = self._build.manifest.tokens.history
        of = "" if history == "rendered" else f", with an {history} history"
        title = f"{split} {what} {number} of {self._rows(split)}{of}"
        self._canvas.draw(title, self._shards.strips(row))

    def _example(self, found: search.Found) -> None:
        split, number, place = found.at
        strips = self._shards.strips(self._shards.row(split, number))
        of = "" if len(strips) == 1 else f", {place + 1} of {len(strips)} in it"
        if tasks.kind_of(self._build.manifest.task).compares:
            of = ""
        else:
            strips = [strips[place]]
        self._canvas.draw(f"{split} row {number}{of}", strips)
