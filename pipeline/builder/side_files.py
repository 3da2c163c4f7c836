"""Judges what lies beside the shards: the tokenizer's files, the stop contract, the counts of the
manifest, the refused rows.

Files are read with ``json`` alone, ids are looked up in ``tokenizer.json``, and counts are added up
again from the shards and ``rejects.jsonl``, by code that writes none of these files.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from expectations.contract import EXAMPLE
from pipeline import tasks
from pipeline.builder.export_gate import policies
from pipeline.builds import stored
from pipeline.builds.build import Build
from pipeline.inputs.scan import Input
from pipeline.manifest import counts
from pipeline.manifest.manifest import MANIFEST, Manifest
from pipeline.manifest.records import REJECTS, REPORT, SERVING, TOKENIZER
from pipeline.shards.measured import OURS, Measured
from stages.errors import OwnLawError, counted
from stages.files import content
from stages.tokens import layouts

Problem: TypeAlias = tuple[str, str]  # the file, and what differs
SHOWN = 3  # differences that an error names
_FIRST = 1 << 26  # bytes of an input in which refused rows are looked up; of a file hashed again
_CHANCE, _MANY = 8, 5  # deviations that no split by chance reaches, where so many are expected
_NEIGHBOURS = 64  # that tell an order from one by chance
_SHARE = 0.001  # by which the share of a source may differ from the one that was asked for


@dataclass(frozen=True)
class Evidence:
    """What side files are judged by.

    Attributes:
        build: its folder and its manifest, which need not be written yet.
        shards: as they were measured; ``dataset``: what was counted of all of them.
        inputs: those that are files of JSON lines, by the names that row ids have.
    """

    build: Build
    shards: Sequence[Measured]
    dataset: Mapping[str, int]
    inputs: Mapping[str, Input] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        """What it says."""
        return self.build.manifest

    def text(self, name: str) -> str:
        """A file of the build."""
        return (self.build.here / name).read_text("utf-8")

    def read(self, name: str) -> Any:
        """A file of JSON."""
        return orjson.loads((self.build.here / name).read_bytes())

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token, by its text, in the tokenizer that will be loaded."""
        told = self.read(f"{TOKENIZER}/tokenizer.json")
        words = told["model"].get("vocab", {})
        found = dict(words) if isinstance(words, dict) else {w: i for i, (w, _) in enumerate(words)}
        return found | {one["content"]: one["id"] for one in told["added_tokens"]}

    def total(self, column: str) -> int:
        """The sum of a metric over all examples."""
        found = [one.tallies[EXAMPLE] for one in self.shards if EXAMPLE in one.tallies]
        return sum(one.sums.get(column, 0) for one in found)

    def counted(self, name: str, split: str | None = None) -> int:
        """The sum of a count of shards, of one split or of all."""
        return sum(s.counts.get(name, 0) for s in self.shards if split in (None, s.split))


def require(evidence: Evidence) -> None:
    """Require that all side files are what follows from the shards and from each other.

    Raises:
        OwnLawError: one is not.
    """
    found = [*problems(evidence), *_files(evidence)]
    if found:
        more = f"\n  and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        lines = "".join(f"\n  {name}: {what}" for name, what in found[:SHOWN])
        raise OwnLawError(f"Files beside the shards are not what they must be:{lines}{more}", OURS)


def problems(evidence: Evidence) -> list[Problem]:
    """All differences."""
    found = [*_tokenizer(evidence), *_serving(evidence)]
    if evidence.shards:
        found += [(MANIFEST, what) for what in _figures(evidence)]
    if evidence.manifest.export is None:
        found += _rejects(evidence)
    return found


def _unequal(name: str, said: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in wanted.items():
        if said.get(key) != value:
            yield name, f"{key} is {said.get(key)!r}, and must be {value!r}"


def _files(evidence: Evidence) -> Iterator[Problem]:
    """Files that are not as the manifest says; shards, and what is as large, are not read again."""
    folder, known = evidence.build.here, evidence.manifest.files

    def sha256(path: Path) -> str:
        large = path.suffix == ".arrow" or path.stat().st_size > _FIRST
        given = known[path.relative_to(folder).as_posix()]
        return given if large else hashlib.sha256(path.read_bytes()).hexdigest()

    for one in stored.differences(folder, known, sha256):
        yield one.name, one.detail


def _tokenizer(evidence: Evidence) -> Iterator[Problem]:
    model, config = evidence.manifest.model, evidence.read(f"{TOKENIZER}/tokenizer_config.json")
    data = (evidence.build.here / TOKENIZER / "tokenizer.json").read_bytes()
    template = hashlib.sha256(config["chat_template"].encode()).hexdigest()
    said = {"tokenizer_sha256": model.tokenizer_sha256, "chat_template_sha256": template}
    wanted = {"tokenizer_sha256": hashlib.sha256(data).hexdigest()}
    wanted["chat_template_sha256"] = model.chat_template_sha256
    yield from _unequal(f"{TOKENIZER}/", said, wanted)
    date = evidence.manifest.options.get("date") or model.date_string
    yield from _unequal(MANIFEST, {"date": date}, {"date": model.date_string})
    names = ("eos_token", "pad_token", "padding_side")
    yield from _unequal(
        f"{TOKENIZER}/tokenizer_config.json", config, {n: getattr(model, n) for n in names}
    )
    ends = ("end_of_turn", "end_of_call")
    tokens = ("eos_token", "pad_token", *ends, "step_token", "good_token", "bad_token")
    named = {text: getattr(model, f"{n}_id") for n in tokens if (text := getattr(model, n))}
    for text, token in {**named, **model.added_tokens}.items():
        if evidence.ids.get(text) != token:
            there = evidence.ids.get(text)
            yield MANIFEST, f"{text!r} has id {token}, and {there} in {TOKENIZER}/tokenizer.json"
    for token, flags in config["added_tokens_decoder"].items():
        if evidence.ids.get(flags["content"]) != int(token):
            yield f"{TOKENIZER}/tokenizer_config.json", f"{flags['content']!r} has another id"


def _serving(evidence: Evidence) -> Iterator[Problem]:
    """``serving.json`` and ``generation_config.json``, from the tokenizer that lies beside them."""
    manifest, said, ids = evidence.manifest, evidence.read(SERVING), evidence.ids
    model, config = manifest.model, evidence.read(f"{TOKENIZER}/tokenizer_config.json")
    own = {marker["text"] for marker in said["markers"]}
    texts = [s for s in said["stop_strings"] if s not in own or s in model.added_tokens]
    stops = {ids.get(text, -1) for text in texts}
    room = manifest.max_new_tokens
    longest = said["max_new_tokens"] and said["max_new_tokens"]["max"]
    wanted: dict[str, Any] = {"eos_token_id": ids.get(config["eos_token"])}
    wanted |= {"pad_token_id": ids.get(model.pad_token)}
    wanted |= {"end_of_turn": model.end_of_turn, "end_of_turn_id": ids.get(model.end_of_turn)}
    yield from _unequal(SERVING, said, wanted)
    if longest != (room and room.max):
        yield SERVING, f"max_new_tokens is {longest}, and {room and room.max} in the manifest"
    if model.pair is not None:  # an encoder generates nothing
        return
    trained = {model.end_of_turn, model.end_of_call or model.end_of_turn}
    if set(said["stop_token_ids"]) != stops or not trained <= set(said["stop_strings"]):
        yield SERVING, f"stop_token_ids are {said['stop_token_ids']}, and must be {sorted(stops)}"
    sampling = said["engines"]["vllm"]["SamplingParams"]
    alike = ("stop_token_ids", "include_stop_str_in_output")
    yield from _unequal(SERVING, sampling, {name: said[name] for name in alike})
    generation = evidence.read(f"{TOKENIZER}/generation_config.json")
    ends = [ids[s] for s in said["stop_strings"] if s not in own and s in ids]
    wanted = {"eos_token_id": ends, "pad_token_id": ids[model.pad_token]}
    # A stop marker may be a stop of the model, too; then it is in no list but this.
    there = {**generation, "eos_token_id": [i for i in generation["eos_token_id"] if i in ends]}
    yield from _unequal(f"{TOKENIZER}/generation_config.json", there, wanted)
    engine = said["engines"]["transformers"]["GenerationConfig"]
    yield from _unequal(SERVING, engine, generation)


def _figures(evidence: Evidence) -> Iterator[str]:
    """Numbers of the manifest that are not the sum of what the shards have."""
    manifest = evidence.manifest
    for what, said, found in (*counts.sums(manifest), *_of_shards(evidence)):
        if said != found:
            yield f"{what}: the manifest says {said}, and the sum is {found}"
    for one in manifest.inputs:
        if max((column.share for column in one.unread), default=0) > 1:
            yield f"{one.path}: a column is unread in more rows than were read"
    yield from _of_sources(manifest)
    yield from _of_sides(manifest)
    yield from _of_order(evidence)


def _of_shards(evidence: Evidence) -> Iterator[tuple[str, object, object]]:
    """Totals of the manifest against what was measured of the shards."""
    manifest, dataset = evidence.manifest, evidence.dataset
    kind, export = tasks.kind_of(manifest.task), manifest.export is not None
    for name, side in manifest.splits.items():
        yield f"tokens of {name}", side.tokens, evidence.counted("n_tokens", name)
        yield f"examples of {name}", side.examples, evidence.counted("n_examples", name)
    padding = evidence.counted("n_stored") - evidence.counted("n_tokens")
    yield "padding", manifest.tokens.padding, padding
    if kind.labelled and not manifest.packs:
        yield "trained tokens", manifest.tokens.trained, evidence.counted("n_trained")
    elif not manifest.packs and "trained_kept" in dataset:
        yield "trained tokens", manifest.tokens.trained, dataset["trained_kept"]
    if manifest.margins and not manifest.packs and not manifest.examples.copies:
        rated = evidence.total("has_margin")
        yield "pairs with a margin", manifest.margins.present, rated
        yield "pairs without", manifest.margins.absent, evidence.counted("n_examples") - rated
    if manifest.prm:
        soft = "soft" if any(one.soft_labels for one in evidence.shards) else "hard"
        yield "label_kind", manifest.prm.label_kind, soft
        unrated = evidence.total("n_step_labels") > evidence.total("n_labelled")
        yield "unlabelled", manifest.prm.unlabelled, unrated
    left_out = manifest.examples.made - manifest.examples.rejected - manifest.examples.kept
    if left_out == manifest.examples.duplicates and not manifest.packs and not export:
        again = dataset["duplicates_stored"] - manifest.examples.copies + left_out
        yield "duplicates_found", manifest.rows.duplicates_found, again
    # Of reasoning that is left out, and of other turns that are trained, no run is an answer.
    room = manifest.max_new_tokens
    if room and not export and all(o != "all" and k != "mask" for o, k in policies(manifest)):
        longest = max(one.counts["longest_answer"] for one in evidence.shards)
        found = (longest, evidence.counted("n_answers"))
        yield "max_new_tokens", (room.max, room.turns), found
        yield "max_new_tokens of 99.9 %", room.p999 <= room.max, True
    if manifest.packing and not manifest.packs:
        packs = sum(side.rows for side in manifest.splits.values())
        yield "packs", manifest.packing.packs, packs
        full = round(manifest.tokens.total / (packs * manifest.max_length), 6)
        yield "efficiency", manifest.packing.efficiency, full


def _of_sides(manifest: Manifest) -> Iterator[str]:
    """Test has the share that was counted, and as many groups as chance gives."""
    told = manifest.sides
    if told is None or told.by == "files" or manifest.packs:
        return
    examples = Counter({name: side.examples for name, side in manifest.splits.items()})
    share = examples["test"] / (examples.total() - manifest.examples.copies)
    if round(share, 6) != told.share:
        yield f"sides: test has a share of {share:.6f} of the examples, and not {told.share:g}"
    wanted, rest = told.groups * told.asked, told.groups * (1 - told.asked)
    chance = _CHANCE * (wanted * (1 - told.asked)) ** 0.5
    if min(wanted, rest) >= _MANY and abs(told.groups_in_test - wanted) > chance:
        yield f"sides: {told.groups_in_test} of {told.groups} groups are in test, not {wanted:.0f}"


def _of_order(evidence: Evidence) -> Iterator[str]:
    """Examples stand in the order of the inputs, or as chance puts them where they are shuffled.

    Packs go by lengths, too, copies by passes, and a layout of another package as it says.
    """
    manifest = evidence.manifest
    ordered = manifest.layout in layouts.MEMBERS and manifest.packing is None
    if not ordered or manifest.export is not None or manifest.examples.copies:
        return
    many, found = evidence.counted("n_neighbours"), evidence.counted("n_ascents")
    if not manifest.options["shuffle"] and found != many:
        yield f"shuffle: {counted(many - found, 'example')} stand before what was read earlier"
    chance = _CHANCE * (many / 12) ** 0.5 if many >= _NEIGHBOURS else many
    if manifest.options["shuffle"] and abs(found - many / 2) > chance:
        yield f"shuffle: {found} of {many} examples stand behind what was read earlier"


def _of_sources(manifest: Manifest) -> Iterator[str]:
    """A budget is not exceeded, what it gave is stored, and a share is that of the recipe."""
    given = {"rows": "examples", "tokens": "tokens", "trained_tokens": "trained"}
    total = manifest.options.get("total")
    wanted = sum(one.amount for one in manifest.sources if one.wanted_share is not None)
    for one in manifest.sources:
        if one.unit in given:
            there = getattr(one.splits["train"], given[one.unit])
            if one.given > one.amount or there != one.given:
                told = f"{one.given:g} {one.unit} are given and {there} stored"
                yield f"source {one.name}: {told}, and its budget is {one.amount:g}"
        share = one.asked.get("share")
        if share is None or one.wanted_share is None or not wanted:
            continue
        whole = share * total if isinstance(total, int) else one.amount
        if abs(one.wanted_share - share) > _SHARE + 1 / wanted or abs(one.amount - whole) > 1:
            told = f"its share is {one.wanted_share:g}, {one.amount:g} trained tokens"
            yield f"source {one.name}: {told}, and {share:g} of {total or 'all'} is asked"


def _rejects(evidence: Evidence) -> Iterator[Problem]:
    """``rejects.jsonl``: its codes are the manifest's, and its lines those of the inputs."""
    rows = evidence.manifest.rows
    first: dict[tuple[str, int], str] = {}
    entries = []
    with (evidence.build.here / REJECTS).open("rb") as lines:
        for line in lines:
            one = json.loads(line)
            first.setdefault((one["source"], one["line"]), one["code"])
            if not re.fullmatch(rf"{re.escape(one['source'])}:{one['line']}(#\d+)?", one["id"]):
                yield REJECTS, f"{one['id']} is not line {one['line']} of {one['source']}"
            if one["offset"] is not None and one["source"] in evidence.inputs:
                entries.append((one["source"], one["offset"], one["line"], one["raw"]))
    whole = Counter(first.values())
    if len(first) < rows.rejected or (not rows.used_in_part and len(first) != rows.rejected):
        yield REJECTS, f"it has {counted(len(first), 'row')}, and the manifest {rows.rejected}"
    for code, count in rows.rejected_by_code.items():
        if count > whole[code]:
            yield REJECTS, f"it has {whole[code]} rows with {code}, and the manifest {count}"
    yield from _lines(evidence, entries)
    page = evidence.build.here / REPORT
    told = re.search(r"<span>refused</span><b>([^<]*)</b>", page.read_text("utf-8"))
    if told is None or told[1].replace(",", "") != str(rows.rejected):
        yield REPORT, f"it does not say that {counted(rows.rejected, 'row')} are refused"


def _lines(evidence: Evidence, entries: list[tuple[str, int, int, str]]) -> Iterator[Problem]:
    """Refused rows that are not at their place, of files that are still those that were read."""
    for source, every in groupby(sorted(entries), itemgetter(0)):
        one = evidence.inputs[source]
        try:
            found = [*_displaced(Path(one.path), every)]
        except OSError:  # it is gone
            continue
        if found and all(map(content.is_there, one.splits)):
            yield from found


def _displaced(path: Path, entries: Iterable[tuple[str, int, int, str]]) -> Iterator[Problem]:
    """The same of one file."""
    here = before = 0
    with path.open("rb") as file:
        for source, offset, line, raw in entries:
            if offset > _FIRST:
                return
            file.seek(here)
            before += file.read(offset - here).count(b"\n")
            text = file.read(len(raw.encode()) + 4)
            here = offset
            if before + 1 != line:
                yield REJECTS, f"{source}:{line} is line {before + 1} of its file"
            elif raw.encode() not in text and text.isascii():
                yield REJECTS, f"{source}:{line} has another text in its file"
