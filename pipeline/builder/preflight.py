"""Stops a build at once if a few sampled rows show that it would refuse too many.

Rows from the head, the middle and the tail of each input go through the build's own stages. Bad
rows in one place prove nothing about the rest of a file. So an input counts only if all three
places are bad, and then with the smallest share of refused rows among the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.builder.reject_limit import Limit, error_of, limits, too_many
from pipeline.builder.rejects import Ledger
from pipeline.inputs.recipe import Recipe
from pipeline.inputs.scan import Input
from pipeline.shards import chain, filters
from stages import readers
from stages.contract import Record

PLACES = 3
ROWS = 40  # in each place
BYTES = 64 << 10  # of a place; the rows after that are left out
ENOUGH = 0.5  # an input counts if more than this share is refused in every place
INPUTS = 8


def _places(records: Sequence[Record]) -> list[list[Record]]:
    """The first rows of each third of the records, up to ``ROWS`` rows and ``BYTES`` bytes."""
    third = -(-len(records) // PLACES)
    places = []
    for start in range(0, len(records), max(third, 1)):
        size = 0
        taken: list[Record] = []
        for record in records[start : start + min(third, ROWS)]:
            size += len(record.raw)
            if taken and size > BYTES:
                break
            taken.append(record)
        places.append(taken)
    return places


def _place(name: str, record: Record) -> str:
    at = f":{record.line + 1}" if record.line >= 0 else f" at byte {record.offset}"
    return f"{name}{at}"


def _through(
    recipe: Recipe, reading: str, records: list[Record], name: str, ledger: Ledger
) -> tuple[int, int]:
    """Run rows through the stages: how many there are, and how many are refused. A row is when none
    of its sequences is left."""
    normalize = recipe.normalize(reading)
    normalized = normalize([replace(record, line=i) for i, record in enumerate(records)])
    batch, gone = chain.through(normalized, recipe.stages(reading))
    filters.of_rows(recipe.config, batch, lambda line: _place(name, records[line]))
    codes: dict[int, tuple[str, str]] = {}
    for refusal in chain.refusals(gone):
        codes.setdefault(refusal.line, (refusal.code, refusal.detail))
    refused = codes.keys() - set(batch.column("line").to_pylist())
    for line in sorted(refused):
        ledger.count(codes[line][0], codes[line][1], _place(name, records[line]))
    return len(records) - normalize.tally.filtered, len(refused)


def require_hopeful(recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Stop a build that would refuse more rows than ``--max-reject`` allows.

    Raises:
        DataError: see ``refusals.refuse_too_many``; its counts are those of the sample.
        UsageError: a filter compares what cannot be compared.
    """
    recipe = replace(recipe, backend="tokenizers")  # gives the same ids, and is loaded already
    every = list(zip(inputs, recipe.formats, strict=True))
    for limit in limits(recipe.config):
        mine = [(one, name) for one, name in every if one.source in limit.sources]
        if not any(recipe.config.sources[number].options.salvage for number in limit.sources):
            _require_hopeful(recipe, mine, limit)


def _require_hopeful(recipe: Recipe, inputs: Sequence[tuple[Input, str]], limit: Limit) -> None:
    """The same for the inputs that one limit is for."""
    config = recipe.config
    ledger, bound, rows, sampled = Ledger(), 0.0, 0, 0
    for source, reading in inputs[:INPUTS]:
        machine = recipe.of_source(source.source)
        reader = readers.load(source.reader)
        glimpse = reader.glimpse(source.version or source.path, PLACES * ROWS)
        rows += glimpse.rows
        if glimpse.rows <= len(glimpse.records):
            continue  # so small that the build itself is as fast
        places = _places(glimpse.records)
        seen = [_through(machine, reading, p, source.name, ledger) for p in places]
        sampled += sum(read for read, _ in seen)
        # At least this share of the input will be refused, as far as the sample shows.
        least = min((refused / read for read, refused in seen if read), default=0.0)
        bound += least * glimpse.rows if least > ENOUGH else 0.0
    left_out = len(inputs) > INPUTS
    hopeless = not left_out and rows and too_many(round(bound), rows, limit.share)
    if hopeless or (ledger.rows_by_code and limit.share == 0):
        raise error_of(ledger, sampled, left=True, config=config, limit=limit, of="sampled ")
