"""What rows lose to refusals: of rows, of examples and of trained turns, how many of how many.

Counted where rows become examples; what is counted of batches, parts and sources adds up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

import pyarrow as pa

from pipeline.executors import Sums
from pipeline.shards.chain import Gone, Refusal, by_line, refusals, trained_turns
from stages import columns
from stages.contract import Batch

PARTIAL = "partial"  # whether another example of the same row was refused
_OF = {"rows_refused": "rows", "rows_hit": "rows"}
_OF |= {"examples_refused": "examples", "turns_refused": "turns"}


@dataclass(frozen=True, slots=True)
class Losses(Sums):
    """Counts of some rows and of what they became.

    Attributes:
        rows: that were read and that ``--where`` takes; ``rows_refused``: of which nothing is left;
            ``rows_hit``: these, and those that lost some of their examples.
        examples: that the rows became; a row that is refused as a whole by normalize became none,
            and what its format leaves out of a row by its rules (a tie among ranked answers) is
            none.
        turns: trained turns of these examples; 0 where examples have no turns of their own.
    """

    rows: int = 0
    rows_refused: int = 0
    rows_hit: int = 0
    examples: int = 0
    examples_refused: int = 0
    turns: int = 0
    turns_refused: int = 0

    def as_counts(self) -> dict[str, int]:
        """For the tallies of a part."""
        return asdict(self)

    def scaled(self, rows: float) -> "Losses":
        """The same of so many rows that are alike."""
        factor = rows / max(self.rows, 1)
        return Losses(**{f.name: round(getattr(self, f.name) * factor) for f in fields(self)})

    def at_least(self, others: "Sequence[Losses]", enough: float) -> "Losses":
        """The same totals with the least share that is refused in all of several places; what is
        refused in no place by more than a share ``enough`` counts as none."""
        least: dict[str, int] = {}
        for name, of in _OF.items():
            shares = [getattr(o, name) / getattr(o, of) for o in others if getattr(o, of)]
            share = min(shares, default=0.0)
            least[name] = round(share * getattr(self, of)) if share > enough else 0
        return Losses(self.rows, examples=self.examples, turns=self.turns, **least)


def is_sequence(one: Refusal, several: bool) -> bool:
    """Whether what was refused was an example: a row that normalize refuses as a whole was none.

    Args:
        several: its row became more than one, refused ones included.
    """
    return one.stage != "normalize" or several


def is_lost(one: Refusal, several: bool) -> bool:
    """Whether it was an example that should have been trained on."""
    from pipeline.messages import explanations  # not read where nothing is refused

    by_rule = one.stage == "normalize" and one.code in explanations.left_out()
    return is_sequence(one, several) and not by_rule


def of(normalized: Batch, batch: Batch, gone: Sequence[Gone]) -> Losses:
    """The counts of one batch.

    Args:
        normalized: what normalize wrote; ``batch``: what every stage let pass; ``gone``: the rest.
    """
    rows = len(normalized.column("line").unique())
    refused = hit = examples = turns = 0
    kept = set(batch.column("line").to_pylist()) if gone else set()
    for line, some in by_line(refusals(gone)).items():
        several = line in kept or len(some) > 1
        lost = [one for one in some if is_lost(one, several)]
        refused += line not in kept
        hit += line not in kept or bool(lost)
        examples += len(lost)
        turns += sum(one.turns for one in lost)
    return Losses(
        rows=rows,
        rows_refused=refused,
        rows_hit=hit,
        examples=batch.num_rows + examples,
        examples_refused=examples,
        turns=int(trained_turns(batch).sum()) + turns,
        turns_refused=turns,
    )


def of_part(counts: Mapping[str, Mapping[str, int]]) -> Losses:
    """Those that the tallies of a part have."""
    return Losses(**counts.get("losses", {}))


def marked(batch: Batch, gone: Sequence[Gone]) -> Batch:
    """The examples that are left, and of each whether another of its row was refused."""
    own = batch.column("line")
    lines = pa.concat_arrays([own.slice(0, 0), *(one.rows.column("line") for one in gone)])
    return columns.put(batch, PARTIAL, pa.compute.is_in(own, value_set=lines))
