"""Faults put into our own code on purpose, one at a time: the build itself must not publish them.

Each mutant changes a few lines of the code that builds, and builds a small input on which the
change shows; both stand in ``mutants.toml``, and what several of them need stands here. It is
*caught* when the build's own checks end the build, without any test; the few that a build cannot
notice say why, and what notices instead. As a program it prints a table:

    python tests/mutants.py [parts of names, or of what the check says that catches them]
    python tests/mutants.py 1/5        one of five shares, each with builds of its own
"""

import functools
import gzip
import importlib
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
import pyarrow.parquet as pq
import shipped_judge
from support import table

import expectations
import pipeline.builder.build
import pipeline.run_build
import stages
from pipeline.builder import exporting
from pipeline.builds import publish
from pipeline.options.config import Config
from pipeline.shards import gather, part
from pipeline.shards import window_plan as windows
from stages import columns, kinds
from stages.chat_template import trained_spans as turns
from stages.columns import make_list, numbers
from stages.contract import Lines
from stages.normalize import outlines
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
    """A fault, as code, and the build on which it shows.

    Attributes:
        reason: why the build cannot notice, and what does; empty where it must.
        by: what the check that catches it says; for faults that only one check catches.
    """

    name: str
    build: str
    change: str
    reason: str = ""
    by: str = ""

    def apply(self) -> None:
        """Put it in; the modules that it names are imported first."""
        for path in re.findall(r"\b(?:stages|pipeline|expectations)(?:\.\w+)+", self.change):
            _import(path)
        exec(self.change, globals() | {"stages": stages, "expectations": expectations})


def _import(path: str) -> None:
    """Import the modules that a path of names begins with."""
    names = path.split(".")
    for count in range(2, len(names) + 1):
        try:
            importlib.import_module(".".join(names[:count]))
        except ModuleNotFoundError:
            return


MUTANTS = [
    Mutant(f"{told['name']} ({one})", one, *(told.get(k, "") for k in ("change", "reason", "by")))
    for told in TOLD["mutant"]
    for one in told["builds"]
]


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


# Normalize


def _own_texts(change: Callable[[list[str]], list[str]]) -> None:
    """Change the texts of rows that become columns by their outlines."""
    wrap(outlines, "_with_texts", lambda old, column, texts: old(column, change(texts)))


def wrap_pairs(change: Callable[[Any], Any]) -> None:
    """Change both sides and the margin of every pair before they become columns."""

    def filled(old: Any, kind: Any, ready: Any, asked: Any) -> Any:
        return old(kind, [row and change(row) for row in ready], asked)

    wrap(type(kinds.load(kinds.PAIR)), "filled", filled)


# Render and compile


def _answers(change: Callable[[int, int], tuple[int, int]]) -> None:
    after(turns.Spans, "_answer", lambda span: change(*span))


# Encode


_first_trained = encode._first_trained


def _column(batch: Any, name: str, change: Callable[[Any], Any]) -> Any:
    offsets, values = numbers(batch.column(name))
    return encode.columns.put(batch, name, make_list(offsets, pa.array(change(values))))


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


# The careful way alone: rows one by one, while rows of shapes come out right
_PROBED = 20  # segments; a probe has fewer


def _segments_changed(change: Callable[[Any], Any]) -> None:
    """Change what rows one by one are encoded to, but not what probes of the model ask."""
    after(
        encode.SegmentEncoder,
        "__call__",
        lambda found: change(found) if len(found.lengths) >= _PROBED else found,
    )


# The fast way alone: rows of shapes as columns, while rows one by one come out right


def _outline_changed(change: Callable[[Any], Any]) -> None:
    """Change what is known of an outline."""
    after(outline_tokens.OutlineEncoder, "_encoded", lambda found: found and change(found))


# Plan, gather and layouts


def _planned(change: Callable[[Any], Any]) -> None:
    """Change the sides of a plan."""
    after(windows, "sides_of", change)


def _ordered(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(sides: Any) -> Any:
        return [replace(sides[0], order=change(sides[0].order)), *sides[1:]]

    return changed


def _rolled(column: pa.Array) -> pa.Array:
    """Each row gets what is the next one's."""
    return column.take(pa.array(np.roll(np.arange(len(column)), -1)))


# Each fault of the read-back, by the check that alone notices it


def _a_context_token(folded: Any) -> None:
    """Another token where none is trained; neither a length nor a law on tokens shows it."""
    at = np.flatnonzero((folded[3:] >= 0) & (folded[3:] < 1000))[-1] + 3
    folded[at] = (folded[at] + 1) % 1000


def _rewritten(change: Callable[[Path, bytes], object]) -> None:
    """After a shard was read, write others of its bytes: as large, with rows that break no law."""

    def changed(old: Any, path: Path, *rest: Any, **more: Any) -> Any:
        measured = old(path, *rest, **more)
        data = bytearray(path.read_bytes())
        data[data.index(b"data.jsonl:1") + len("data.jsonl:")] ^= 1
        change(path, bytes(data))
        return measured

    wrap(gather, "measure", changed)


def _packs_changed(name: str, change: Callable[[list[int]], list[int]]) -> None:
    """Change a column of packs."""

    def changed(table: Any) -> Any:
        at = table.schema.get_field_index(name)
        rows = [change(row) for row in table.column(at).to_pylist()]
        return table.set_column(at, name, pa.array(rows, table.schema.field(at).type))

    after(packed, "pack", changed)


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


# Exports


def _listed(rows: pa.Table, name: str, change: Callable[[Any, Any], Any]) -> pa.Table:
    """Rows of a trainer with other numbers in a column of lists."""
    at, values = numbers(columns.whole(rows.column(name)))
    made = make_list(at, pa.array(change(at, values).astype(np.int32)))
    return rows.set_column(rows.schema.get_field_index(name), name, made)


def preload(tokenizers: Path) -> None:
    """Import, compile and load once what every fork needs, which is half of a small build. Nothing
    is encoded, so that forking is safe."""
    preloaded.load(tokenizers.parent)
    os.environ[shipped_judge.NAME] = "1"
    shipped_judge.install()


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


def share(told: str) -> list[Mutant]:
    """Those of every so many-th build, such as ``1/5``."""
    at, count = map(int, told.split("/"))
    names = sorted(BUILDS, key=lambda name: sum(m.build == name for m in MUTANTS))
    return [mutant for mutant in MUTANTS if mutant.build in names[at - 1 :: count]]


def main(words: list[str]) -> int:
    """Print the table; return 1 when a mutant is missed or a build without one is not published."""
    tokenizers = Path(tempfile.gettempdir()) / f"mutants-{os.getuid()}" / "tokenizers"
    preload(tokenizers)
    shutil.rmtree(tokenizers.parent / "built", ignore_errors=True)
    chosen = [m for m in MUTANTS if not words or any(word in (m.name + m.by) for word in words)]
    if "/" in "".join(words):
        chosen = share(*words)
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
