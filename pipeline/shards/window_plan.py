"""The plan of one window, made by a worker and written to a file that the makers of shards read.

a line of JSON: what the window consists of, and of each side how many examples and rows it has
of each side the examples in the order of storing, and how many each row holds; 4 bytes each

The makers of shards are here, too: each is told where in the plan of a window its shard is.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.manifest.json_records import from_json
from pipeline.shards import equal, facts, gather, reused_shards, sides, storage
from pipeline.shards.examples import Choice, Fate, PlannedExamples
from pipeline.shards.plan import Side, Window, orders_of, sides_of
from pipeline.shards.reused_shards import Keeping
from pipeline.shards.sides import Counted, Groups
from pipeline.shards.storage import replacing
from stages import columns, kinds

INDEX_OF = "packs of "  # a side: its packs, as places among its examples in the window
_NUMBER = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Laying:
    """What laying out a window needs. It can be pickled.

    Attributes:
        folder: for the files that the makers of shards read. Their names say all that they follow
            from, so that several processes may plan one build.
        width: of padded rows, in tokens; 0 otherwise.
        counted: what is chosen was counted already, and is given with each window.
    """

    search: equal.Search
    kind: kinds.Kind
    folder: str
    width: int
    counted: bool = False

    def plan(self, window: int) -> Path:
        """The file of a window's plan."""
        return Path(self.folder) / "plans" / str(window)


@dataclass(frozen=True, slots=True)
class ShardRef:
    """One shard to make, as a place in the plan of a window.

    Attributes:
        path: relative to the build.
        plan: the file; ``side``: the number of the side in it.
        examples, rows: of the side, from .. to ..
    """

    path: str
    split: str
    plan: str
    side: int
    examples: tuple[int, int]
    rows: tuple[int, int]

    def __str__(self) -> str:
        return f"Shard {self.path}"


@dataclass(frozen=True, slots=True)
class Laid:
    """What became of a window.

    Attributes:
        plan: its file.
        shards: of each side, examples and rows from .. to .. of each shard.
        apart: of each side, how many packings were made apart from each other.
    """

    plan: str
    shards: Mapping[str, tuple[tuple[tuple[int, int], tuple[int, int]], ...]]
    apart: Mapping[str, int]
    counts: facts.Counts


def choose(search: equal.Search, window: Window, examples: PlannedExamples) -> Choice:
    """What becomes of the examples of a window, where their equals and their groups decide it."""
    options = search.config.plan
    fate = np.full(len(examples), Fate.USED, np.uint8)
    duplicate = np.zeros(len(examples), bool)
    duplicate[equal.of_window(search, window.number)] = True
    if options.dedup:
        fate[duplicate] = Fate.DUPLICATE
    test = None
    if examples.group is not None and options.test_size:
        test = sides.in_test(examples.group, options.test_size, options.seed)
    return Choice(fate, duplicate, test=test)


def count(
    laying: Laying, window: Window, examples: PlannedExamples, choice: Choice
) -> facts.Counts:
    """Count what is chosen of a window, and write down the groups that it splits."""
    search = laying.search
    orders = orders_of(choice, search.config.plan)
    rated = facts.of_parts(laying.kind, window.plans, examples.starts, choice.used)
    if choice.test is not None and examples.group is not None:
        used = choice.used
        scatter(search, window.number, examples.group[used], choice.test[used])
    return facts.of(search.config, examples, choice, orders=orders, margins=rated)


def lay(laying: Laying, item: tuple[Window, Choice | None]) -> Laid:
    """Plan a window, and write its file.

    Args:
        item: what is chosen of it, where that was decided in one memory.
    """
    window, chosen = item
    config = laying.search.config
    examples = window.examples(config)
    choice = choose(laying.search, window, examples) if chosen is None else chosen
    counts = facts.Counts() if laying.counted else count(laying, window, examples, choice)
    laid = sides_of(config.plan, examples, choice, laying.width)
    if config.plan.index_only:
        packs = (one.packs for one in laid if one.packs is not None)
        laid += [replace(one, name=INDEX_OF + one.name) for one in packs]
    return written(laying.plan(window.number), window, laid, counts)


def written(path: Path, window: Window, laid: list[Side], counts: facts.Counts) -> Laid:
    """Write the plan of a window."""
    heads = [[side.name, len(side.order), len(side.sizes)] for side in laid]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(json.dumps({"window": asdict(window), "sides": heads}).encode() + b"\n")
        for side in laid:
            file.write(side.order.astype(_NUMBER).tobytes())
            file.write(side.sizes.astype(_NUMBER).tobytes())
    return Laid(
        plan=str(path),
        shards={side.name: tuple(_bounds(side)) for side in laid},
        apart={side.name: side.apart for side in laid},
        counts=counts,
    )


def _bounds(side: Side) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Examples and rows of each shard."""
    at = columns.offsets_of(side.sizes)[side.shards].tolist()
    return list(zip(pairwise(at), pairwise(side.shards.tolist()), strict=True))


def shards_of(laid: list[Laid]) -> list[ShardRef]:
    """The shards of all windows by their names: of each side, those of the first window first."""
    found = []
    for split in (sides.TRAIN, sides.TEST):
        every = [
            (one.plan, list(one.shards).index(split), bounds)
            for one in laid
            for bounds in one.shards.get(split, ())
        ]
        for number, (plan, side, (examples, rows)) in enumerate(every):
            path = f"{split}/data-{number:05d}-of-{len(every):05d}.arrow"
            found.append(ShardRef(path, split, plan, side, examples=examples, rows=rows))
    return found


@dataclass(frozen=True, slots=True)
class IndexRef:
    """The packs of a side in one shard of packed rows, as a place in the plan of a window.

    Attributes:
        before: examples of the side that the windows before this one store.
    """

    shard: ShardRef
    before: int


def packs_of(laid: list[Laid]) -> list[IndexRef]:
    """The packs of all windows, where packs are an index: of each side, in their order."""
    found = []
    for split in (sides.TRAIN, sides.TEST):
        before = 0
        for one in laid:
            name = INDEX_OF + split
            for examples, rows in one.shards.get(name, ()):
                side = list(one.shards).index(name)
                ref = ShardRef(split, split, one.plan, side, examples=examples, rows=rows)
                found.append(IndexRef(ref, before))
            stored = one.shards.get(split, ())
            before += stored[-1][0][1] if stored else 0
    return found


@dataclass(frozen=True, slots=True)
class Head:
    """What a window's plan begins with.

    Attributes:
        sizes: of each side, how many examples and rows it has.
        start: where the numbers begin, in bytes.
    """

    path: str
    window: Window
    sizes: tuple[tuple[int, int], ...]
    start: int

    @classmethod
    def read(cls, path: str) -> "Head":
        """That of a file."""
        with Path(path).open("rb") as file:
            content = json.loads(file.readline())
            sizes = tuple((examples, rows) for _, examples, rows in content["sides"])
            return cls(path, from_json(Window, content["window"]), sizes, file.tell())

    def numbers(self, shard: ShardRef) -> tuple[columns.Ints, columns.Ints]:
        """The examples of a shard, by their number in the window, and how many each row holds."""
        first = self.start + _NUMBER.itemsize * sum(map(sum, self.sizes[: shard.side]))
        after = first + _NUMBER.itemsize * self.sizes[shard.side][0]
        return self._numbers(first, shard.examples), self._numbers(after, shard.rows)

    def _numbers(self, start: int, bounds: tuple[int, int]) -> columns.Ints:
        first, last = bounds
        at = start + _NUMBER.itemsize * first
        return np.fromfile(self.path, _NUMBER, last - first, offset=at).astype(np.int64)


_last: list[tuple[Keeping, Head, Keeping]] = []  # the window that this process works for


def _resolved(keeping: Keeping, item: ShardRef) -> tuple[Keeping, gather.ShardWork]:
    """The same shard by its examples, and of all parts those of its window."""
    if not _last or _last[0][0] is not keeping or _last[0][1].path != item.plan:
        head = Head.read(item.plan)
        window = head.window
        shared = replace(keeping.gather, sources=tuple(window.sources), starts=window.starts)
        parts = tuple(member.sha256 for member in window.members)
        _last[:] = [(keeping, head, replace(keeping, gather=shared, parts=parts))]
    order, sizes = _last[0][1].numbers(item)
    return _last[0][2], gather.ShardWork(path=item.path, split=item.split, order=order, sizes=sizes)


def make(keeping: Keeping, item: ShardRef) -> gather.ShardReport:
    """Take a shard over, or make it: ``kept.make``."""
    return reused_shards.make(*_resolved(keeping, item))


def leave(keeping: Keeping, item: ShardRef) -> bool:
    """Make a shard into the workspace: ``workspace.make``."""
    return reused_shards.make_ahead(*_resolved(keeping, item))


def forget() -> None:
    """Let go of what this process has of the build."""
    _last.clear()
    gather.forget()
    reused_shards.forget()


# How the sides of a large build came out: its groups are counted bucket by bucket, on the disk.
#
# A window writes its groups, and how many of its examples each has; whoever looks at a bucket sees
# all examples of its groups.


ENTRY = np.dtype([("group", "<u8"), ("examples", "<u4"), ("test", "<u4")])


def _path(search: equal.Search, window: int) -> Path:
    return Path(search.folder) / "groups" / str(window)


def forget_groups(search: equal.Search) -> None:
    """Remove what the windows have written: everything was counted."""
    shutil.rmtree(_path(search, 0).parent, ignore_errors=True)


def scatter(search: equal.Search, window: int, groups: Groups, test: npt.NDArray[np.bool_]) -> None:
    """Write down the groups of a window's examples, by bucket.

    Args:
        test: which of the examples are in test.
    """
    entries = []
    for side in (False, True):
        group, sizes = np.unique(groups[test == side], return_counts=True)
        mine = np.zeros(len(group), ENTRY)
        mine["group"], mine["examples"], mine["test"] = group, sizes, side
        entries.append(mine)
    every = np.concatenate(entries)
    buckets = storage.first_byte(every["group"])
    storage.write_grouped(_path(search, window), every, buckets, storage.BUCKETS)


def count_groups(search: equal.Search, bucket: int) -> Counted:
    """Count the groups of a bucket.

    Raises:
        PipelineError: one is on both sides.
    """
    paths = [_path(search, window) for window in range(search.windows)]
    entries, _ = storage.read_bucket(paths, bucket, ENTRY)
    return sides.counted(entries["group"], entries["examples"], entries["test"])
