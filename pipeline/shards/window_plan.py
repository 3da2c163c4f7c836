"""The plan of one window, made by a worker and written to a file that the makers of shards read.

It says what the window consists of and, of each shard, its examples in the order of storing and how
many each row holds. The makers of shards are here, too: each is told where in which plan its shard
is.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.manifest.json_records import from_json
from pipeline.shards import equal, facts, gather, reused_shards, train_test
from pipeline.shards.examples import Choice, PlannedExamples
from pipeline.shards.plan import Side, Window, sides_of
from pipeline.shards.reused_shards import Keeping
from stages import columns
from stages.files.file_hash import replacing

INDEX_OF = "packs of "  # a side: its packs, as places among its examples in the window
_WINDOW = "window"


class Laying(NamedTuple):
    """What laying out a window needs. It can be pickled.

    Attributes:
        folder: for the files that the makers of shards read. Their names say all that they follow
            from, so that several processes may plan one build.
        width: of padded rows, in tokens; 0 otherwise.
        inputs: all that row ids name.
    """

    search: equal.Search
    folder: str
    width: int
    inputs: tuple[str, ...]

    def file(self, kind: str, window: int) -> Path:
        """The file of a window's plan, or of what it has dealt out."""
        return Path(self.folder) / kind / str(window)


@dataclass(frozen=True, slots=True)
class ShardRef:
    """One shard to make, as a place in the plan of a window.

    Attributes:
        path: relative to the build.
        plan: the file; ``side``, ``number``: whose shard it is there, and which.
        before: where packs are an index, examples of the side that earlier windows store.
    """

    path: str
    split: str
    plan: str
    side: str
    number: int
    before: int = 0

    def __str__(self) -> str:
        return f"Shard {self.path}"

    def numbers(self) -> tuple[columns.Ints, columns.Ints]:
        """Its examples, by their number in the window, and how many each row holds."""
        with np.load(self.plan) as plan:
            order, sizes = (plan[name].astype(np.int64) for name in _names(self.side, self.number))
        return order, sizes


def _names(side: str, number: int) -> tuple[str, str]:
    return f"{side} {number} order", f"{side} {number} sizes"


def window_of(plan: str) -> Window:
    """What the window of a plan consists of."""
    with np.load(plan) as content:
        return from_json(Window, json.loads(content[_WINDOW].tobytes()))


class Laid(NamedTuple):
    """What became of a window.

    Attributes:
        plan: its file.
        shards: of each side, how many examples each shard has.
        apart: of each side, how many packings were made apart from each other.
    """

    plan: str
    shards: Mapping[str, tuple[int, ...]]
    apart: Mapping[str, int]
    counts: facts.Counts


def count(
    laying: Laying, window: Window, examples: PlannedExamples, choice: Choice
) -> facts.Counts:
    """Count what is chosen of a window, and write down the groups that it splits."""
    equal.scatter_groups(laying.search, window.number, choice)
    return facts.of(laying.search.config, examples, choice)


def lay(laying: Laying, item: equal.Item) -> Laid:
    """Plan a window, and write its file."""
    window, options = item[0], laying.search.config.plan
    examples, choice = equal.chosen(laying.search, item)
    counts = count(laying, window, examples, choice)
    laid = sides_of(options, examples, choice, laying.width)
    if options.index_only:
        packs = (one.packs for one in laid if one.packs is not None)
        laid += [replace(one, name=INDEX_OF + one.name) for one in packs]
    return written(laying.file("plans", window.number), window, laid, counts)


def written(path: Path, window: Window, laid: list[Side], counts: facts.Counts) -> Laid:
    """Write the plan of a window."""
    content = json.dumps(asdict(window)).encode()
    numbers: dict[str, Any] = {_WINDOW: np.frombuffer(content, np.uint8)}
    shards: dict[str, list[int]] = {}
    for side in laid:
        own = shards[side.name] = []
        for number, (_, order, sizes) in enumerate(side.pieces()):
            for name, one in zip(_names(side.name, number), (order, sizes), strict=True):
                numbers[name] = one.astype(np.uint32)
            own.append(len(order))
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **numbers)
    return Laid(
        plan=str(path),
        shards={name: tuple(own) for name, own in shards.items()},
        apart={side.name: side.apart for side in laid},
        counts=counts,
    )


def shards_of(laid: list[Laid]) -> list[ShardRef]:
    """The shards of all windows by their names: of each side, those of the first window first."""
    found = []
    for split in (train_test.TRAIN, train_test.TEST):
        every = [(one.plan, n) for one in laid for n in range(len(one.shards.get(split, ())))]
        for number, (plan, place) in enumerate(every):
            path = f"{split}/data-{number:05d}-of-{len(every):05d}.arrow"
            found.append(ShardRef(path, split, plan, split, place))
    return found


def packs_of(laid: list[Laid]) -> list[ShardRef]:
    """The packs of all windows, where packs are an index: of each side, in their order."""
    found = []
    for split in (train_test.TRAIN, train_test.TEST):
        before, name = 0, INDEX_OF + split
        for one in laid:
            numbers = range(len(one.shards.get(name, ())))
            found += [ShardRef(split, split, one.plan, name, n, before) for n in numbers]
            before += sum(one.shards.get(split, ()))
    return found


_last: list[tuple[Keeping, str, Keeping]] = []  # the window that this process works for


def _resolved(keeping: Keeping, item: ShardRef) -> tuple[Keeping, gather.ShardWork]:
    """The same shard by its examples, and of all parts those of its window."""
    if not _last or _last[0][0] is not keeping or _last[0][1] != item.plan:
        window = window_of(item.plan)
        shared = replace(keeping.gather, sources=tuple(window.sources), starts=window.starts)
        parts = tuple(member.sha256 for member in window.members)
        _last[:] = [(keeping, item.plan, replace(keeping, gather=shared, parts=parts))]
    order, sizes = item.numbers()
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
