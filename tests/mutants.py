"""Faults put into our own code on purpose, one at a time: the build itself must not publish them.

Each mutant changes a line or two of the code that builds, and builds a small input on which the
change shows; the builds, and those that are a statement or two, stand in ``mutants.toml``. It is
*caught* when the build's own checks end the build, without any test; the few that a build cannot
notice say why, and what notices instead. As a program it prints a table:

    python tests/mutants.py [parts of names, or of what the check says that catches them]
"""

import functools
import gzip
import importlib
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import preloaded
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from support import table

import expectations
import pipeline.builder.build
import pipeline.run_build
import stages
from pipeline.builder import exporting
from pipeline.builds import publish
from pipeline.options.config import Config
from pipeline.shards import chain, collect, equal, examples, gather, pack_index, part
from pipeline.shards import window_plan as windows
from stages import columns, kinds
from stages.chat_template import compile as compiling
from stages.chat_template import render_steps, segments, shapes
from stages.chat_template import trained_spans as turns
from stages.columns import IGNORED, list_parts, make_list, numbers
from stages.contract import Lines
from stages.files import file_hash
from stages.normalize import outlines
from stages.readers import jsonl
from stages.rows import carried
from stages.tokens import encode, outline_tokens, packed, segment_encoder


@dataclass(frozen=True)
class Build:
    """A small build: what it reads, in the container that the name asks for, and its options.

    Attributes:
        before: what a first build into the same folder reads.
        export: the trainer that it is exported for; ``relaid``: in which layout.
        then: options of a second build, of the same rows with the same cache.
    """

    task: str
    rows: list[dict[str, Any]]
    name: str
    options: dict[str, Any]
    before: list[dict[str, Any]]
    export: str = ""
    relaid: str = ""
    then: dict[str, Any] | None = None

    def run(self, folder: Path, tokenizers: Path) -> Path:
        """Build it; the output. What is exported is built once, without a fault."""
        if self.export:
            made = tokenizers.parent / "built" / f"{self.task}{hash(repr(self.options))}"
            if not made.exists():
                with tempfile.TemporaryDirectory() as fresh:
                    plain = replace(self, export="").run(Path(fresh), tokenizers)
                    shutil.copytree(plain, made)
            exporting.export_build(self.export, made, folder / "export", self.relaid)
            return folder / "export"
        data, cache = folder / self.name, folder / "cache"
        cache.mkdir()
        tokenizers.mkdir(parents=True, exist_ok=True)
        (cache / "tokenizers").symlink_to(tokenizers)
        fixed = {"output": folder / "out", "cache_dir": cache, "workers": 1}
        given = {"model": "qwen2-1.5b", "layout": "ragged", "max_reject": 0.5, **self.options}
        config = Config.of(task=self.task, data=(str(data),), **fixed, **given)
        for rows in filter(None, (self.before, self.rows)):
            lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
            if data.suffix == ".parquet":
                pq.write_table(pa.Table.from_pylist(rows), data, row_group_size=2)
            elif data.suffix == ".json":
                data.write_text(json.dumps(rows))
            else:
                data.write_bytes(gzip.compress(lines, mtime=0) if data.suffix == ".gz" else lines)
            pipeline.run_build.build(config, lambda *_: None)
        if self.then is not None:
            again = Config.of(task=self.task, data=(str(data),), **fixed, **{**given, **self.then})
            pipeline.run_build.build(again, lambda *_: None)
        return folder / "out"


TOLD = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
ROWS: dict[str, list[dict[str, Any]]] = {}
for told in table("mutant_rows.jsonl"):
    ROWS.setdefault(told["of"], []).append(told["row"])


def _built(told: dict[str, Any]) -> Build:
    rows = [row for name in told["rows"] for row in ROWS[name]]
    given = told.get("options", {})
    options = {k: tuple(v) if isinstance(v, list) else v or None for k, v in given.items()}
    name, before = told.get("name", "data.jsonl"), rows[: told.get("before", 0)]
    more = {key: told[key] for key in ("export", "relaid", "then") if key in told}
    return Build(told["task"], rows, name, options, before, **more)


BUILDS = {name: _built(told) for name, told in TOLD["build"].items()}


@dataclass(frozen=True)
class Mutant:
    """A fault, where it is put, and the build on which it shows.

    Attributes:
        reason: why the build cannot notice, and what does; empty where it must.
        by: what the check that catches it says; for faults that only one check catches.
    """

    name: str
    build: str
    apply: Callable[[], None]
    reason: str = ""
    by: str = ""


MUTANTS: list[Mutant] = []


def mutant(
    *builds: str, reason: str = "", by: str = ""
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a fault for some builds."""

    def register(apply: Callable[[], None]) -> Callable[[], None]:
        name = apply.__name__.replace("_", " ")
        MUTANTS.extend(Mutant(f"{name} ({one})", one, apply, reason, by) for one in builds)
        return apply

    return register


def _change(told: dict[str, Any]) -> Callable[[], None]:
    """A fault of ``mutants.toml``, whose modules are imported when it is put in."""

    def apply() -> None:
        for path in re.findall(r"\b(?:stages|pipeline|expectations)(?:\.\w+)+", told["change"]):
            _import(path)
        exec(told["change"], globals() | {"stages": stages, "expectations": expectations})

    apply.__name__ = told["name"].replace(" ", "_")
    return apply


def _import(path: str) -> None:
    """Import the modules that a path of names begins with."""
    names = path.split(".")
    for count in range(2, len(names) + 1):
        try:
            importlib.import_module(".".join(names[:count]))
        except ModuleNotFoundError:
            return


for told in TOLD["mutant"]:
    mutant(*told["builds"], reason=told.get("reason", ""), by=told.get("by", ""))(_change(told))


def wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Put ``change(old, *arguments)`` in the place of a function."""
    old = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: change(old, *args, **kwargs))


def after(owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Change what a function returns."""
    wrap(owner, name, lambda old, *args, **kwargs: change(old(*args, **kwargs)))


# Readers


def _batches(change: Callable[[list[Lines]], list[Lines]]) -> Callable[[Any], Any]:
    return lambda found: iter(change(list(found)))


def _shortened(batches: list[Lines], by: int) -> list[Lines]:
    last = batches[-1]
    return [*batches[:-1], Lines(last.records[:-1], last.lines - by)]


@mutant("sft")
def the_reader_loses_the_first_line() -> None:
    def change(found: list[Lines]) -> list[Lines]:
        records = [replace(r, line=r.line - 1) for r in found[0].records[1:]]
        return [Lines(records, found[0].lines - 1), *found[1:]]

    after(jsonl, "records", _batches(change))


# Normalize


@mutant("sft")
def a_system_turn_is_dropped() -> None:
    def change(old: Any, conversations: Any) -> Any:
        return old([[m for m in turns if m.role != "system"] for turns in conversations])

    wrap(carried, "turns_column", change)


@mutant("sft")
def contents_are_stripped() -> None:
    def change(old: Any, conversations: Any) -> Any:
        turns = [[replace(m, content=(m.content or "").strip()) for m in c] for c in conversations]
        return old(turns)

    wrap(carried, "turns_column", change)
    _own_texts(lambda texts: [text.strip() for text in texts])


def _own_texts(change: Callable[[list[str]], list[str]]) -> None:
    """Change the texts of rows that become columns by their outlines."""
    wrap(outlines, "_with_texts", lambda old, column, texts: old(column, change(texts)))


@mutant("flat")
def answers_move_to_the_next_question() -> None:
    def moved(texts: list[str]) -> list[str]:
        texts[1::2] = [*texts[3::2], texts[1]]
        return texts

    _own_texts(moved)


def wrap_pairs(change: Callable[[Any], Any]) -> None:
    """Change both sides and the margin of every pair before they become columns."""

    def filled(old: Any, kind: Any, ready: Any, asked: Any) -> Any:
        return old(kind, [row and change(row) for row in ready], asked)

    wrap(type(kinds.load(kinds.PAIR)), "filled", filled)


@mutant("rm-plain")
def answers_take_the_place_of_the_turns_before_them() -> None:
    _own_texts(lambda texts: [texts[at - at % 2 - 1] for at in range(len(texts))])


@mutant("sft")
def one_text_of_a_row_stands_in_all_its_places() -> None:
    wrap(outlines, "_fill", lambda old, said: lambda texts: [texts[0]] * len(said))


@mutant("prm")
def labels_move_to_the_next_step() -> None:
    def change(old: Any, *given: Any) -> Any:
        made = old(*given)
        return {**made, "step_labels": [[x[-1], *x[:-1]] for x in made["step_labels"]]}

    wrap(type(kinds.load(kinds.STEPS)), "filled", change)


@mutant("prm-text")
def a_problem_ends_behind_its_first_step() -> None:
    def change(old: Any, *given: Any) -> Any:
        made = old(*given)
        problems = [
            p + steps[0][:1] for p, steps in zip(made["problem"], made["steps"], strict=True)
        ]
        steps = [[own[0][1:], *own[1:]] for own in made["steps"]]
        return {**made, "problem": problems, "steps": steps}

    wrap(type(kinds.load(kinds.STEPS)), "filled", change)


# Render and compile


def _answers(change: Callable[[int, int], tuple[int, int]]) -> None:
    after(turns.Spans, "_answer", lambda span: change(*span))


@mutant("qwen3")
def control_text_is_not_hidden_when_a_row_is_rendered() -> None:
    def segments(self: Any, seen: Any, tools: Any) -> Any:
        _, text, spans = self._ways.located(list(seen), tools)
        return compiling.cut(text, spans, self._controls)

    compiling.Compiler.segments = segments


@mutant("sft")
def slots_change_places_in_a_program_that_nobody_proved() -> None:
    wrap(compiling.Compiler, "_holds", lambda old, *rest: True)

    def change(old: Any, self: Any, contents: Any) -> Any:
        return old(self, contents[::-1])

    def taken(old: Any, self: Any, shape: Any, slot: int) -> Any:
        turns_of = np.diff(self.offsets)[shape.rows[0]]
        return old(self, shape, int(turns_of) - 1 - slot)

    wrap(compiling.Program, "fill", change)
    wrap(shapes.Conversations, "_text", taken)


@mutant("prm")
def steps_are_joined_by_two_newlines() -> None:
    def change(found: Any) -> Any:
        texts, kinds, path = found
        steps = [i for i, kind in enumerate(kinds) if kind & segments.STEP][1:]
        return [f"\n{t}" if i in steps else t for i, t in enumerate(texts)], kinds, path

    def wider(found: Any) -> Any:
        offsets, flat = list_parts(found)
        return make_list(offsets, pc.replace_substring_regex(flat, r"\A\n", "\n\n"))

    after(render_steps.RenderSteps, "_chat", change)
    after(render_steps.RenderSteps, "_texts", wider)


# Encode


def _folded(change: Callable[[Any, Any], Any]) -> None:
    """Change the ids of rows of outlines, trained bit included; gets their offsets too."""

    def changed(found: Any) -> Any:
        return replace(found, folded=change(found.folded, found.offsets))

    after(outline_tokens.OutlineEncoder, "__call__", changed)


@mutant("sft", "packed")
def labels_are_shifted_by_one() -> None:
    def shifted(folded: Any, offsets: Any) -> Any:
        ids, trained = folded ^ (folded >> 31), np.roll(folded < 0, 1)
        return np.where(trained, ~ids, ids)

    _folded(shifted)


@mutant("sft", "rm")
def template_and_own_texts_change_places() -> None:
    def moved(old: Any, self: Any, spelled: str) -> Any:
        found = old(self, spelled)
        return found and replace(found, fixed=(*found.fixed[1:], found.fixed[0]))

    wrap(outline_tokens.OutlineEncoder, "_of", moved)


def _turned(lists: Any) -> Any:
    """The same texts, each in the place of the one before it."""
    offsets, flat = list_parts(lists)
    return make_list(offsets, flat.take(pa.array(np.roll(np.arange(len(flat)), -1))))


@mutant("sft", "rm", "prm")
def every_row_loses_its_last_token() -> None:
    def change(found: Any) -> Any:
        keep = np.ones(len(found.ids), bool)
        keep[found.offsets[1:] - 1] = False
        found.ids, found.kinds = found.ids[keep], found.kinds[keep]
        found.offsets = found.offsets - np.arange(len(found.offsets))
        return found

    def cut(found: Any) -> Any:
        kept = np.delete(found.folded, found.offsets[1:] - 1)
        return replace(found, folded=kept, offsets=found.offsets - np.arange(len(found.offsets)))

    after(encode.SegmentEncoder, "__call__", change)
    after(outline_tokens.OutlineEncoder, "__call__", cut)


def _forging(old: Any, self: Any, *texts: Any) -> Any:
    class Whole:
        encode = staticmethod(self._encoder.encode_whole)

    keep, self._encoder = self._encoder, Whole
    try:
        return old(self, *texts)
    finally:
        self._encoder = keep


@mutant("rm-qwen3")
def the_prompt_length_is_the_longer_one() -> None:
    class Numpy:
        def __getattr__(self, name: str) -> Any:
            return np.maximum if name == "minimum" else getattr(np, name)

    def change(old: Any, self: Any, batch: Any) -> Any:
        first, encode.np = encode.np, Numpy()
        lowest, encode._first_trained = encode._first_trained, _first_trained
        try:
            return old(self, batch)
        finally:
            encode.np, encode._first_trained = first, lowest

    wrap(encode.EncodePair, "__call__", change)


_first_trained = encode._first_trained


def _column(batch: Any, name: str, change: Callable[[Any], Any]) -> Any:
    offsets, values = numbers(batch.column(name))
    return encode.columns.put(batch, name, make_list(offsets, pa.array(change(values))))


@mutant("prm", "prm-packed")
def good_and_bad_change_places() -> None:
    def change(old: Any, self: Any, batch: Any) -> Any:
        model = self.model
        self.model = replace(model, good_id=model.bad_id, bad_id=model.good_id)
        return old(self, batch)

    wrap(encode.EncodeSteps, "__call__", change)


@mutant("prm")
def a_half_is_bad() -> None:
    def change(old: Any, self: Any, batch: Any) -> Any:
        made, model = old(self, batch), self.model
        at = numbers(made.column("step_positions"))
        starts = numbers(made.column("input_ids"))[0][:-1]
        places = at[1] + np.repeat(starts, np.diff(at[0]))
        rated = made.column("step_labels").flatten().to_numpy(zero_copy_only=False)

        def lower(labels: Any) -> Any:
            labels = labels.copy()
            labels[places[rated == 0.5]] = model.bad_id
            return labels

        return _column(made, "labels", lower)

    wrap(encode.EncodeSteps, "__call__", change)


@mutant("trimmed")
def a_turn_is_cut_in_its_middle() -> None:
    def keep(policy: Any, kinds: Any, lengths: Any, offsets: Any, limit: int) -> Any:
        kept = np.ones(len(kinds), bool)
        for a, b in itertools.pairwise(offsets):
            kept[a:b] = np.cumsum(lengths[a:b]) <= limit
        return kept

    segment_encoder.trimmed = keep


# Mark


def _marked(order: Callable[[list[int]], list[int]]) -> None:
    """Change the pieces of rows of steps, after markers were put between them: of segments and of
    outlines. Gets the kinds of a row's pieces, and gives the places of those that it has then."""
    from stages.chat_template import segments as outlines
    from stages.tokens import folded_labels

    def of_rows(batch: Any) -> Any:
        if "segments" not in batch.schema.names:
            return batch
        column = batch.column("segments")
        rows = [[row[i] for i in order([s["kind"] for s in row])] for row in column.to_pylist()]
        return folded_labels.columns.put(batch, "segments", pa.array(rows, column.type))

    def of_outlines(batch: Any) -> Any:
        column = batch.column("outline")
        rows = [outlines.parsed(text) for text in column.dictionary.to_pylist()]
        texts = [outlines.spelled([row[i] for i in order([k for _, k in row])]) for row in rows]
        made = pa.DictionaryArray.from_arrays(column.indices, pa.array(texts, pa.string()))
        return folded_labels.columns.put(batch, "outline", made)

    after(folded_labels.Mark, "__call__", of_rows)
    after(folded_labels.Mark, "_outlines", of_outlines)


@mutant("prm", "prm-text", "prm-raw")
def markers_stand_before_their_steps() -> None:
    def swapped(kinds: list[int]) -> list[int]:
        places = list(range(len(kinds)))
        for i in range(len(kinds) - 1, 0, -1):
            if kinds[places[i]] & segments.MARKER:
                places[i - 1], places[i] = places[i], places[i - 1]
        return places

    _marked(swapped)


@mutant("prm", "prm-text", "prm-raw")
def the_last_step_has_no_marker() -> None:
    def without(kinds: list[int]) -> list[int]:
        markers = [i for i, kind in enumerate(kinds) if kind & segments.MARKER]
        return [i for i in range(len(kinds)) if i not in markers[-1:]]

    _marked(without)


# The careful way alone: rows one by one, while rows of shapes come out right
_PROBED = 20  # segments; a probe has fewer


@mutant("mask", "weights", "prm-raw")
def texts_of_segments_get_the_ids_of_their_neighbours() -> None:
    def turned(pieces: Any) -> Any:
        if len(pieces) < _PROBED:
            return pieces
        kept = np.arange(len(pieces))
        kept[1:-1] = np.roll(kept[1:-1], 1)
        return pieces.take(pa.array(kept))

    after(segment_encoder.SegmentEncoder, "_pieces", turned)


def _segments_changed(change: Callable[[Any], Any]) -> None:
    """Change what rows one by one are encoded to, but not what probes of the model ask."""
    after(
        encode.SegmentEncoder,
        "__call__",
        lambda found: change(found) if len(found.lengths) >= _PROBED else found,
    )


@mutant("mask", "weights")
def what_is_trained_of_segments_is_shifted() -> None:
    def change(found: Any) -> Any:
        found.kinds = np.roll(found.kinds, 1)
        return found

    _segments_changed(change)


@mutant("mask", "weights", "prm-raw")
def rows_of_segments_end_one_token_late() -> None:
    def change(found: Any) -> Any:
        found.offsets = found.offsets.copy()
        found.offsets[1:-1] += 1
        return found

    _segments_changed(change)


# The fast way alone: rows of shapes as columns, while rows one by one come out right


def _outline_changed(change: Callable[[Any], Any]) -> None:
    """Change what is known of an outline."""
    after(outline_tokens.OutlineEncoder, "_encoded", lambda found: found and change(found))


def _last_but_one(runs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same, but for one id in the middle of the template's own."""
    run = runs[1].copy()
    run[len(run) // 2] ^= 1
    return (runs[0], run, *runs[2:])


@mutant("sft", "flat", "rm")
def rows_of_outlines_end_one_token_late() -> None:
    def late(found: Any) -> Any:
        offsets = found.offsets.copy()
        offsets[1:-1] += 1
        return replace(found, offsets=offsets)

    after(outline_tokens.OutlineEncoder, "__call__", late)


@mutant("shapes")
def an_outline_is_encoded_as_the_one_before() -> None:
    kept: list[Any] = []

    def stale(found: Any) -> Any:
        kept.append(found)
        return kept[0]

    after(outline_tokens.OutlineEncoder, "_of", stale)


@mutant("sft", "rm")
def a_printed_text_is_found_under_a_stale_entry() -> None:
    def stale(old: Any, self: Any, text: str) -> Any:
        old(self, text)
        return next(iter(self._printed.values()))

    wrap(outline_tokens.OutlineEncoder, "_ids", stale)


@mutant("flat")
def texts_are_looked_up_in_the_dictionary_of_the_batch_before() -> None:
    jsonl.BATCH_ROWS = 10
    kept: list[Any] = []

    def stale(found: Any) -> Any:
        kept.append(found)
        return kept[max(len(kept) - 2, 0)]

    after(outline_tokens.OutlineEncoder, "_own", stale)


# Parts


@mutant("flat")
def batches_change_places_in_a_part() -> None:
    jsonl.BATCH_ROWS = 16
    stored: list[Any] = []

    def change(old: Any, recipe: Any, batch: Any) -> Any:
        stored.append(old(recipe, batch))
        return stored[0] if len(stored) == 2 else stored[-1]

    wrap(part, "_stored", change)


@mutant("sft")
def folding_loses_a_label() -> None:
    def change(folded: Any) -> Any:
        folded = folded.copy()
        folded[np.flatnonzero(folded < 0)[:1]] ^= -1
        return folded

    after(encode, "_first_untrained", change)


@mutant("refused")
def a_row_is_refused_without_cause() -> None:
    def change(batch: Any) -> Any:
        batch, gone = batch
        return batch.slice(0, batch.num_rows - 1), gone

    after(chain, "split_off", change)


# Plan, gather and layouts


def _planned(change: Callable[[Any], Any]) -> None:
    """Change the sides of a plan."""
    after(windows, "sides_of", change)


def _ordered(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(sides: Any) -> Any:
        return [replace(sides[0], order=change(sides[0].order)), *sides[1:]]

    return changed


@mutant("flat")
def the_plan_loses_the_last_example() -> None:
    def change(sides: Any) -> Any:
        side = sides[0]
        sizes = side.sizes[:-1]
        shards = np.minimum(side.shards, len(sizes))
        return [replace(side, order=side.order[:-1], sizes=sizes, shards=shards)]

    _planned(change)


@mutant("flat")
def the_plan_forgets_what_it_keeps() -> None:
    """Another choice is counted than the one that is stored."""

    def changed(old: Any, laying: Any, window: Any, every: Any, choice: Any) -> Any:
        fate = np.append(choice.fate[:-1], [examples.Fate.DUPLICATE])
        return old(laying, window, every, replace(choice, fate=fate))

    wrap(windows, "count", changed)


def _rolled(column: pa.Array) -> pa.Array:
    """Each row gets what is the next one's."""
    return column.take(pa.array(np.roll(np.arange(len(column)), -1)))


# Each fault of the read-back, by the check that alone notices it


def _lists_changed(name: str, change: Callable[[Any], Any]) -> None:
    """Change the numbers of a column of every block that is fetched for a shard."""

    def changed(old: Any, self: Any, picked: Any, column: str) -> Any:
        fetch = old(self, picked, column)
        if column != name:
            return fetch

        def block(first: int, last: int) -> pa.Array:
            at, values = numbers(fetch(first, last))
            values = values.copy()
            change(values)
            return make_list(at, pa.array(values))

        return block

    wrap(collect.Collector, "blocks", changed)


def _a_context_token(folded: Any) -> None:
    """Another token where none is trained; neither a length nor a law on tokens shows it."""
    at = np.flatnonzero((folded[3:] >= 0) & (folded[3:] < 1000))[-1] + 3
    folded[at] = (folded[at] + 1) % 1000


@mutant("flat", "packed", by="examples_as_encoded: 1 of")
def a_part_is_written_with_another_token() -> None:
    """So that shard and part agree: only the digest, which is older than the part, differs."""

    def another(folded: Any) -> Any:
        _a_context_token(folded := folded.copy())
        return folded

    after(part, "_stored", lambda batch: _column(batch, "folded", another))


@mutant("flat", by="examples_as_encoded")
def unfolding_gives_the_labels_of_the_neighbour() -> None:
    def change(table: Any) -> Any:
        at = table.schema.get_field_index("labels")
        return table.set_column(at, "labels", _rolled(columns.whole(table.column(at))))

    after(gather.folded_labels, "unfold", change)


@mutant("dedup")
def a_duplicate_is_stored_though_it_is_declared_left_out() -> None:
    def change(old: Any, options: Any, every: Any, choice: Any, width: int) -> Any:
        side = old(options, every, choice, width)[0]
        gone = np.flatnonzero(choice.fate == examples.Fate.DUPLICATE)
        order = np.concatenate([side.order, gone[:1]])
        sizes = np.append(side.sizes, 1)
        shards = np.append(side.shards[:-1], len(sizes))
        return [replace(side, order=order, sizes=sizes, shards=shards)]

    wrap(windows, "sides_of", change)


@mutant("twice", by="duplicates_as_declared")
def the_plan_finds_no_duplicates() -> None:
    after(equal, "find", lambda found: replace(found, found=0, equal=0))


@mutant("index", by="packs_as_planned")
def two_examples_of_a_pack_change_places_in_the_index() -> None:
    def change(old: Any, folder: Path, split: str, pieces: Any, lengths: Any) -> Any:
        (order, sizes), *rest = pieces
        turned = np.concatenate([order[1::-1], order[2:]])
        return old(folder, split, [(turned, sizes), *rest], lengths)

    wrap(pack_index, "write", change)


def _rewritten(change: Callable[[Path, bytes], object]) -> None:
    """After a shard was read, write others of its bytes: as large, with rows that break no law."""

    def changed(old: Any, path: Path, *rest: Any, **more: Any) -> Any:
        measured = old(path, *rest, **more)
        data = bytearray(path.read_bytes())
        data[data.index(b"data.jsonl:1") + len("data.jsonl:")] ^= 1
        change(path, bytes(data))
        return measured

    wrap(gather, "measure", changed)


@mutant("flat", by="hashes_match")
def another_file_takes_the_place_of_a_shard() -> None:
    def change(path: Path, data: bytes) -> None:
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").replace(path)

    _rewritten(change)


@mutant("flat", by="hashes_match")
def a_shard_is_overwritten_within_a_tick_of_the_clock() -> None:
    """So that the file system says the same of it before and after."""
    file_hash._TICK = file_hash.COARSE = 1 << 62  # whatever this machine's speed
    known: dict[Path, Any] = {}
    wrap(file_hash, "of", lambda old, path: known.setdefault(path, old(path)))
    _rewritten(Path.write_bytes)


@mutant("flat", by="shards_open")
def the_end_of_a_shard_is_lost() -> None:
    def change(old: Any, path: Path, *rest: Any, **more: Any) -> Any:
        tokens = old(path, *rest, **more)
        path.write_bytes(path.read_bytes()[:-512])
        return tokens

    wrap(gather, "write", change)


def _packs_changed(name: str, change: Callable[[list[int]], list[int]]) -> None:
    """Change a column of packs."""

    def changed(table: Any) -> Any:
        at = table.schema.get_field_index(name)
        rows = [change(row) for row in table.column(at).to_pylist()]
        return table.set_column(at, name, pa.array(rows, table.schema.field(at).type))

    after(packed, "pack", changed)


@mutant("packed", "prm-packed", by="examples_whole")
def a_pack_shifts_its_boundaries() -> None:
    _packs_changed("seq_lengths", lambda x: [x[0] + 1, *x[1:-1], x[-1] - 1])


@mutant("packed", by="labels_equal_ids")
def a_pack_joins_ids_without_labels() -> None:
    _packs_changed("labels", lambda x: [*x[1:], IGNORED])


# Faults that no reading of the raw rows sees: behind the sample that is read twice


def _behind(change: Callable[[Any], Any]) -> None:
    """Change examples after they were read a second time; their digest follows."""

    def changed(batch: Any) -> Any:
        batch = change(batch)
        names = [n for n in ("folded", "chosen_ids", "rejected_ids") if n in batch.schema.names]
        digest = segment_encoder.digests(*(numbers(batch.column(name)) for name in names))
        return columns.put(batch, "digest", digest)

    after(part, "_stored", changed)


def _runs(folded: Any) -> Any:
    """Where trained runs begin in ids whose trained ones are inverted."""
    return np.flatnonzero((folded < 0) & ~np.append(False, folded[:-1] < 0))


def _inverted(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(folded: Any) -> Any:
        folded = folded.copy()
        folded[find(folded)] ^= -1
        return folded

    return lambda batch: columns.put_all(
        changed := _column(batch, "folded", change), trained=_counted(changed)
    )


def _counted(batch: Any) -> Any:
    offsets, folded = numbers(batch.column("folded"))
    return np.add.reduceat(folded < 0, offsets[:-1]).astype(np.int32)


@mutant("sft", "packed", by="answers_follow_prompts")
def the_first_token_of_every_answer_is_not_trained() -> None:
    _behind(_inverted(_runs))


@mutant("flat", "padded", by="answers_follow_prompts")
def the_last_token_of_every_prompt_is_trained() -> None:
    _behind(_inverted(lambda folded: _runs(folded) - 1))


@mutant("rm", "rm-plain", "rm-padded", by="prompts_whole")
def the_prompt_of_a_pair_is_a_token_shorter() -> None:
    _behind(
        lambda batch: columns.put_all(
            batch, prompt_length=batch.column("prompt_length").to_numpy() - 1
        )
    )


@mutant("rm-common", by="prompt_length is")
def the_prompt_of_a_pair_ends_at_its_first_answer() -> None:
    """Where a prompt might end, too: with what the template prints before an answer."""

    def change(batch: Any) -> Any:
        lengths = [ids.index(77091) + 2 for ids in batch.column("chosen_ids").to_pylist()]
        return columns.put_all(batch, prompt_length=np.array(lengths, np.int32))

    _behind(change)


@mutant("rm", by="opened_turns_closed")
def the_rejected_answer_loses_its_end() -> None:
    """All of it but its first token, as where a limit cuts."""

    def change(batch: Any) -> Any:
        prompts = batch.column("prompt_length").to_pylist()
        rows = zip(batch.column("rejected_ids").to_pylist(), prompts, strict=True)
        cut = pa.array([ids[: n + 1] for ids, n in rows], columns.IDS)
        return columns.put(batch, "rejected_ids", cut)

    _behind(change)


# Exports


def _listed(rows: pa.Table, name: str, change: Callable[[Any, Any], Any]) -> pa.Table:
    """Rows of a trainer with other numbers in a column of lists."""
    at, values = numbers(columns.whole(rows.column(name)))
    made = make_list(at, pa.array(change(at, values).astype(np.int32)))
    return rows.set_column(rows.schema.get_field_index(name), name, made)


def _rolled_list(found: pa.ListArray) -> pa.ListArray:
    at, values = numbers(found)
    return make_list(at, pa.array(np.roll(values, 1)))


def _script_inverse(labels: pa.ListArray, ids: pa.ListArray) -> pa.ListArray:
    """Labels where there were none, and none where there were some."""
    at, values = numbers(labels)
    return make_list(at, pa.array(np.where(values == IGNORED, numbers(ids)[1], IGNORED)))


# Manifest and publication


def preload(tokenizers: Path) -> None:
    """Import, compile and load once what every fork needs, which is half of a small build. Nothing
    is encoded, so that forking is safe."""
    preloaded.load(tokenizers.parent)


def outcome(found: Mutant | None, build: Build, tokenizers: Path) -> str:
    """What became of a build, with a fault in it or none: in a fork, so that nothing stays."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.write(writer, _tried(found, build, tokenizers).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return said or "died"


def _tried(found: Mutant | None, build: Build, tokenizers: Path) -> str:
    folder = Path(tempfile.mkdtemp())
    try:
        if found is not None:
            found.apply()
    except Exception as error:
        return f"BROKEN: it cannot be put in: {type(error).__name__}: {error}"
    try:
        out = build.run(folder, tokenizers)
        return "published" if (out / publish.MANIFEST).exists() else "nothing published"
    except BaseException as error:  # whatever ends it ends it
        return " ".join(f"{type(error).__name__}: {error}".split())[:400]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def verdict(found: Mutant, said: str) -> str:
    """``caught``, ``reason``, ``MISSED``, or ``BROKEN`` where the mutant itself does not run."""
    if said.startswith(("BROKEN", "AttributeError", "NameError", "TypeError")):
        return "BROKEN"
    if said != "published":
        return "caught" if found.by in said else "MISSED"
    return "reason" if found.reason else "MISSED"


def main(words: list[str]) -> int:
    """Print the table; return 1 when a mutant is missed or a build without one is not published."""
    tokenizers = Path(tempfile.gettempdir()) / f"mutants-{os.getuid()}" / "tokenizers"
    preload(tokenizers)
    shutil.rmtree(tokenizers.parent / "built", ignore_errors=True)
    chosen = [m for m in MUTANTS if not words or any(word in (m.name + m.by) for word in words)]
    bad = 0
    tell = functools.partial(print, flush=True)
    for name in dict.fromkeys(m.build for m in chosen):
        said = outcome(None, BUILDS[name], tokenizers)
        bad += said != "published"
        tell(f"{'ok' if said == 'published' else 'BROKEN':8}  the build {name} as it is  {said}")
    for one in chosen:
        said = outcome(one, BUILDS[one.build], tokenizers)
        found = verdict(one, said)
        bad += found in ("MISSED", "BROKEN")
        why = one.reason if found == "reason" else said
        tell(f"{found:8}  {one.name}\n          {why[:200]}")
    tell(f"{len(chosen)} mutants, {bad} missed or broken")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
