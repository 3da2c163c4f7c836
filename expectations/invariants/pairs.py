"""Pairs of a chosen and a rejected answer to one prompt."""

from functools import partial

import numpy as np

from expectations import contract, stored_rows


def _pairs(rows: stored_rows.StoredRows) -> contract.Columns:
    chosen, rejected = rows.sides.values()
    shared = rows.table.column("prompt_length").to_numpy()
    lengths = [np.diff(side.offsets) for side in (chosen, rejected)]
    # Slices of bytes are compared in one step each; 4 bytes an id.
    a, b = (side.ids.tobytes() for side in (chosen, rejected))
    starts, stops = (
        [(4 * offsets).tolist() for offsets in (chosen.offsets[cut], rejected.offsets[cut])]
        for cut in (slice(None, -1), slice(1, None))
    )
    sides = list(zip(*starts, *stops, strict=True))
    equal = [a[i:k] == b[j:m] for i, j, k, m in sides]
    common = 4 * np.clip(shared, 0, np.minimum(*lengths))
    ends = zip(sides, common.tolist(), strict=True)
    prefix = np.array([a[i : i + n] == b[j : j + n] for (i, j, _, _), n in ends], bool)
    return {
        "sides_equal": np.array(equal, bool),
        "prompt_shared": prefix & (shared <= np.minimum(*lengths)) & (shared > 0),
        "n_longer_side": np.maximum(*lengths),
    }


def _margins(rows: stored_rows.StoredRows) -> contract.Columns:
    if "margin" not in rows.table.schema.names:
        ones = np.ones(len(rows), bool)
        return {"margin_finite": ones, "has_margin": ~ones}
    column = rows.table.column("margin")
    missing = column.is_null().to_numpy()
    finite = np.isfinite(column.fill_null(0).to_numpy())
    return {"margin_finite": missing | finite, "has_margin": ~missing}


_of_pairs = partial(contract.Invariant, needs=(contract.COMPARES,))


SUBJECT = contract.Subject(
    metrics=(
        contract.Metrics(measure=_pairs, needs=(contract.COMPARES,)),
        contract.Metrics(measure=_margins, needs=(contract.COMPARES,)),
    ),
    invariants=(
        _of_pairs(
            name="chosen_differs",
            why="equal sides have a loss of log 2, whatever the model predicts",
            checks=(contract.none("sides_equal"),),
            breaks={"sides_equal": 1},
        ),
        _of_pairs(
            name="prompt_shared",  # both sides begin with the same prompt, id for id
            why="sides that answer different prompts compare prompts, not answers",
            checks=(contract.holds("prompt_shared"),),
            breaks={"prompt_shared": 0},
        ),
        _of_pairs(
            name="margin_finite",  # where a pair has one
            why="an infinite margin makes the loss infinite, or not a number",
            checks=(contract.holds("margin_finite"),),
            breaks={"margin_finite": 0},
        ),
        _of_pairs(
            name="answers_end_in_end_of_turn",  # in encoder families: in the separator
            why="a decoder's reward is read at the last token, which must be the same on both "
            "sides; an encoder's texts end in their separator",
            checks=(
                contract.Between("chosen_last_id", "end_of_turn_id", "end_of_turn_id"),
                contract.Between("rejected_last_id", "end_of_turn_id", "end_of_turn_id"),
            ),
            breaks={"rejected_last_id": -1},
        ),
        contract.Invariant(
            name="encoders_begin_with_classifier",
            why="an encoder's reward is read at its first token, which must not be a token of "
            "a text",
            checks=(
                contract.Between("chosen_first_id", "first_id", "first_id"),
                contract.Between("rejected_first_id", "first_id", "first_id"),
            ),
            breaks={"chosen_first_id": -1},
            needs=(contract.COMPARES, contract.ENCODER),
        ),
    ),
)
