"""A shuffle of a large build: every window's examples are dealt to as many buckets as there are
windows, and then a bucket is planned as a window is.

A seeded hash of its number says where an example stands among all, and so in which bucket: the
first bucket has the first of the shuffled examples, the next those after them. A window writes its
examples once more, bucket by bucket, in record batches of about a million tokens; a shard reads the
batches of its own bucket and no others. So a build that is shuffled takes the space of its parts
once more while it is made.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.shards import equal, facts, gather, storage, train_test, window_plan
from pipeline.shards.collect import ORIGIN, Collector, PartSource
from pipeline.shards.examples import Choice, Numbers
from pipeline.shards.plan import Member, Window, in_order, keys_of
from stages.columns import Bools, Ints, offsets_of
from stages.files.file_hash import replacing

_KEY, _TEST = "key", "test"  # where it stands among all, before it is hashed; its side
_PLANNED = ("line", "sequence", "length", "digest")


class Dealt(NamedTuple):
    """What became of a window.

    Attributes:
        batches: of the file, in its order: the bucket of each, and how many examples it has.
    """

    path: str
    batches: tuple[tuple[int, int], ...]
    counts: facts.Counts


def _places(
    laying: window_plan.Laying, window: Window, choice: Choice
) -> tuple[Ints, Ints, Bools, Ints]:
    """Of all that is stored of a window, bucket by bucket: the example in the window, its key, its
    side and its bucket."""
    search = laying.search
    places, keys, tests = [], [], []
    for side, (own, one) in keys_of(choice, window.first, search.examples).items():
        places.append(own)
        keys.append(one)
        tests.append(np.full(len(own), side == train_test.TEST))
    place, key = (np.concatenate([np.zeros(0, np.int64), *one]) for one in (places, keys))
    # Buckets follow one another in the order of the hashes.
    bucket = storage.bucket_of(train_test.mixed(key, search.config.plan.seed), search.windows)
    order = np.lexsort((place, bucket))
    test = np.concatenate([np.zeros(0, bool), *tests])
    return place[order], key[order], test[order], bucket[order]


def _cuts(bucket: Ints, parts: Ints | None, lengths: Ints) -> Ints:
    """Where record batches begin: at every bucket, and after about so many tokens; at every part
    and nowhere else where no pack has examples of two."""
    if parts is not None:
        bucket = bucket * (int(parts.max(initial=0)) + 1) + parts
    begins = np.flatnonzero(np.concatenate([[True], bucket[1:] != bucket[:-1]]))
    before = offsets_of(lengths)
    run = np.repeat(before[begins], np.diff(np.append(begins, len(bucket))))
    block = (
        np.zeros(len(bucket), np.int64)
        if parts is not None
        else ((before[:-1] - run) // gather.BLOCK_TOKENS)
    )
    new = (bucket[1:] != bucket[:-1]) | (block[1:] != block[:-1])
    return np.concatenate([[0], np.flatnonzero(new) + 1, [len(bucket)]])


def deal(laying: window_plan.Laying, item: equal.Item) -> Dealt:
    """Write the examples of a window, bucket by bucket."""
    window = item[0]
    examples, choice = equal.chosen(laying.search, item)
    counts = window_plan.count(laying, window, examples, choice)
    place, key, test, bucket = _places(laying, window, choice)
    path = laying.file("dealt", window.number)
    if not len(place):
        return Dealt(str(path), (), counts)
    collect = Collector(window.sources, window.starts)
    within = laying.search.config.plan.pack_within == "part"
    parts = collect.picks(place).parts if within else None
    cuts = _cuts(bucket, parts, examples.length[place].astype(np.int64))
    stored = laying.search.stored
    ordinals = {name: number for number, name in enumerate(laying.inputs)}
    origins = np.array([ordinals[source.name] for source in window.sources], np.int64)
    tables = (
        _table(stored, collect, place[a:b], origins=origins, key=key[a:b], test=test[a:b])
        for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
    )
    if not path.exists():  # whole, of the same build: another process has dealt it out
        _write(path, tables)
    sizes = np.diff(cuts).tolist()
    return Dealt(str(path), tuple(zip(bucket[cuts[:-1]].tolist(), sizes, strict=True)), counts)


def _table(
    stored: Sequence[str], collect: Collector, order: Ints, *, origins: Ints, key: Ints, test: Bools
) -> pa.Table:
    """Some examples with all that shards are made of, and where they come from.

    Args:
        origins: the number of each part's input.
    """
    collect.forget()  # those before
    picked = collect.picks(order)
    wanted = dict.fromkeys((*_PLANNED, *stored))
    columns: dict[str, Any] = {
        name: collect.blocks(picked, name)(0, len(picked)) for name in wanted if name != "line"
    }
    first = np.array([source.first_line for source in collect.sources], np.int64)
    columns["line"] = collect.numbers(picked, "line") + first[picked.parts]
    columns[ORIGIN] = origins[picked.parts]
    return pa.table({**columns, _KEY: key, _TEST: test})


def _write(path: Path, tables: Iterator[pa.Table]) -> None:
    first = next(tables)
    with replacing(path) as temporary:
        sink = pa.OSFile(str(temporary), "wb")
        with sink, pa.ipc.new_file(sink, first.schema) as out:
            out.write_table(first)
            for table in tables:
                out.write_table(table)
        # Whoever plans the same build takes what has this name for whole, also after a crash.
        with temporary.open("rb") as written:
            os.fsync(written.fileno())


def buckets(dealt: Sequence[Dealt], digest: str) -> list[Window]:
    """The buckets, as windows: their members are record batches.

    Args:
        digest: of all parts, which says with the recipe what every batch holds.
    """
    members: list[list[Member]] = [[] for _ in dealt]
    for one in dealt:
        for batch, (bucket, examples) in enumerate(one.batches):
            source = PartSource(one.path, "", 0, batch=batch)
            sha256 = f"{digest} {Path(one.path).name} {batch}"
            members[bucket].append(Member(Numbers(one.path, 0, examples), source, sha256))
    return [Window(n, first=0, line=0, members=tuple(own)) for n, own in enumerate(members)]


def lay(laying: window_plan.Laying, bucket: Window) -> window_plan.Laid:
    """Plan a bucket, and write its file."""
    options = laying.search.config.plan
    collect = Collector(bucket.sources, bucket.starts)

    def every(name: str) -> npt.NDArray[Any]:
        members = (collect.column(at, name) for at in range(len(bucket.members)))
        each = [column.to_numpy(zero_copy_only=False) for column in members]
        return np.concatenate([np.zeros(0, np.int64), *each])

    length, key, test = map(every, ("length", _KEY, _TEST))
    split = {train_test.TRAIN: np.flatnonzero(test == 0), train_test.TEST: np.flatnonzero(test)}
    keys = {name: (own, key[own]) for name, own in split.items()}
    laid = in_order(options, keys, length, starts=bucket.starts, width=laying.width)
    return window_plan.written(laying.file("plans", bucket.number), bucket, laid, facts.Counts())
