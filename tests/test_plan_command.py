"""``pipeline plan``: what it says is what a build then does."""

import json
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from click.testing import CliRunner
from datasets import load_from_disk
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, planned_examples, read_manifest
from transformers import AutoTokenizer

from pipeline.builder import plan_page, population
from pipeline.builder.forecast import Forecast, forecast
from pipeline.options.build_options import PlanOptions
from pipeline.options.config import Config
from pipeline.shards import doubles
from pipeline.shards import plan as planning
from pipeline.shards.choose import choose
from pipeline.shards.examples import PlannedExamples
from posttrain_pipeline.commands import cli
from stages.columns import Ints

MODEL = "qwen2-1.5b"


def planned(cache: Path, task: str, *data: Path, model: str = MODEL, **options: Any) -> Forecast:
    """A forecast, in this process."""
    return forecast(
        Config.of(task, tuple(map(str, data)), model, Path("out"), cache_dir=cache, **options)
    )


def invoked(*arguments: object) -> str:
    """What a command prints, in this process."""
    return CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False).stdout


def test_the_first_rows_are_those_of_the_build(built, cache_dir):
    """Texts and what is trained, piece by piece, equal the shards'. On a terminal, trained text is
    green and context is dim."""
    data = SAMPLES / "sft" / "chat.jsonl"
    found = planned(cache_dir, "sft", data)
    said, text = plan_page.as_json(found), plan_page.as_text(found)
    told = f"template  {said['model']['template']}"
    assert told in " ".join(text.split()).replace("template ", "template  ")
    assert "\x1b[32m" in text
    assert "\x1b[90m" in text
    folder = built("sft", data, "--layout", "ragged")
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    rows = {row["row_id"]: row for row in load_from_disk(str(folder))["train"]}
    assert len(said["first_rows"]) == 3
    for row in said["first_rows"]:
        stored = rows[row["id"]]
        pieces = row["sequences"][""]
        assert "".join(text for _, text in pieces) == tokenizer.decode(stored["input_ids"])
        trained = tokenizer.decode([i for i in stored["labels"] if i != -100])
        assert "".join(text for kind, text in pieces if kind == "trained") == trained
    manifest = read_manifest(folder)
    rejects = said["rejects"]
    assert rejects["sampled"] == manifest["rows"]["in"]
    counts = {code: entry["rows"] for code, entry in rejects["by_code"].items()}
    assert counts == manifest["rows"]["rejected_by_code"]
    assert said["lengths"]["examples"] == manifest["examples"]["kept"]
    tokens = manifest["tokens"]
    assert said["lengths"]["trained_share"] == round(tokens["trained"] / tokens["total"], 4)
    assert said["rows"] == manifest["rows"]["in"]


def test_markers_are_shown_with_their_ratings(cache_dir):
    """A PRM row: each marker is a piece of its own, and says how its step was rated."""
    said = plan_page.as_json(planned(cache_dir, "prm", SAMPLES / "prm" / "math_shepherd.jsonl"))
    first = said["first_rows"][0]["sequences"][""]
    assert [text for kind, text in first if kind == "marker"][:3] == ["<|step|> good"] * 3
    assert {"step", "good", "bad"} <= said["model"]["tokens"].keys()


def test_pairs_show_both_sides(cache_dir):
    """An RM row: two sequences with one context; nothing is packed."""
    said = plan_page.as_json(planned(cache_dir, "rm", SAMPLES / "rm" / "pairs.jsonl"))
    sides = said["first_rows"][0]["sequences"]
    assert sides.keys() == {"chosen", "rejected"}
    assert sides["chosen"][0] == sides["rejected"][0]
    assert sides["chosen"][1] != sides["rejected"][1]
    assert {entry["packs"] for entry in said["packing"]} == {None}


def test_the_packing_table_is_the_builds(built, cache_dir):
    """Of a file that is sampled whole, packs and fill are exactly what a build gives."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    table = population.packing_table(planned(cache_dir, "sft", data, max_length=256))
    assert [entry["max_length"] for entry in table] == [256, *population.MAX_LENGTHS]
    manifest = read_manifest(built("sft", data, "--max-length", 256))
    assert table[0]["packs"] == manifest["packing"]["packs"]
    assert table[0]["efficiency"] == manifest["packing"]["efficiency"]
    rows = manifest["rows"]
    assert table[0]["too_long"] == rows["rejected_by_code"].get("too_long", 0) / rows["in"]


def test_a_large_file_is_looked_at_in_three_places(tmp_path, cache_dir):
    """Refused rows of the tail are foreseen, and rows are counted closely."""
    row, bad = '{"question": "%d %s", "answer": "a"}\n', '{"question": %d, "question": 1}\n'
    count = 30_000
    lines = [row % (i, "x" * 200) for i in range(count - 100)] + [bad % i for i in range(100)]
    path = tmp_path / "large.jsonl"
    path.write_text("".join(lines))
    found = planned(cache_dir, "sft", path)
    (look,) = found.looks
    assert look.glimpse.where == "head, middle and tail"
    assert not look.glimpse.exact
    assert abs(look.glimpse.rows - count) < count * 0.02
    assert found.sampled.ledger.rows_by_code == {"duplicate_key": 100}
    for record in look.glimpse.records:
        text = path.read_bytes()[record.offset or 0 :][: len(record.raw)]
        assert text == record.raw
    for name in found.sampled.ledger.rows.first["duplicate_key"]:
        assert name.startswith("large.jsonl at byte ")


def test_only_a_little_of_a_file_is_read(tmp_path, cache_dir):
    """What lies between the places is not looked at: a gigabyte is not a long wait."""
    row = b'{"question": "q", "answer": "%s"}\n' % (b"a" * 300)
    path = tmp_path / "sparse.jsonl"
    with path.open("wb") as file:
        for place in (0, 1 << 29, (1 << 30) - (2 << 20)):
            file.seek(place)
            file.write(b"\n" + row * 6000)
        size = file.tell()
    found = planned(cache_dir, "sft", path)  # the holes are zeros; reading them would refuse rows
    assert found.looks[0].bytes == size
    assert not found.sampled.ledger.rows_by_code


def test_plan_as_json_and_dry_run_agree(cache_dir):
    """--json holds what the page says; ``run --dry-run`` says the same."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    options = ("--model", MODEL, "--cache-dir", cache_dir, "--json")
    said = json.loads(invoked("plan", data, *options))
    assert said["inputs"][0]["format"] == "query_response"
    assert [entry["max_length"] for entry in said["packing"]] == list(population.MAX_LENGTHS)
    assert json.loads(invoked("run", "sft", data, *options, "--dry-run")) == said


# The plan sees numbers: packs within parts, and the memory that all take.

Parts: TypeAlias = tuple[list[int], list[int]]


def numbers_planned(
    counts: list[int], lengths: list[int], grouped: bool = False
) -> PlannedExamples:
    """Examples of parts with so many each; each row has one, and its own group."""
    size = np.array(lengths, np.int32)
    values = np.zeros(len(size), doubles.DIGEST)
    values["a"] = np.arange(len(size)) // 2  # every second one shares its first half
    values["b"] = np.arange(len(size))
    return planned_examples(
        len(size),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        length=size,
        trained=size // 2,
        digest=values,
        group=np.arange(1, len(size) + 1, dtype=np.uint64) if grouped else None,
    )


def config(options: PlanOptions) -> Config:
    """A build with these options of its plan."""
    return replace(Config.of("sft", ("data.jsonl",), "qwen2-1.5b", Path("out")), plan=options)


@st.composite
def _parts(draw: st.DrawFn) -> Parts:
    """Examples of each part, and the length of every example."""
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=5))
    total = sum(counts)
    return counts, draw(st.lists(st.integers(1, 16), min_size=total, max_size=total))


def packs(examples: PlannedExamples, options: PlanOptions) -> dict[str, list[list[int]]]:
    """The examples of every pack, by dataset split."""
    found = {}
    choice = choose(config(options), examples)
    for side in planning.sides_of(options, examples, choice, 0):
        bounds = np.concatenate([[0], np.cumsum(side.sizes)]).tolist()
        found[side.name] = [side.order[first:last].tolist() for first, last in pairwise(bounds)]
    return found


@given(_parts(), st.lists(st.integers(1, 16), min_size=1, max_size=12))
def test_appended_parts_leave_the_packs_before_them(parts, more):
    counts, lengths = parts
    options = PlanOptions(layout="packed", max_length=16, pack_within="part")
    before = packs(numbers_planned(counts, lengths), options).get("train", [])
    after = packs(numbers_planned([*counts, len(more)], lengths + more), options)["train"]
    assert after[: len(before)] == before


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_the_plan_takes_less_than_a_hundred_bytes_an_example(layout):
    """At its highest, all that it works with included; shards are made from it one by one."""
    count = 200_000
    draw = np.random.default_rng(0)
    lengths: Ints = np.clip(draw.lognormal(5, 0.5, count), 8, 4096).astype(np.int64)
    tracemalloc.start()
    try:
        examples = numbers_planned([count // 8] * 8, lengths.tolist(), grouped=True)
        options = PlanOptions(layout=layout, test_size=0.01)
        tracemalloc.reset_peak()
        choice = choose(config(options), examples)
        sides = planning.sides_of(options, examples, choice, 4096 if layout == "padded" else 0)
        shards = [len(order) for side in sides for _, order, _ in side.pieces()]
        assert sum(shards) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (peak - 40 * max(shards)) / count < 100 + 8  # 8 for the split
