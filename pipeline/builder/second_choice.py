"""Chooses once more from the parts of a build: by loops over its examples, one step after another,
where the build sorts columns. What is stored must be what comes out: the same examples, on the same
sides, in the same order, in the same packs.

What an example's text says is no part of it: its tokens, the hashes of what it asks and of what it
is, whether a filter leaves it out, and the files of what is like something else are given; the
hashes of what rows ask are compared with what the witness has read. Builds that are not in
``Evidence.examples`` are not chosen again, and neither are those whose sides follow from likeness;
of those of several windows, order and packs are not.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from pipeline.builder.evidence import Evidence
from pipeline.manifest.records import CONTAMINATED, NEAR_DUPLICATES
from pipeline.shards.storage import here
from stages.errors import counted
from stages.tokens import layouts

_WORD = 1 << 64
_LESS = ("total", "share", "weight", "rows", "tokens", "trained_tokens")
_SALT = 0x6275646765740000
_COLUMNS = (*"line sequence length trained digest group asked signature".split(),)
_UNITS = {"rows": "one", "tokens": "length", "trained_tokens": "trained"}
_BUDGET = ("share", "weight", *_UNITS, "epochs")
_Taken: TypeAlias = tuple[int, int]  # whole passes, and how many once more


def mixed(number: int, seed: int) -> int:
    """SplitMix64 of a number and a seed, as its authors published it."""
    found = (number + seed * 0x9E3779B97F4A7C15 + 1) % _WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> shift)) * factor % _WORD
    return found ^ (found >> 31)


class Made(NamedTuple):
    """An example of a part; ``number``: among all, ``group``: what must not be separated."""

    number: int
    name: str
    part: int
    source: str
    length: int
    trained: int
    digest: bytes
    group: int
    asked: int | None
    signature: bytes | None
    one: int = 1


def problems(evidence: Evidence) -> Iterator[str]:
    """Where the build has something else."""
    options: Any = evidence.manifest.options
    apart = options["test_size"] or any(one.get("test") for one in evidence.asked)
    likeness = options.get("near_dedup") and apart
    # Of an index, or with a budget, what is stored says not which of equal examples was to stay.
    less = any(one.get(name) is not None for one in (options, *evidence.asked) for name in _LESS)
    ranked = options.get("dedup_keep") and (evidence.manifest.packs or less)
    if not evidence.parts or not evidence.rows or likeness or ranked:
        return
    try:
        made = list(_made(evidence))
    except OSError:  # another process has removed parts from the cache
        return
    yield from _Choice(evidence, options, made).problems()


def _made(evidence: Evidence) -> Iterator[Made]:
    number = 0
    for part, of in enumerate(evidence.parts):
        with pa.memory_map(str(here(Path(of.path)))) as file:
            table = pa.ipc.open_file(file).read_all()
            rows = table.select([n for n in _COLUMNS if n in table.schema.names]).to_pylist()
        for row in rows:
            name = f"{of.name}:{of.first_line + row['line'] + 1}"
            name += f"#{row['sequence']}" if row["sequence"] >= 0 else ""
            group, digest = row.get("group") or 0, row["digest"]
            told = (row["length"], row["trained"], digest, group, *map(row.get, _COLUMNS[-2:]))
            yield Made(number, name, part, of.source, *told)
            number += 1


def _joined(made: Sequence[Made]) -> list[Made]:
    """The same in the groups that they are of where rows that ask the same are joined: of each
    such chain of groups the least."""
    if all(one.asked is None for one in made):
        return list(made)
    above: dict[Any, Any] = {}

    def top(one: Any) -> Any:
        while (upper := above.setdefault(one, one)) != one:
            above[one] = one = above[upper]
        return one

    for one in made:
        asked = one.group if one.asked is None else one.asked
        if one.group and asked:
            above[top(one.group)] = top((asked,))
    least: dict[Any, int] = {}
    for one in made:
        least[top(one.group)] = min(one.group, least.get(top(one.group), one.group))
    return [one._replace(group=least[top(one.group)]) for one in made]


def packs(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Places of the examples that share a pack: the longest first, each into the fullest pack that
    has room, of equally full ones into that which is so for the longest time."""
    found: list[list[int]] = []
    open_: list[tuple[int, int, int]] = []  # the room, since when, and the pack
    for time, place in enumerate(sorted(range(len(lengths)), key=lambda at: -lengths[at])):
        at = bisect_left(open_, (lengths[place],))
        if at < len(open_):
            room, _, pack = open_.pop(at)
        else:
            room, pack = capacity, len(found)
            found.append([])
        found[pack].append(place)
        if room > lengths[place]:
            insort(open_, (room - lengths[place], time, pack))
    return found


@dataclass(frozen=True)
class _Choice:
    evidence: Evidence
    options: Mapping[str, Any]
    made: Sequence[Made]
    doubles: Counter[tuple[str, str]] = field(default_factory=Counter)  # sources of equal examples

    def problems(self) -> Iterator[str]:
        """What is stored otherwise than it is chosen here."""
        manifest, there = self.evidence.manifest, self.evidence.rows
        test, used = self._left()
        times, wanted = {one.number: 1 for one in used}, list[float]()
        if self.options.get("total") is not None or any(map(_budget, self.evidence.asked)):
            times, wanted = self._portions(used, test)
        told = [one.amount for one in manifest.sources if one.wanted_share is not None]
        if len(told) != len(wanted) or any(
            abs(one - other) > 1 for one, other in zip(told, wanted, strict=True)
        ):
            yield f"sources: {wanted} trained tokens are wanted, and the manifest says {told}"
        held = [[one for one in used if (one.number in test) == side] for side in (False, True)]
        yield from self._figures(used, held, times)
        for name, own in zip(("train", "test"), held, strict=True):
            every = max((times[one.number] for one in own), default=0)
            turns = [(n, one) for n in range(every) for one in own if times[one.number] > n]
            if self.options["shuffle"]:
                seed, total = int(self.options["seed"]), len(self.made)
                turns.sort(key=lambda turn: mixed(turn[1].number + turn[0] * total, seed))
            rows, stored = self._rows([one for _, one in turns]), there.get(name, [])
            chosen = [one for row in rows for one in row]
            found = [one for row in stored for one in row]
            if manifest.windows:
                chosen, found, rows = sorted(chosen), sorted(found), stored
            differs = [a != b for a, b in zip(chosen, found, strict=False)]
            if len(chosen) != len(found):
                more = counted(len(chosen), "example")
                yield f"choice: {name} has {len(found)} examples, and {more} are chosen for it"
            elif any(differs):
                at = differs.index(True)
                where = f"choice: {found[at]} stands in {name}[{at}]"
                yield f"{where}, where {chosen[at]} is chosen"
            elif rows != stored:
                yield f"choice: the rows of {name} end elsewhere than the packs that fit best"

    def _figures(
        self, used: Sequence[Made], held: Sequence[Sequence[Made]], times: Mapping[int, int]
    ) -> Iterator[str]:
        """What the manifest says of examples that are left out, and of what each source has."""
        manifest, of = self.evidence.manifest, self.evidence.manifest.examples
        found: dict[str, tuple[object, object]] = {
            "examples": (of.made - of.rejected, len(self.made)),
            "filtered": (of.filtered, sum(self.evidence.filtered)),
            "left_out": (of.left_out, [*times.values()].count(0)),
        }
        for asked, one in zip(self.evidence.asked, manifest.sources, strict=False):
            own = [x for x in held[0] if x.source == asked.get("name", "")]
            sums = (len(own), sum(x.length for x in own), sum(x.trained for x in own))
            has = (one.has.examples, one.has.tokens, one.has.trained)
            found[f"source {one.name}: has"] = has, sums
        if (sides := manifest.sides) is not None:
            split = [x for x in used if times[x.number] and (x.group or sides.by != "files")]
            sizes = Counter(one.group for one in split)
            tested = {one.group for one in held[1] if times[one.number]} & {*sizes}
            largest = round(max(sizes.values(), default=0) / max(len(split), 1), 6)
            spread = sum(size**2 for size in sizes.values()) * sides.asked * (1 - sides.asked)
            near = abs(sides.deviation - spread**0.5 / max(len(split), 1)) < 1e-6  # rounded
            told = (sides.groups, sides.groups_in_test, sides.largest, near)
            found["sides"] = told, (len(sizes), len(tested), largest, True)
        # Rows are of one group where they ask the same, and of two where they do not.
        asks, by = self.evidence.questions, any(x.get("group_by") for x in self.evidence.asked)
        names = (re.sub(r"#\d+$", "", x.name) for x in self.made)
        groups = [x.asked if by else x.group for x in self.made]
        both = {pair for pair in zip(groups, map(asks.get, names), strict=True) if all(pair)}
        apart = [len({pair[at] for pair in both}) for at in (0, 1)]
        found["groups of questions"] = apart, [len(both), len(both)]
        # Of what evaluations, likeness or the test split leave out it is not said what it equals.
        others = [*map(self.options.get, ("near_dedup", "decontaminate"))]
        others += [one.get("test") for one in self.evidence.asked]
        if self.options.get("sources") and not any(others):
            doubles = {(one.source, one.kept_in): one.examples for one in manifest.doubles}
            found["doubles"] = doubles, dict(self.doubles)
        signed = [x.signature for x in used if times[x.number] and {*(x.signature or b"")} - {255}]
        found["unlike"] = len({*signed}), len(signed)
        for name, (said, counted_) in found.items():
            if said != counted_:
                yield f"{name}: {said} are said, and {counted_} are there"

    def _left(self) -> tuple[set[int], list[Made]]:
        """The numbers of those of the test side, and what no filter, evaluation or equal example
        leaves out."""
        evidence, made = self.evidence, _joined(self.made)
        gone: set[str] = set()
        for file in (CONTAMINATED, NEAR_DUPLICATES):
            if (evidence.build.here / file).is_file():
                gone |= {one["id"] for one in evidence.lines(file)}
        filtered = evidence.filtered or [False] * len(made)
        tests = {one["name"] for one in evidence.asked if one.get("test")}
        theirs = {one.group for one in made if one.source in tests} - {0}
        used = [
            one
            for one, out in zip(made, filtered, strict=True)
            if not out
            and (one.name not in gone)
            and (one.source in tests or one.group not in theirs)
        ]
        if self.options["dedup"]:
            stays: dict[bytes, int] = {}
            first = self.options.get("dedup_keep", "first") == "first"
            rows = () if first else evidence.rows.values()
            there = {name for own in rows for row in own for name in row}
            for one in sorted(used, key=lambda one: one.name not in there):
                stays.setdefault(one.digest, one.number)
            of, every = {one.number: one.source for one in used}, used
            used = [one for one in every if stays[one.digest] == one.number]
            again = [one for one in every if stays[one.digest] != one.number]
            self.doubles.update((one.source, of[stays[one.digest]]) for one in again)
        share, seed = int(self.options["test_size"] * _WORD), int(self.options["seed"])
        test = {
            one.number
            for one in used
            if one.source in tests or (share and mixed(one.group, seed) < share)
        }
        return test, used

    def _portions(self, used: Sequence[Made], test: set[int]) -> tuple[dict[int, int], list[float]]:
        """How often each is stored, and the trained tokens of sources whose share says how many."""
        asked, total = self.evidence.asked, self.options.get("total")
        seed, manifest = int(self.options["seed"]) ^ _SALT, self.evidence.manifest
        keys = {one.group: mixed(one.group, seed) for one in used}
        pools, limits = [], []
        for one in asked:
            own = [x for x in used if x.source == one.get("name", "") and x.number not in test]
            # Digests are two numbers, each with its least byte first.
            own.sort(key=lambda x: (keys[x.group], x.digest[7::-1], x.digest[:7:-1]))
            epochs = one.get("epochs")
            limit = _take(own, "rows", round((1.0 if epochs is None else epochs) * len(own), 6))
            amounts = [(unit, one[unit]) for unit in _UNITS if one.get(unit) is not None]
            limits.append(min([limit, *(_take(own, *amount) for amount in amounts)]))
            pools.append(own)
        rooms = [_given(*both) for both in zip(pools, limits, strict=True)]
        wanted = wanted_of(asked, rooms, total)
        times = {one.number: 0 for one in used}
        for n, own in enumerate(pools):
            taken = limits[n]
            if n in wanted:  # which is rounded, and so may differ by one
                taken = min(taken, _take(own, "trained_tokens", manifest.sources[n].amount))
            for at, mine in enumerate(own):
                times[mine.number] = taken[0] + (at < taken[1])
            # The test side is thinned by the same hash, and nothing of it is stored twice.
            last = _WORD if taken[0] or not own else -1
            if last < 0 < taken[1]:
                last = keys[own[taken[1] - 1].group]
            for mine in used:
                if mine.source == asked[n].get("name", "") and mine.number in test:
                    times[mine.number] = int(keys[mine.group] <= last)
        return times, [wanted[n] for n in sorted(wanted)]

    def _rows(self, order: Sequence[Made]) -> list[list[str]]:
        """The names of what each training row holds."""
        if self.evidence.manifest.layout not in (layouts.PACKED, layouts.INDEXED):
            return [[one.name] for one in order]
        within = self.options["pack_within"] == "part"
        parts: dict[int, list[int]] = {}
        for place, one in enumerate(order):
            parts.setdefault(one.part if within else 0, []).append(place)
        found = []
        for own in parts.values():
            lengths = [order[place].length for place in own]
            together = packs(lengths, self.evidence.manifest.max_length)
            found += [sorted(own[at] for at in pack) for pack in together]
        return [[order[place].name for place in pack] for pack in sorted(found)]


def _budget(source: Mapping[str, Any]) -> bool:
    return any(source.get(name) is not None for name in _BUDGET)


def _take(pool: Sequence[Made], unit: str, amount: float) -> _Taken:
    """What an amount of a unit holds."""
    sums = list(accumulate(getattr(one, _UNITS[unit]) for one in pool))
    if not sums or not sums[-1]:
        return 0, 0
    passes = int(amount // sums[-1])
    left = int(amount - passes * sums[-1])
    return passes, bisect_right(sums, left) if left else 0


def _given(pool: Sequence[Made], taken: _Taken) -> int:
    """Trained tokens of what is taken."""
    more = sum(one.trained for one in pool[: taken[1]])
    return taken[0] * sum(one.trained for one in pool) + more


def wanted_of(
    asked: Sequence[Mapping[str, Any]], rooms: Sequence[int], total: int | None
) -> dict[int, float]:
    """Trained tokens of each source with a share or a weight, by its number.

    Args:
        asked: of each source; ``rooms``: the most that it may give; ``total``: of all.
    """
    shares, weights = (
        {n: one[name] for n, one in enumerate(asked) if one.get(name) is not None}
        for name in ("share", "weight")
    )
    if total is not None and not shares and not weights:
        weights = {n: room for n, room in enumerate(rooms) if room}
    heavy, left = sum(weights.values()), 1 - sum(shares.values())
    whole, alone = float(total or 0), sum(rooms) - sum(rooms[n] for n in (*shares, *weights))
    if total is None:
        most = [rooms[n] / share for n, share in shares.items()]
        most += [(rooms[n] * heavy / weight + alone) / left for n, weight in weights.items()]
        whole = min(most, default=0.0) if weights or not alone else 0.0
        # What has neither is used whole, however much it is.
        whole = max(whole, alone / left) if alone else whole
    rest = max(0.0, whole * left - alone)
    by_weight = {n: rest * weight / heavy for n, weight in weights.items()}
    return {n: whole * share for n, share in shares.items()} | by_weight
