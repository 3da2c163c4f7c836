"""``pipeline show``: searches find what is stored, all of it, once, in either direction."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import support
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, write_rows
from test_show import show

from pipeline.builder.build import build as run_build
from pipeline.builds.build import Build
from pipeline.builds.packs import examples
from pipeline.cli import cli
from pipeline.options.recipe import builds_of
from pipeline.report import terminal
from pipeline.report.drawing import Shards
from pipeline.report.search import Condition, Search, of_build
from stages.errors import UsageError

Make = Callable[..., Path]
PROBLEMS = SAMPLES / "sft" / "word_problems.jsonl"
PAIRS = SAMPLES / "rm" / "pairs_margin.jsonl"
CHAT = SAMPLES / "sft" / "chat.jsonl"
SPLIT = ("sft", PROBLEMS, "--max-length", 512, "--test-size", 0.3)
INDEXED = ("sft", PROBLEMS, "--index-only", "--max-length", 256)
BUILDS: dict[str, tuple[object, ...]] = {
    "packed": SPLIT,
    "ragged": ("sft", PROBLEMS, "--layout", "ragged"),
    "padded": ("sft", PROBLEMS, "--layout", "padded"),
    "indexed": INDEXED,
    "steps": ("prm", SAMPLES / "prm" / "stepwise_soft.jsonl"),
    "pairs": ("rm", PAIRS),
    "padded pairs": ("rm", PAIRS, "--layout", "padded"),
}


def refused(*arguments: object) -> str:
    """The error of a command that is wrong."""
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(cli, ["show", *map(str, arguments)], catch_exceptions=False)
    return str(error.value)


def on_terminal(width: int, *arguments: object) -> str:
    """What the command writes to a terminal of so many columns, without colours."""
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"NO_COLOR": "1"}
    found = support.on_terminal(["show", *map(str, arguments)], environment, width)
    return found.replace("\r\n", "\n")


def stored(build: Build) -> dict[str, dict[str, Any]]:
    """Every stored example by its id, unpadded, in stored order."""
    tables = [table for side in build.splits.values() for table in side.tables()]
    rows = [row for t in tables for row in examples(t, build.manifest.layout).to_pylist()]
    return {row["row_id"]: row for row in reversed(rows)}


def plainly(row: dict[str, Any], end: int) -> dict[str, float]:
    """The fields of an example, counted one token at a time."""
    if "chosen_ids" in row:
        sides = {side: len(row[f"{side}_ids"]) for side in ("chosen", "rejected")}
        fields = {**sides, "tokens": max(sides.values()), "prompt": row["prompt_length"]}
        return {**fields, **({"margin": row["margin"]} if "margin" in row else {})}
    fields = {
        "tokens": len(row["input_ids"]),
        "trained": sum(label != -100 for label in row["labels"]),
        "turns": row["input_ids"].count(end),
    }
    if "step_labels" in row:
        rated = [rating for rating in row["step_labels"] if rating is not None]
        fields["steps"] = len(row["step_labels"])
        fields |= {"reward": min(rated)} if rated else {}
    return fields


@pytest.mark.parametrize("name", BUILDS)
def test_a_search_finds_each_example_that_fits_once(built: Make, name: str) -> None:
    """Compared with a count over plain rows; forwards, backwards, and from each match on."""
    compare(Build.open(built(*BUILDS[name])))


def passed_twice(folder: Path, cache: Path, more: str = "") -> Build:
    """A source in two passes, so that every train example has a copy."""
    recipe = folder / "recipe.toml"
    recipe.write_text(
        'task = "sft"\nmodel = "qwen2-1.5b"\noutput = "out"\nmax-length = 256\nworkers = 1\n'
        f'{more}[[source]]\nname = "one"\ndata = "{PROBLEMS}"\nepochs = 2\n'
    )
    (config,) = builds_of(recipe)
    run_build(replace(config, run=replace(config.run, cache_dir=cache)), lambda *_: None)
    return Build.open(folder / "out" / "current")


def test_an_example_that_is_stored_twice_is_found_once(tmp_path: Path, cache_dir: Path) -> None:
    """Where a source is used in two passes, every example has a copy."""
    build = passed_twice(tmp_path, cache_dir)
    assert build.manifest.examples.copies == build.manifest.examples.kept
    compare(build, copies=2)
    assert "--where \"source = 'one'\"" in show(build.folder, "--where", "source = 'one'")


def test_a_count_is_of_different_examples(tmp_path: Path, cache_dir: Path) -> None:
    """What is true of all is true of as many as there are, of the build and of each side."""
    build = passed_twice(tmp_path, cache_dir, "test-size = 0.3\n")
    kept, copies = build.manifest.examples.kept, build.manifest.examples.copies
    assert show(build.folder, "--where", "tokens > 0", "--count") == (
        f"{kept} of {kept} examples have tokens > 0 (a copy is not counted)\n"
    )
    sides = {}
    for split, side in build.splits.items():
        search = Search(Shards(build), None, split)
        sides[split] = search.different
        assert search.different == len(list(search.matches()))
        assert search.examples == side.record.examples
    assert sides == {"train": copies, "test": kept - copies}
    assert sides["test"] > 0


def compare(build: Build, copies: int = 1) -> None:
    """Every search of a build with a count over its plain rows."""
    rows = stored(build)
    end = build.manifest.model.end_of_turn_id
    shards = Shards(build)
    values = {row_id: plainly(row, end) for row_id, row in rows.items()}
    names = {field for fields in values.values() for field in fields}
    assert names <= {*of_build(build)}
    for field in sorted(names):
        limit = sorted(v[field] for v in values.values() if field in v)[len(values) // 2 - 1]
        wanted = {i for i, v in values.items() if field in v and v[field] <= limit}
        search = Search(shards, Condition(f"{field} <= {limit + 1e-6}", build), None)
        found = list(search.matches())
        assert {one.row_id for one in found} == wanted
        assert len(found) == len(wanted)
        assert search.looked == search.examples == copies * len(rows)
        assert list(search.matches(backwards=True)) == found[::-1]
        for at, one in enumerate(found):
            assert list(search.matches(one.at)) == found[at + 1 :]
            assert list(search.matches(one.at, backwards=True)) == found[:at][::-1]
            assert one == search.find(one.row_id)


def test_texts_places_and_the_names_of_filters_are_read(built: Make) -> None:
    """The split, the source and the pack of an example, and figures as --filter calls them."""
    build = Build.open(built(*SPLIT))
    every = [*stored(build)]
    shards = Shards(build)

    def ids(text: str, split: str | None = None) -> list[str]:
        found = list(Search(shards, Condition(text, build), split).matches())
        for one in found:
            row = shards.row(one.at.split, one.at.row)
            assert row["row_ids"][one.at.place] == one.row_id
        return [one.row_id for one in found]

    test = build.splits["test"].record.examples
    assert 0 < len(ids("split = 'test'")) == test == len(ids("tokens > 0", "test"))
    assert ids("split = 'train' and id = 'word_problems.jsonl:3'") == ["word_problems.jsonl:3"]
    assert sorted(ids("source = 'word_problems.jsonl'")) == sorted(every)
    packs = {pack for one in ids("pack > 0 and split = 'train'") for pack in [shards.find(one)[1]]}
    assert packs == set(range(1, build.splits["train"].record.rows))
    assert ids("n_tokens > 90 and n_trained > 0") == ids("tokens > 90 and trained > 0")


def test_the_index_says_the_pack_of_an_example(built: Make) -> None:
    """A build with --index-only has examples as rows, and packs beside them."""
    folder = built(*INDEXED)
    build = Build.open(folder)
    pack = Shards(build).pack("train", 1)
    found = Search(Shards(build), Condition("pack = 1", build), None).matches()
    assert sorted(one.row_id for one in found) == sorted(pack["row_ids"])
    text = show(folder, "--pack", 1)
    assert text.startswith(f"train pack 1 of {build.manifest.packs['train'].packs}\n")
    assert text.count("── word_problems.jsonl:") == len(pack["row_ids"]) > 1
    count = build.manifest.packs["train"].packs
    assert f"train has no pack {count}" in refused(folder, "--pack", count)


def test_the_printed_commands_lead_through_all_matches(make: Make, tmp_path: Path) -> None:
    """From the first match to the last and back, in a folder whose name a shell would cut."""
    folder = make("sft", PROBLEMS, "it's out")
    text = show(folder, "--where", "tokens > 80", "--boundaries")
    ids, texts = [], [text]
    while match := re.search(r"^── (\S+) ·", text, re.MULTILINE):
        ids.append(match[1])
        following = re.search(r"^Next:\n(.+)$", text, re.MULTILINE)
        assert following is not None
        words = shlex.split(following[1])
        assert words[:3] == ["pipeline", "show", str(folder)]
        assert "--boundaries" in words
        text = show(*words[2:])
        texts.append(text)
    assert f"No example after {ids[-1]} has tokens > 80." in text
    build = Build.open(folder)
    fit = Search(Shards(build), Condition("tokens > 80", build), None).matches()
    assert ids == [one.row_id for one in fit]
    assert show(folder, "--where", "tokens > 80", "--count") == (
        f"{len(ids)} of {build.manifest.examples.kept} examples have tokens > 80\n"
    )
    back = re.search(r"^Previous:\n(.+)$", texts[-2], re.MULTILINE)
    assert back is not None
    assert f"── {ids[-2]} ·" in show(*shlex.split(back[1])[2:])
    assert "Previous" not in texts[0]
    both = show(folder, "--where", "tokens > 80", "--limit", len(ids) + 1)
    assert re.findall(r"^── (\S+) ·", both, re.MULTILINE) == ids


def test_a_search_stops_where_it_has_found_enough(make: Make, tmp_path: Path) -> None:
    """What lies behind the match is not read, and the page says how much was."""
    data = write_rows(tmp_path / "many.jsonl", [{"prompt": "hi", "completion": "yes"}] * 9000)
    folder = make("sft", data, layout="ragged", workers=2)
    assert show(folder, "--where", "id = 'many.jsonl:5'").endswith(
        "Looked at 8,192 of 9,000 examples.\n"
    )
    assert "Looked at 808 of 9,000 examples." in show(
        folder, "--where", "tokens > 0", "--after", "many.jsonl:8193"
    )


def test_wrong_conditions_name_the_fields(built: Make) -> None:
    """A misspelt field, one of another task, no condition, and types that do not go together."""
    folder = built("rm", PAIRS)
    text = refused(folder, "--where", "chozen > 3")
    assert "reads chozen, which examples of this build do not have. Did you mean chosen?" in text
    fields = "Fields are id, source, split, row, tokens, prompt, chosen, rejected, margin;"
    assert fields in text
    for wrong in ("trained = 0", "tokens >", "chosen = 'long'", "tokens", "", "1 = 1"):
        said = refused(folder, "--where", wrong)
        assert said.startswith("--where")
        assert fields in said or (not wrong and "trained = 0" in said)
    listed = show(folder, "--fields")
    assert [line.split()[0] for line in listed.splitlines()] == [*of_build(Build.open(folder))]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--row", "a", "--where", "tokens > 1"), "--row and --where exclude each other"),
        (("--after", "a", "--before", "b"), "--after and --before exclude each other"),
        (("--count",), "--count counts what --where finds"),
        (("--count", "--after", "a"), "--count counts what --where finds"),
        (("--limit", "2"), "--limit is for searches"),
        (("--fields", "--pack", "0"), "--fields and --pack exclude each other"),
        (("--after", "nowhere:1"), "No example has the row_id 'nowhere:1'"),
        (("--where", "tokens > 1", "--split", "dev"), "There is no split 'dev'"),
    ],
)
def test_options_that_do_not_go_together(
    built: Make, arguments: tuple[str, ...], said: str
) -> None:
    """Each is refused with its own sentence, and nothing is shown."""
    assert said in refused(built("sft", CHAT), *arguments)


def test_every_token_has_its_mark(built: Make) -> None:
    """With --ids the ids of the row can be read off; with --boundaries each token ends in a line.
    Content that has such a mark itself is escaped."""
    folder = built("sft", CHAT, "--layout", "ragged")
    shards = Shards(Build.open(folder))
    row = shards.row("train", 2)
    text = show(folder, "--row", row["row_id"], "--ids")
    drawn = "".join(re.findall(r"(?<= \| ).*", text))
    ids = [int(i) for found in re.findall(r"⟨([\d ]+)⟩", drawn) for i in found.split()]
    assert ids == row["input_ids"]
    lines = show(folder, "--row", row["row_id"], "--boundaries")
    (strip,) = shards.strips(row)
    assert lines.count("│") == len(strip.pieces)


def test_marks_in_content_are_escaped(make: Make, tmp_path: Path) -> None:
    """So a line that is drawn is always the end of a token."""
    row = {"prompt": "a│b", "completion": "⟨7⟩"}
    folder = make("sft", write_rows(tmp_path / "marks.jsonl", [row]))
    assert "a│b" in show(folder)
    text = show(folder, "--boundaries")
    assert "\\u2502" in text.replace("│", "")
    ids = re.sub(r"⟨\d+⟩", "", show(folder, "--ids"))
    assert "trained | \\u27e87\\u27e9<|im_end|>" in ids


def test_a_narrow_terminal_breaks_between_words(make: Make, tmp_path: Path) -> None:
    """No line is wider than the terminal unless it is one word; no character is lost; commands go
    on in the next line as a shell has it."""
    words = "the quick brown fox jumps over the lazy dog while 编译器是把一种语言写成的程序 runs on"
    rows = [{"prompt": words, "completion": f"{words} {words} {i}"} for i in range(3)]
    folder = make("sft", write_rows(tmp_path / "long.jsonl", rows))

    def texts(shown: str) -> str:
        return "".join(line[10:] for line in shown.splitlines() if line[8:10] == "| ")

    wide = show(folder, "--row", "long.jsonl:2")
    for width in (80, 40, 24):
        text = on_terminal(width, folder, "--row", "long.jsonl:2")
        for line in text.splitlines():
            body = line.rpartition(" | ")[2].strip()
            body = re.sub(r"^(--[a-z-]+) ", r"\1=", body)  # an option stays with its value
            assert terminal.columns_of(line) <= width or " " not in body.rstrip("\\ ↵"), width
        assert texts(text) == texts(wide)
        commands = text.replace(" \\\n", " ").splitlines()
        following = shlex.split(commands[commands.index("Next:") + 1])
        assert following[-2:] == ["--after", "long.jsonl:2"]


@given(st.text(alphabet="ab 编\n│é", max_size=60), st.integers(2, 12))
def test_wrapped_text_is_the_text(text: str, width: int) -> None:
    """Lines joined are the text; a line is too wide only where it could not be broken."""
    lines = ["".join(part for part, _ in line) for line in terminal.wrapped([(text, 0)], width)]
    assert "".join(lines) == text
    for line in lines:
        shown = line.rstrip(" \n")
        assert terminal.columns_of(shown) <= width or not re.search("[ 编│].", shown)


def test_a_file_name_cannot_drive_the_terminal(make: Make, tmp_path: Path) -> None:
    """Row ids and folders with escapes are drawn, and printed in commands, without them."""
    data = tmp_path / "x\x1b[31my\u202e.jsonl"
    data.write_text('{"prompt": "a", "completion": "b"}\n' * 2)
    folder = make("sft", data, "out\x1b[2J")
    text = show(folder, "--where", "tokens > 0")
    assert all(c.isprintable() or c == "\n" for c in text)
    command = re.search(r"^Next:\n(.+)$", text, re.MULTILINE)
    assert command is not None
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {command[1]}"], capture_output=True, check=True
    )
    words = said.stdout.decode().splitlines()
    assert words[2] == str(folder)
    assert words[-1] == f"{data.name}:1"
