"""Equal examples of all windows, found bucket by bucket: 24 bytes an example on the disk.

A window writes the digests of its examples, grouped by their first byte. Whoever looks at a bucket
sees all examples whose digests begin with that byte, in input order, and so all that equal any of
them. What it finds goes back by window, as the places of those that equal an earlier one.
"""

import shutil
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from pipeline.executors import Sums
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import load
from pipeline.options.config import Config
from pipeline.shards import collect, doubles, sides, storage
from pipeline.shards.plan import Window
from pipeline.shards.storage import replacing
from stages.columns import Ints, offsets_of

ENTRY = np.dtype([("a", "<u8"), ("b", "<u8"), ("at", "<u4"), ("of", "<u4")])
_PLACE = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Search:
    """What looking for equal examples needs. It can be pickled.

    Attributes:
        folder: for files that nobody needs once the plan is made.
        windows: how many there are.
        stored: columns of parts that shards are made of: what ``--dedup`` compares.
    """

    config: Config
    folder: str
    windows: int
    stored: tuple[str, ...]

    def digests(self, window: int) -> Path:
        """What a window has written."""
        return Path(self.folder) / "digests" / str(window)

    def found(self, bucket: int) -> Path:
        """What was found in a bucket."""
        return Path(self.folder) / "equal" / str(bucket)

    def forget_digests(self) -> None:
        """Remove them: everything was looked at."""
        shutil.rmtree(self.digests(0).parent, ignore_errors=True)

    def window(self, number: int) -> Path:
        """What a window consists of."""
        return Path(self.folder) / "windows" / f"{number}.json"


@dataclass(frozen=True, slots=True)
class Equal(Sums):
    """What was found in a bucket.

    Attributes:
        by_source: examples that equal an earlier one, by their source and that one's.
        apart: those that are on the other side of the split than the one that they equal.
        leaked: examples of test that equal one of train.
    """

    by_source: Counter[tuple[int, int]] = field(default_factory=Counter)
    apart: int = 0
    leaked: int = 0


def scatter(search: Search, window: Window) -> int:
    """Write down the digests of a window, by bucket, and what it consists of.

    Returns:
        The tokens of its longest example.
    """
    examples = window.examples(search.config)
    plan = search.config.plan
    entries = np.zeros(len(examples), ENTRY)
    for half in ("a", "b"):
        entries[half] = examples.digest[half]
    entries["at"] = np.arange(len(examples))
    if examples.source is not None:
        entries["of"] = examples.source.astype(np.uint32) << 1
    if examples.group is not None and plan.test_size:
        entries["of"] |= sides.in_test(examples.group, plan.test_size, plan.seed)
    buckets = storage.first_byte(entries["a"])
    storage.write_grouped(search.digests(window.number), entries, buckets, storage.BUCKETS)
    path = search.window(window.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        write_json(temporary, asdict(window))
    return int(examples.length.max(initial=0))


def find(search: Search, bucket: int) -> Equal:
    """Find the equal examples of a bucket, and write them down by window.

    Raises:
        DataError: with ``--dedup``, two with one digest differ.
    """
    paths = [search.digests(window) for window in range(search.windows)]
    entries, window = storage.read_bucket(paths, bucket, ENTRY)
    again, stays = doubles.pairs(entries)
    order = np.argsort(again)
    again, stays = again[order], stays[order]
    places = entries["at"][again].astype(_PLACE)
    storage.write_grouped(search.found(bucket), places, window[again], search.windows)
    if search.config.plan.dedup and len(again):
        _compare(search, window, entries["at"].astype(np.int64), again=again, stays=stays)
    of, test = entries["of"] >> 1, (entries["of"] & 1).astype(bool)
    pairs = zip(of[again].tolist(), of[stays].tolist(), strict=True)
    leaked = doubles.count_in(entries[test], entries[~test]) if test.any() else 0
    dropped = search.config.plan.dedup  # then no two equal ones are left to be apart
    return Equal(
        by_source=Counter(pairs if search.config.named else ()),
        apart=0 if dropped else int(np.count_nonzero(test[again] != test[stays])),
        leaked=0 if dropped else leaked,
    )


def _compare(search: Search, window: Ints, at: Ints, *, again: Ints, stays: Ints) -> None:
    """Compare the examples that are left out with those that stay.

    Args:
        window, at: of each example of the bucket.
    """
    used = np.unique(window[np.concatenate([again, stays])])
    members = [load(Window, search.window(n).read_bytes()) for n in used.tolist()]
    sources: list[collect.PartSource] = [one for member in members for one in member.sources]
    counts = np.concatenate([np.diff(member.starts) for member in members])
    firsts = offsets_of(np.array([int(member.starts[-1]) for member in members], np.int64))
    number = firsts[np.searchsorted(used, window)] + at if len(used) else at
    collect.require_equal(
        (number[again], number[stays]), sources, offsets_of(counts), search.stored
    )


def of_window(search: Search, window: int) -> Ints:
    """The places of a window's examples that equal an earlier one of the build, ascending."""
    buckets = range(storage.BUCKETS)
    found = [storage.read_grouped(search.found(n), window, _PLACE, search.windows) for n in buckets]
    return np.sort(np.concatenate(found)).astype(np.int64)
