"""Labels: which tokens are trained, and that each is the token itself."""

from __future__ import annotations

import numpy as np

from expectations.contract import (
    ANSWERS,
    LABELLED,
    Between,
    Columns,
    Invariant,
    Metrics,
    Subject,
    holds,
    none,
)
from expectations.stored_rows import StoredRows
from expectations.undo_layout import Sequences
from stages.columns import IGNORED


def _labels(rows: StoredRows) -> Columns:
    examples = rows.examples
    sequences, labels = examples.sequences, examples.labels
    trained = labels != IGNORED
    # A trained run ends where the next token is untrained, or belongs to another example.
    ends = trained.copy()
    ends[:-1] &= ~trained[1:]
    filled = sequences.offsets[1:] > sequences.offsets[:-1]
    lasts = sequences.offsets[1:][filled] - 1
    ends[lasts] = trained[lasts]
    first = Sequences(sequences.offsets, labels).at(sequences.offsets[:-1])
    return {
        "n_trained": sequences.per_row(trained),
        "n_labels_not_ids": sequences.per_row(trained & (labels != sequences.ids)),
        "n_open_turns": sequences.per_row(
            ends & (sequences.ids != rows.context.model.end_of_turn_id)
        ),
        "first_is_trained": (first != IGNORED) & (first != -1),
        "labels_fit": examples.from_rows(examples.fits),
    }


SUBJECT = Subject(
    metrics=(Metrics(measure=_labels, needs=(LABELLED,)),),
    invariants=(
        Invariant(
            name="labels_fit_ids",  # every token has its label, and no label is left over
            why="if labels and ids differ in length, a trainer stops or uses shifted labels",
            checks=(holds("labels_fit"),),
            breaks={"labels_fit": 0},
            needs=(LABELLED,),
        ),
        Invariant(
            name="something_trained",  # at least one token of every example
            why="a row without labels costs compute and teaches nothing; alone in a batch its loss "
            "is NaN",
            checks=(Between("n_trained", 1),),
            breaks={"n_trained": 0},
            needs=(LABELLED,),
        ),
        Invariant(
            name="first_label_untrained",
            why="a trainer would predict this label from the last token of the document before",
            checks=(none("first_is_trained"),),
            breaks={"first_is_trained": 1},
            needs=(LABELLED,),
        ),
        Invariant(
            name="labels_equal_ids",  # wherever they are trained
            why="a label that is not the next token teaches the model to write something else",
            checks=(none("n_labels_not_ids"),),
            breaks={"n_labels_not_ids": 1},
            needs=(ANSWERS,),
        ),
        Invariant(
            name="turns_end_supervised",  # every trained turn ends in a trained end-of-turn token
            why="a model that is not trained on the end of a turn does not stop",
            checks=(none("n_open_turns"),),
            breaks={"n_open_turns": 1},
            needs=(ANSWERS,),
        ),
    ),
)


# Loss weights and labels must agree; rows without weights always do.


def _weights(rows: StoredRows) -> Columns:
    examples = rows.examples
    if examples.weights is None:
        count = len(examples.sequences)
        return {"weights_fit": np.ones(count, bool), "n_weights_off": np.zeros(count, np.int64)}
    values, fits = examples.weights
    good = np.where(examples.labels != IGNORED, np.isfinite(values) & (values > 0), values == 0)
    return {
        "weights_fit": examples.from_rows(fits),
        "n_weights_off": examples.sequences.per_row(~good),
    }


WEIGHTS = Subject(
    metrics=(Metrics(measure=_weights, needs=(ANSWERS,)),),
    invariants=(
        Invariant(
            # Every token has its weight: positive where it is trained, zero where it is not.
            name="loss_weights_fit_labels",
            why="a weight on the wrong token trains that token, or leaves out one that must be "
            "trained",
            checks=(holds("weights_fit"), none("n_weights_off")),
            breaks={"n_weights_off": 1},
            needs=(ANSWERS,),
        ),
    ),
)
