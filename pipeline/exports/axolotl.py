"""axolotl: rows recognised as tokenized by exactly three columns; it packs at run time itself."""

from __future__ import annotations

from functools import partial

from pipeline.exports import Export, ExportFacts
from pipeline.exports._script import rows_of_ids, script, scripts
from stages.kinds import CONVERSATION, PAIR, STEPS


def _detail(facts: ExportFacts) -> str:
    if facts.kind.marks:
        return "one class at each step token: 1 good, 0 bad; sample_packing off"
    return (
        "single rows, packed at run time by sample_packing, which may leave a pack out of an "
        "epoch; sdpa keeps their documents apart"
    )


EXPORT = Export(
    name="axolotl",
    versions="axolotl 0.19.0",
    takes={CONVERSATION: ("ragged",), STEPS: ("ragged",)},
    why_not={PAIR: "its reward trainer tokenizes text itself"},
    detail=_detail,
    launch=script("axolotl.sh"),
    files=scripts("axolotl.yaml"),
    projection=partial(rows_of_ids, masked=True),
    two_classes=True,
)
