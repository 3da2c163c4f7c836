"""Which rows are drawn, and the examples of them that the shards hold, beside what they must be."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.witness.laws import FIGURES
from expectations.witness.tokens import IGNORED

SHARE = 0.01
LEAST, MOST = 256, 4096  # rows of a build: how many are drawn decides what is found, no share does
LONGEST = 4  # examples of each shard, whatever was drawn
_FLAT = ("input_ids", "labels", "loss_weights")
_SIDES = ("chosen_ids", "rejected_ids")


def _share(case: dict[str, Any]) -> float:
    """The share of the lines that is drawn, 1 or more for all of them."""
    total = sum(part["lines"] for one in case["inputs"] for part in one["parts"])
    count = min(max(SHARE * total, LEAST), MOST)
    return 1.0 if case["every"] else count / max(total, 1)


def all_drawn(case: dict[str, Any]) -> bool:
    """Whether every line is."""
    return _share(case) >= 1


def drawn(case: dict[str, Any]) -> dict[str, list[int]]:
    """Lines, from 1, by the names of the inputs: of each part some, at random.

    What is drawn of a part depends on its content, so nobody can know a row that never is.
    """
    parts = [(x["name"], part) for x in case["inputs"] for part in x["parts"]]
    share = _share(case)
    found: dict[str, list[int]] = {x["name"]: [] for x in case["inputs"]}
    for name, part in parts:
        count = min(part["lines"], -int(-share * part["lines"] // 1))
        chosen = random.Random(part["sha256"]).sample(range(part["lines"]), count)
        found[name] += [part["first"] + one + 1 for one in chosen]
    return found


def place_of(name: str) -> tuple[str, int, int | None]:
    """Input, line and number of the sequence, of the id of a row."""
    source, _, place = name.rpartition(":")
    line, _, number = place.partition("#")
    return source, int(line), int(number) if number else None


def examples(case: dict[str, Any], lines: dict[str, list[int]]) -> Iterator[tuple[str, Any]]:
    """The id and the columns of each example of some rows, and of the longest of each shard."""
    wanted = pa.array(
        [f"{name}:{line}" for name, own in lines.items() for line in own], pa.string()
    )
    for path in case["shards"]:
        with pa.memory_map(str(Path(case["folder"]) / path)) as source:
            batches = list(pa.ipc.open_stream(source))
            named = [_named(batch) for batch in batches]
            for batch, own, places in zip(batches, named, _places(named, wanted), strict=True):
                for name, columns in _of_batch(batch, *own, places):
                    yield name, columns | {"split": path.partition("/")[0]}


def _named(batch: pa.RecordBatch) -> tuple[pa.Array, Any]:
    """The ids and the lengths of the examples of a batch."""
    packed = "seq_lengths" in batch.schema.names
    ids = batch.column("input_ids" if "input_ids" in batch.schema.names else _SIDES[0])
    names = batch.column("row_ids").flatten() if packed else batch.column("row_id")
    masks = [name for name in batch.schema.names if name.endswith("attention_mask")]
    if masks:  # every padded row is as long; of a pair the longer side counts
        return names, np.max([_filled(batch.column(name)) for name in masks], axis=0)
    sizes = batch.column("seq_lengths").flatten() if packed else pc.list_value_length(ids)
    return names, sizes.to_numpy(zero_copy_only=False)


def _places(named: Sequence[tuple[pa.Array, Any]], wanted: pa.Array) -> Iterator[list[int]]:
    """Of each batch of a shard, where examples stand that are wanted or the longest."""
    if not named:
        return
    every = np.concatenate([sizes for _, sizes in named])
    longest = np.zeros(len(every), bool)
    longest[np.argsort(every, kind="stable")[-LONGEST:]] = True
    first = 0
    for names, sizes in named:
        rows = names
        if pc.any(pc.match_substring(names, "#")).as_py():
            rows = pc.replace_substring_regex(names, r"#\d+$", "")
        chosen = pc.is_in(rows, wanted).to_numpy(zero_copy_only=False)
        yield np.flatnonzero(chosen | longest[first : first + len(sizes)]).tolist()
        first += len(sizes)


def _of_batch(
    batch: pa.RecordBatch, names: pa.Array, sizes: Any, places: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    packed = "seq_lengths" in batch.schema.names
    owner = np.arange(len(names))
    if packed:
        owner = np.repeat(np.arange(len(batch)), pc.list_value_length(batch.column("row_ids")))
    for one in places:
        row = int(owner[one])
        first = int(np.searchsorted(owner, row))
        lengths = sizes[first : one + 1].tolist()
        yield names[one].as_py(), _example(batch, row, lengths if packed else None)


def _filled(masks: pa.Array) -> Any:
    """How many tokens of each row are no padding."""
    owner = pc.list_parent_indices(masks).to_numpy()
    return np.bincount(owner, pc.list_flatten(masks).to_numpy(), minlength=len(masks)).astype(int)


def _example(batch: pa.RecordBatch, row: int, lengths: list[int] | None) -> dict[str, Any]:
    """The columns of one example; ``lengths``: of those of its pack, up to itself."""
    found = {
        name: batch.column(name)[row].as_py()
        for name in batch.schema.names
        if lengths is None or name not in (*_FLAT, "row_ids")
    }
    if lengths is not None:
        stop, start = sum(lengths), sum(lengths[:-1])
        for name in {*_FLAT} & {*batch.schema.names}:
            found[name] = batch.column(name)[row].values[start:stop].to_pylist()
        if "step_positions" in found:
            both = zip(found["step_positions"], found["step_labels"], strict=True)
            own = [(at - start, rating) for at, rating in both if start <= at < stop]
            found["step_positions"] = [at for at, _ in own]
            found["step_labels"] = [rating for _, rating in own]
    return _unpadded(found)


def _unpadded(found: dict[str, Any]) -> dict[str, Any]:
    """The same without the padding that the mask marks, of which ``pads`` is the least."""
    for prefix, names in (("", _FLAT), ("chosen_", _SIDES[:1]), ("rejected_", _SIDES[1:])):
        mask = found.get(f"{prefix}attention_mask")
        if mask is None:
            continue
        found["pads"] = min(found.get("pads", len(mask)), mask.count(0))
        for name in names:
            if name in found:
                found[name] = [one for one, real in zip(found[name], mask, strict=True) if real]
        if not prefix and "step_positions" in found:
            before = mask.index(1)
            found["step_positions"] = [at - before for at in found["step_positions"]]
    return found


def differences(expected: dict[str, Any], columns: dict[str, Any]) -> Iterator[str]:
    """What of an example is not as it must be, law by law."""
    for law, wanted in expected.items():
        there = columns.get(law, wanted if law == FIGURES else None)
        if law == "loss_weights":
            wanted = [float(np.float32(one)) for one in wanted]
            if there is None:
                there = [float(label != IGNORED) for label in columns["labels"]]
        elif law in ("step_labels", "margin"):
            several = wanted if isinstance(wanted, list) else [wanted]
            several = [one if one is None else float(np.float32(one)) for one in several]
            wanted = several if isinstance(wanted, list) else several[0]
        if there == wanted:
            continue
        if not isinstance(wanted, list) or not isinstance(there, list):
            yield f"{law} is {there}, and the row says {wanted}"
            continue
        both = enumerate(zip(there, wanted, strict=False))
        at = next((i for i, (a, b) in both if a != b), None)
        if at is None:
            yield f"{law} has {len(there)} values, and the row says {len(wanted)}"
        else:
            yield f"{law}[{at}] is {there[at]}, and the row says {wanted[at]}"
