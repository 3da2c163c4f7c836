"""What is asked of the examples of all windows: bucket by bucket, on the disk.

A window writes what is asked about, grouped by a hash, in as many buckets as there are windows, up
to 256. Whoever looks at a bucket sees all examples whose hashes fall into it, in input order. Which
examples are equal is asked by their digests (24 bytes an example); how the groups of a split came
out by their numbers. A build of one window has one bucket.
"""

import shutil
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import load
from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from pipeline.shards import collect, doubles, facts, plan, storage, train_test
from pipeline.shards.examples import Choice, Fate, PlannedExamples
from pipeline.shards.train_test import Counted
from stages.columns import Bools, Ints, offsets_of
from stages.errors import PipelineError
from stages.rows.groups import NO_QUESTION

ENTRY = np.dtype([("a", "<u8"), ("b", "<u8"), ("at", "<u4"), ("of", "<u4")])
GROUP = np.dtype([("group", "<u8"), ("examples", "<u4"), ("test", "<u4")])
_PLACE = np.dtype("<u4")
_FATE, _TEST, _SOURCE = 7, 8, 4  # of ``of``: the fate, the side, and where the source begins
_NO_EXAMPLE = (Fate.FILTERED, Fate.CONTAMINATED)  # of these nothing is a double
_REPORT = "Nothing was published; please report it with the recipe."
Item = tuple[plan.Window, Choice | None]  # with what was chosen of it in one memory


class Search(NamedTuple):
    """What asking all windows needs. It can be pickled.

    Attributes:
        folder: for files that nobody needs once the plan is made.
        windows: how many there are; ``examples``: of all of them.
        stored: columns of parts that shards are made of: what ``--dedup`` compares.
    """

    config: Config
    folder: str
    windows: int
    examples: int
    stored: tuple[str, ...]

    @property
    def buckets(self) -> int:
        """How many there are."""
        return min(self.windows, storage.BUCKETS)

    def file(self, kind: str, number: int) -> Path:
        """What a window has written, or what was found in a bucket."""
        return Path(self.folder) / kind / str(number)

    def forget(self, kind: str) -> None:
        """Remove what was looked at."""
        shutil.rmtree(Path(self.folder) / kind, ignore_errors=True)

    def scatter(self, kind: str, window: int, entries: storage.Records, hashed: str) -> None:
        """Write down what is asked of a window, by bucket.

        Args:
            hashed: the field of the entries whose hash says which.
        """
        buckets = storage.bucket_of(entries[hashed], self.buckets)
        storage.write_grouped(self.file(kind, window), entries, buckets, self.buckets)

    def bucket(
        self, kind: str, bucket: int, entry: np.dtype[np.void]
    ) -> tuple[storage.Records, Ints]:
        """What all windows have written of a bucket, and the window that each entry is of."""
        paths = [self.file(kind, window) for window in range(self.windows)]
        found = [storage.read_grouped(path, bucket, entry, self.buckets) for path in paths]
        sizes = np.array([len(one) for one in found], np.int64)
        return np.concatenate(found), np.repeat(np.arange(self.windows), sizes)


def begun(search: Search, item: Item) -> tuple[PlannedExamples, Choice]:
    """The examples of a window, and what becomes of them as far as none of another decides it."""
    window, choice = item
    examples, options = window.examples(search.config), search.config.plan
    if choice is None:
        fate, test = np.zeros(len(examples), np.uint8), examples.in_test(options)
        choice = Choice(fate, test, group=examples.group)
    return examples, choice


def chosen(search: Search, item: Item) -> tuple[PlannedExamples, Choice]:
    """The examples of a window, and what becomes of them."""
    examples, choice = begun(search, item)
    if search.config.plan.dedup:
        fate = choice.fate.copy()  # an engine may have given it to be read alone
        fate[_of_window(search, item[0].number)] = Fate.DUPLICATE
        choice = replace(choice, fate=fate)
    return examples, choice


def _of_window(search: Search, window: int) -> Ints:
    """The places of a window's examples that equal another of the build, which stays."""
    found = [
        storage.read_grouped(search.file("equal", number), window, _PLACE, search.windows)
        for number in range(search.buckets)
    ]
    return np.concatenate(found).astype(np.int64)


def scatter(search: Search, item: Item) -> int:
    """Write down the digests of a window; with ``--dedup``, where its examples are, too.

    Returns:
        The tokens of its longest example.
    """
    window, (examples, choice) = item[0], begun(search, item)
    entries = np.zeros(len(examples), ENTRY)
    for half in ("a", "b"):
        entries[half] = examples.digest[half]
    entries["at"] = np.arange(len(examples))
    entries["of"] = choice.fate
    entries["of"] |= np.where(choice.test, _TEST, 0).astype(np.uint32)
    entries["of"] |= examples.source.astype(np.uint32) << _SOURCE
    search.scatter("digests", window.number, entries, "a")
    if search.config.plan.dedup:
        path = search.file("windows", window.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(window))
    return int(examples.length[choice.used].max(initial=0))


def find(search: Search, bucket: int) -> facts.Counts:
    """Find the equal examples of a bucket; with ``--dedup`` they are written down by window.

    Raises:
        DataError: with ``--dedup``, two with one digest differ.
        PipelineError: the first of equal examples is not the one that stays.
    """
    entries, window = search.bucket("digests", bucket, ENTRY)
    fate, test = entries["of"] & _FATE, (entries["of"] & _TEST).astype(bool)
    again, stays = _pairs(entries, fate)
    if not Keep.of(search.config.plan.dedup_keep).column and (again < stays).any():
        raise PipelineError("Of equal examples another than the first stays.", _REPORT)
    by_source: Counter[tuple[int, int]] = Counter()
    if search.config.plan.dedup:
        order = np.argsort(again)
        again, stays = again[order], stays[order]
        places = entries["at"][again].astype(_PLACE)
        storage.write_grouped(search.file("equal", bucket), places, window[again], search.windows)
        _compare(search, window, entries["at"].astype(np.int64), again=again, stays=stays)
        fate[again] = Fate.DUPLICATE
        source = entries["of"] >> _SOURCE
        pairs = zip(source[again].tolist(), source[stays].tolist(), strict=True)
        by_source = Counter(pairs if search.config.named else ())
    used = np.equal(fate, Fate.USED)
    held = used | (fate == Fate.OVER_BUDGET)
    both = held[again] & held[stays]
    return facts.Counts(
        found=len(again),
        equal=_equal_among(entries, used, again),
        held_equal=_equal_among(entries, held, again) if search.config.plan.index_only else 0,
        apart=int(np.count_nonzero(both & (test[again] != test[stays]))),
        leaked=doubles.count_in(entries[used & test], entries[used & ~test]) if test.any() else 0,
        doubles=by_source,
    )


def _pairs(entries: doubles.Digests, fate: npt.NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """The examples that equal one that stays, and for each that one: the first, or where somebody
    has chosen already the one that is no duplicate."""
    if not fate.any():  # nobody has
        return doubles.pairs(entries)
    there = np.flatnonzero(~np.isin(fate, _NO_EXAMPLE))
    stay = (fate[there] != Fate.DUPLICATE).astype(np.float64)
    again, stays = doubles.pairs(entries[there], stay)
    return there[again], there[stays]


def _equal_among(entries: doubles.Digests, some: Bools, again: Ints) -> int:
    """How many of some examples equal an earlier one of them; ``again``: those of all that do."""
    return len(again) if some.all() else int(doubles.repeats(entries[some]).sum())


def _compare(search: Search, window: Ints, at: Ints, *, again: Ints, stays: Ints) -> None:
    """Compare the examples that are left out with those that stay.

    Args:
        window, at: of each example of the bucket.
    """
    if not len(again):
        return
    used = np.unique(window[np.concatenate([again, stays])])
    members = [load(plan.Window, search.file("windows", n).read_bytes()) for n in used.tolist()]
    sources: list[collect.PartSource] = [one for member in members for one in member.sources]
    counts = np.concatenate([np.diff(member.starts) for member in members])
    firsts = offsets_of(np.array([int(member.starts[-1]) for member in members], np.int64))
    number = firsts[np.searchsorted(used, window)] + at
    collect.require_equal(
        (number[again], number[stays]), sources, offsets_of(counts), search.stored
    )


def scatter_groups(search: Search, window: int, choice: Choice) -> None:
    """Write down the groups that a window splits, and how many of its examples each has."""
    options = search.config.plan
    if choice.group is None or not (options.test_size or options.test):
        return
    entries = []
    split = choice.used
    if options.test:  # rows that ask nothing may be in both
        split &= choice.group != NO_QUESTION
    for side in (False, True):
        group, sizes = np.unique(choice.group[split & (choice.test == side)], return_counts=True)
        mine = np.zeros(len(group), GROUP)
        mine["group"], mine["examples"], mine["test"] = group, sizes, side
        entries.append(mine)
    search.scatter("groups", window, np.concatenate(entries), "group")


def count_groups(search: Search, bucket: int) -> Counted:
    """Count the groups of a bucket.

    Raises:
        PipelineError: one is on both sides.
    """
    entries, _ = search.bucket("groups", bucket, GROUP)
    return train_test.counted(entries["group"], entries["examples"], entries["test"])
