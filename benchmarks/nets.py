"""What each net costs of a build: the difference between two sizes (``sampled.py``) is a row's."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks import process
from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.sampled import NETS
from benchmarks.workplace import Workplace, build

_UNWITNESSED = Path(__file__).with_name("unwitnessed.py")
_SAMPLED = Path(__file__).with_name("sampled.py")
BUILD = "the whole build"
_EXPORTED = ("--for", "llamafactory")  # whose rows are packs in columns of its own
_JUDGED = "invariants on the shards, judged by Great Expectations"  # in a process of its own


def _once(place: Workplace, count: int) -> Content:
    """Seconds of each net, and of the whole build with its export, as ``sampled.py`` saw them."""
    source = place.rows("english", "messages", count)
    with place.scratch() as folder:
        words = build("sft", source, folder / "out", place.cache(folder), *_EXPORTED)[1:]
        out = folder / "spent.json"
        process.run([sys.executable, _SAMPLED, out, *words], folder)
        seen: Content = json.loads(out.read_text())
    spent = dict.fromkeys(NETS, 0.0) | seen["nets"]
    spent[_JUDGED] += seen["children"]
    spent[BUILD] = seen["main_thread"] + seen["other_threads"] + seen["children"]
    return {name: round(seconds, 3) for name, seconds in spent.items()}


def nets(sizes: tuple[int, int], repeats: int) -> Cell:
    """Seconds of each net in each run of two sizes."""

    def make(place: Workplace) -> Content:
        small, large = ([_once(place, n) for _ in range(repeats)] for n in sizes)
        return {"small": small, "large": large}

    return Cell("nets", {"sizes": list(sizes), "repeats": repeats}, make)


def witness(counts: Mapping[int, int]) -> Cell:
    """First builds, with an empty cache, with the witness and without it in turns.

    Args:
        counts: how often, by the number of rows.
    """

    def make(place: Workplace) -> Content:
        made: Content = {str(count): {"with": [], "without": []} for count in counts}
        for count, repeats in counts.items():
            source = place.rows("english", "messages", count)
            for how, known in [*made[str(count)].items()] * repeats:
                with place.scratch() as folder:
                    words = build("sft", source, folder / "out", folder / "empty")
                    program = [sys.executable, str(_UNWITNESSED)] if how == "without" else words[:1]
                    known.append(asdict(process.run([*program, *words[1:]], folder)))
        return made

    return Cell("witness", {"rows": {str(rows): often for rows, often in counts.items()}}, make)
