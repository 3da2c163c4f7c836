"""Each labelled marker holds its rating's reward token; every other position is -100."""

from __future__ import annotations

from expectations.checks import Equal, none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="labels_match_ratings",
    why="the loss is read at the markers over the reward tokens; any other label is noise in it",
    checks=(
        Equal("n_labels", "n_labelled"),
        none("n_labels_off_markers"),
        none("n_labels_no_reward"),
        none("n_labels_not_ratings"),
    ),
    breaks={"n_labels_off_markers": 1},
    tasks=("prm",),
)
