"""How many versions the builds of a recipe keep, where neither it nor a flag says.

A recipe is there to be built again, so its builds are versions; ``pipeline run`` and a call make
one build. An output that is one build already stays one: trainers read it by that path.
"""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.manifest.manifest import MANIFEST

BY_RECIPE = 7


def where_unsaid(output: Path) -> tuple[int, tuple[str, ...]]:
    """The number for an output, 0 where that is one build; and notes for the user about it."""
    # What cannot be looked at is no build here; to publish there fails with the reason.
    if not os.path.lexists(output / MANIFEST):
        return BY_RECIPE, ()
    note = (
        f"{output} is one build and stays one: each build of the recipe replaces it. To keep "
        f"versions, give a new output (-o); keep = 0 in the recipe says that one build is meant."
    )
    return 0, (note,)
