"""``pipeline show``: what is drawn is what is stored, data cannot drive the terminal, and searches
find all of what is stored, once, in either direction."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import support
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from small_tokenizers import small
from support import SAMPLES, model_record, raised, silent, write_rows
from transformers import AutoTokenizer

from pipeline.builds.build import Build
from pipeline.builds.packs import examples
from pipeline.options.recipe import builds_of
from pipeline.report import drawing, pages, painter
from pipeline.report.search import Search, of_build
from pipeline.run_build import build as run_build
from posttrain_pipeline.commands import cli
from stages import encoders, errors

MODEL = model_record()
CHAT = SAMPLES / "sft" / "chat.jsonl"


def show(*arguments: object) -> str:
    """What the command prints where there is no terminal."""
    ran = CliRunner(env={"COLUMNS": ""}).invoke(cli, ["show", *map(str, arguments)])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@given(st.text(max_size=60))
def test_pieces_say_what_the_tokenizer_says(model, reference, text):
    """Joined, the pieces are the whole text decoded; every token is in exactly one of them."""
    ids = reference.encode([text])[0].tolist()
    tokenizer = encoders.parsed(model.tokenizer_json)
    pieces = list(drawing.Drawer(tokenizer, MODEL).pieces(ids, [drawing.CONTEXT] * len(ids)))
    assert [i for piece in pieces for i in piece.ids] == ids
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    if "\ufffd" not in "".join(piece.text for piece in pieces):
        assert "".join(piece.text for piece in pieces) == drawing.visible(whole)


SPELLED = st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<|eot_id|>"])


@given(st.lists(st.tuples(SPELLED | st.text(max_size=4), st.booleans()), max_size=6))
def test_text_that_spells_a_control_token_is_drawn_apart_from_it(model, reference, parts):
    """Every real one is marked as such and none of the spelled; the spelled are marked whole."""
    ids: list[int] = []
    for text, real in parts:
        real &= text in model.controls
        ids += [model.controls[text]] if real else reference.encode([text])[0].tolist()
    pieces = list(
        drawing.Drawer(encoders.parsed(model.tokenizer_json), MODEL).pieces(
            ids, [drawing.CONTEXT] * len(ids)
        )
    )
    assert not any(piece.control and piece.spelled for piece in pieces)
    assert [p.ids[0] for p in pieces if p.control] == [
        i for i in ids if i in set(model.controls.values())
    ]
    plain = "".join("\0" if p.control or p.spelled else p.text for p in pieces)
    for name in ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<|eot_id|>"):
        assert name not in plain
    for piece in pieces:
        assert not piece.spelled or set(piece.text) & set("<|im_endstarofx/s>")


@given(st.text())
def test_visible_text_controls_nothing(text):
    """Only printable characters and line ends are left; printable text is left alone."""
    shown = drawing.visible(text)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert shown == text or not text.isprintable()


def test_packs_show_every_example_in_its_place(built):
    """One strip per example, its kinds from the labels, its text the tokenizer's."""
    folder = built("sft", CHAT)
    shards = drawing.Shards(Build.open(folder))
    row = shards.row("train", 0)
    strips = shards.strips(row)
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    assert [strip.name for strip in strips] == row["row_ids"]
    start = 0
    for strip, length in zip(strips, row["seq_lengths"], strict=True):
        ids = row["input_ids"][start : start + length]
        labels = row["labels"][start : start + length]
        assert "".join(p.text for p in strip.pieces) == drawing.visible(tokenizer.decode(ids))
        kinds = [p.kind for p in strip.pieces for _ in p.ids]
        assert kinds == [drawing.TRAINED if label != -100 else drawing.CONTEXT for label in labels]
        assert strip.trained == kinds.count(drawing.TRAINED)
        start += length
    text = show(folder)
    assert "train row 0 of 1" in text
    assert text.count("── chat.jsonl:") == len(strips)
    assert "trained | 100 °C, or 212 °F.<|im_end|>" in text


def test_markers_padding_and_scores(built):
    """Each kind of token is drawn as what its row says."""
    data = SAMPLES / "prm" / "first_error.json"
    folder = built("prm", data, "--layout", "padded")
    shards = drawing.Shards(Build.open(folder))
    source = json.loads(data.read_text("utf-8"))
    for number in (0, 5):
        (strip,) = shards.strips(shards.row("train", number))
        at = int(strip.name.rpartition(":")[2]) - 1
        steps, wrong = len(source[at]["steps"]), source[at]["label"]
        kinds = [
            piece.kind
            for piece in strip.pieces
            if piece.kind in (drawing.GOOD, drawing.BAD, drawing.OPEN)
        ]
        expected = [drawing.GOOD] * steps if wrong < 0 else [drawing.GOOD] * wrong + [drawing.BAD]
        assert kinds == expected + [drawing.OPEN] * (steps - len(expected))
        ids = shards.row("train", number)["input_ids"]
        padding = [piece.kind == drawing.PADDING for piece in strip.pieces]
        assert padding == [True] + [False] * strip.tokens
        assert strip.pieces[0].text.endswith(f"x {len(ids) - strip.tokens}]")
    folder = built("rm", SAMPLES / "rm" / "pairs_margin.jsonl")
    pairs = drawing.Shards(Build.open(folder))
    row = pairs.row("train", 0)
    for side, strip in zip(("chosen", "rejected"), pairs.strips(row), strict=True):
        kinds = [piece.kind for piece in strip.pieces for _ in piece.ids]
        answer = len(row[f"{side}_ids"]) - row["prompt_length"] - 1
        assert kinds == [drawing.CONTEXT] * row["prompt_length"] + [drawing.ANSWER] * answer + [
            drawing.SCORED
        ]


def test_long_examples_are_cut_in_the_middle(built):
    """Head and tail are the whole strip's, and every token is drawn or counted."""
    shards = drawing.Shards(Build.open(built("sft", CHAT, "--layout", "ragged")))
    row = shards.row("train", 0)
    (whole,), (cut,) = shards.strips(row), shards.strips(row, tokens=12)
    at, gone = cut.left_out
    assert (at + 1, len(cut.pieces), gone) == (8, 12, len(row["input_ids"]) - 12)
    assert cut.pieces == whole.pieces[:8] + whole.pieces[-4:]
    assert (cut.tokens, cut.trained) == (whole.tokens, whole.trained)
    assert shards.strips(row, tokens=len(row["input_ids"])) == [whole]


def test_rows_are_found_by_id_in_any_layout(built):
    """The same example from a pack and from a row of its own."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    drawn = []
    for layout in ("packed", "ragged"):
        folder = built("sft", data, "--layout", layout)
        text = show(folder, "--row", "word_problems.jsonl:3")
        drawn.append(text.partition("\n")[2].partition("\nNext:")[0])
        assert "word_problems.jsonl:3 · " in text
    assert drawn[0] == drawn[1]
    assert show(folder, "--pack", 2).partition("\n")[2].partition("\nNext:")[0] == drawn[1]
    assert show(folder, "--random", 2, "--seed", 7) == show(folder, "--random", 2, "--seed", 7)
    shards = drawing.Shards(Build.open(folder))
    with pytest.raises(errors.UsageError, match="No example has the row_id 'word_problems"):
        shards.find("word_problems.jsonl:99")
    raised(errors.UsageError, shards.row, "train", 10, says="train has no row 10")
    raised(errors.UsageError, shards.row, "test", 0, says="There is no split 'test'")


def test_data_cannot_drive_the_terminal(make, tmp_path):
    """Escape sequences in content, row ids and folders are written out, also in commands; where
    there is no colour, ours are not there."""
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202eabc"
    rows = [{"prompt": f"say {evil}", "completion": f"so {evil}"}] * 2
    data = write_rows(tmp_path / "x\x1b[31my\u202e.jsonl", rows)
    folder = make("sft", data, "out\x1b[2J")
    variables = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    terminal = support.Terminal(["show", str(folder)], variables)
    assert terminal.end() == 0
    colored = terminal.shown
    for raw in ("\x1b[2J", "\x1b]0;", "\x07", "\x9b", "\u202e"):
        assert raw not in colored
    assert "\x1b[32m" in colored  # trained, in our own green
    assert "\\x1b[2J" in colored
    plain = show(folder, "--where", "tokens > 0")
    assert all(c.isprintable() or c == "\n" for c in plain)
    assert "trained | so \\x1b[2J" in plain
    assert "\x1b[32m" in show(folder, "--color", "always")
    command = re.search(r"^Next:\n(.+)$", plain, re.MULTILINE)
    words = support.in_shell(f"printf '%s\\n' {command[1]}", tmp_path).out.splitlines()
    assert (words[2], words[-1]) == (str(folder), f"{data.name}:1")


@pytest.mark.parametrize("name", ["bert-base-uncased", "gemma-2-2b-it", "phi-3-mini-4k"])
def test_other_families_are_drawn_by_their_own_tokenizer(make, tmp_path, monkeypatch, name):
    """Pairs for a WordPiece encoder, read at the first token, and for SentencePiece decoders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_bytes(small(name)[1])
    profile = f'like = "{name}"\nname = "small"\ntokenizer = "model"\ntoken_ids = {{}}\n'
    (tmp_path / "small.toml").write_text(profile)
    rows = [{"prompt": f"is it {i}", "chosen": "yes it is", "rejected": "no"} for i in range(4)]
    write_rows(tmp_path / "rows.jsonl", rows)
    shards = drawing.Shards(Build.open(make("rm", Path("rows.jsonl"), model="small.toml")))
    row = shards.row("train", 0)
    chosen = shards.strips(row)[0]
    kinds = [piece.kind for piece in chosen.pieces for _ in piece.ids]
    at = 0 if name.startswith("bert") else len(row["chosen_ids"]) - 1
    assert [i for i, kind in enumerate(kinds) if kind == drawing.SCORED] == [at]
    squeezed = "".join("".join(piece.text for piece in chosen.pieces).replace("##", "").split())
    assert "isit0" in squeezed
    assert "yesitis" in squeezed
    assert "report.html" in shards.build.manifest.files


PROBLEMS = SAMPLES / "sft" / "word_problems.jsonl"
PAIRS = SAMPLES / "rm" / "pairs_margin.jsonl"
SPLIT = ("sft", PROBLEMS, "--max-length", 512, "--test-size", 0.3)
INDEXED = ("sft", PROBLEMS, "--index-only", "--max-length", 256)
BUILDS: dict[str, tuple[object, ...]] = {
    "packed": SPLIT,
    "padded": ("sft", PROBLEMS, "--layout", "padded"),
    "indexed": INDEXED,
    "steps": ("prm", SAMPLES / "prm" / "stepwise_soft.jsonl"),
    "pairs": ("rm", PAIRS),
}


def refused(*arguments: object) -> str:
    """The error of a command that is wrong."""
    with pytest.raises(errors.UsageError) as error:
        CliRunner().invoke(cli, ["show", *map(str, arguments)], catch_exceptions=False)
    return str(error.value)


def stored(build: Build) -> dict[str, dict[str, Any]]:
    """Every stored example by its id, unpadded, in stored order."""
    tables = [table for side in build.splits.values() for table in side.tables()]
    rows = [row for t in tables for row in examples(t).to_pylist()]
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
def test_a_search_finds_each_example_that_fits_once(built, name):
    """Compared with a count over plain rows; forwards, backwards, and from each match on."""
    compare(Build.open(built(*BUILDS[name])))


def test_an_example_that_is_stored_twice_is_found_once(tmp_path, cache_dir):
    """Where a source is used in two passes, every train example has a copy. What is true of all is
    true of as many as there are, of the build and of each side."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'task = "sft"\nmodel = "qwen2-1.5b"\noutput = "out"\nmax-length = 256\nworkers = 1\n'
        f'test-size = 0.3\n[[source]]\nname = "one"\ndata = "{PROBLEMS}"\nepochs = 2\n'
    )
    (config,) = builds_of(recipe)
    run_build(config.but(cache_dir=cache_dir), silent)
    build = Build.open(tmp_path / "out" / "current")
    compare(build)
    assert "--where \"source = 'one'\"" in show(build.folder, "--where", "source = 'one'")
    kept, copies = build.manifest.examples.kept, build.manifest.examples.copies
    assert show(build.folder, "--where", "tokens > 0", "--count") == (
        f"{kept} of {kept} examples have tokens > 0 (a copy is not counted)\n"
    )
    sides = {}
    for split, side in build.splits.items():
        search = Search(drawing.Shards(build), None, split)
        sides[split] = search.different
        assert search.different == len(list(search.matches()))
        assert search.examples == side.record.examples
    assert sides == {"train": copies, "test": kept - copies}
    assert sides["test"] > 0


def compare(build: Build) -> None:
    """Every search of a build with a count over its plain rows."""
    rows = stored(build)
    end = build.manifest.model.end_of_turn_id
    shards = drawing.Shards(build)
    values = {row_id: plainly(row, end) for row_id, row in rows.items()}
    names = {field for fields in values.values() for field in fields}
    assert names <= {*of_build(build)}
    for field in sorted(names):
        limit = sorted(v[field] for v in values.values() if field in v)[len(values) // 2 - 1]
        wanted = {i for i, v in values.items() if field in v and v[field] <= limit}
        search = Search(shards, pages.Condition(f"{field} <= {limit + 1e-6}", build), None)
        found = list(search.matches())
        assert {one.row_id for one in found} == wanted
        assert len(found) == len(wanted)
        assert search.looked == search.examples
        assert list(search.matches(backwards=True)) == found[::-1]
        for at, one in enumerate(found):
            assert list(search.matches(one.at)) == found[at + 1 :]
            assert list(search.matches(one.at, backwards=True)) == found[:at][::-1]
            assert one == search.find(one.row_id)


def test_texts_places_and_the_names_of_filters_are_read(built):
    """The split, the source and the pack of an example, and figures as --filter calls them."""
    build = Build.open(built(*SPLIT))
    every = [*stored(build)]
    shards = drawing.Shards(build)

    def ids(text: str, split: str | None = None) -> list[str]:
        found = list(Search(shards, pages.Condition(text, build), split).matches())
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


def test_the_index_says_the_pack_of_an_example(built):
    """A build with --index-only has examples as rows, and packs beside them."""
    folder = built(*INDEXED)
    build = Build.open(folder)
    pack = drawing.Shards(build).pack("train", 1)
    found = Search(drawing.Shards(build), pages.Condition("pack = 1", build), None).matches()
    assert sorted(one.row_id for one in found) == sorted(pack["row_ids"])
    text = show(folder, "--pack", 1)
    assert text.startswith(f"train pack 1 of {build.manifest.packs['train'].packs}\n")
    assert text.count("── word_problems.jsonl:") == len(pack["row_ids"]) > 1
    count = build.manifest.packs["train"].packs
    assert f"train has no pack {count}" in refused(folder, "--pack", count)


def test_the_printed_commands_lead_through_all_matches(make, tmp_path):
    """From the first match to the last and back, in a folder whose name a shell would cut."""
    folder = make("sft", PROBLEMS, "it's out")
    text = show(folder, "--where", "tokens > 80", "--boundaries")
    ids, texts = [], [text]
    while match := re.search(r"^── (\S+) ·", text, re.MULTILINE):
        ids.append(match[1])
        words = shlex.split(re.search(r"^Next:\n(.+)$", text, re.MULTILINE)[1])
        assert words[:3] == ["pipeline", "show", str(folder)]
        assert "--boundaries" in words
        text = show(*words[2:])
        texts.append(text)
    assert f"No example after {ids[-1]} has tokens > 80." in text
    build = Build.open(folder)
    fit = Search(drawing.Shards(build), pages.Condition("tokens > 80", build), None).matches()
    assert ids == [one.row_id for one in fit]
    assert show(folder, "--where", "tokens > 80", "--count") == (
        f"{len(ids)} of {build.manifest.examples.kept} examples have tokens > 80\n"
    )
    back = re.search(r"^Previous:\n(.+)$", texts[-2], re.MULTILINE)
    assert f"── {ids[-2]} ·" in show(*shlex.split(back[1])[2:])
    assert "Previous" not in texts[0]
    both = show(folder, "--where", "tokens > 80", "--limit", len(ids) + 1)
    assert re.findall(r"^── (\S+) ·", both, re.MULTILINE) == ids


def test_every_token_has_its_mark(built):
    """With --ids the ids of the row can be read off; with --boundaries each token ends in a line.
    Content that has such a mark itself is escaped."""
    folder = built("sft", CHAT, "--layout", "ragged")
    shards = drawing.Shards(Build.open(folder))
    row = shards.row("train", 2)
    drawn = "".join(re.findall(r"(?<= \| ).*", show(folder, "--row", row["row_id"], "--ids")))
    ids = [int(i) for found in re.findall(r"⟨([\d ]+)⟩", drawn) for i in found.split()]
    assert ids == row["input_ids"]
    lines = show(folder, "--row", row["row_id"], "--boundaries")
    (strip,) = shards.strips(row)
    assert lines.count("│") == len(strip.pieces)


def test_a_narrow_terminal_breaks_between_words(make, tmp_path):
    """No line is wider than the terminal unless it is one word; no character is lost; commands go
    on in the next line as a shell has it."""
    said = "the quick brown fox jumps over the lazy dog while 编译器是把一种语言写成的程序 runs on"
    rows = [{"prompt": said, "completion": f"{said} {said} {i}"} for i in range(3)]
    folder = make("sft", write_rows(tmp_path / "long.jsonl", rows))

    def texts(shown: str) -> str:
        return "".join(line[10:] for line in shown.splitlines() if line[8:10] == "| ")

    wide = show(folder, "--row", "long.jsonl:2")
    words = ["show", str(folder), "--row", "long.jsonl:2"]
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"NO_COLOR": "1"}
    terminal = support.Terminal(words, environment, width=40)
    assert terminal.end() == 0
    text = terminal.shown.replace("\r\n", "\n")
    assert "\x1b" not in text
    for line in text.splitlines():
        body = line.rpartition(" | ")[2].strip()
        body = re.sub(r"^(--[a-z-]+) ", r"\1=", body)  # an option stays with its value
        assert cell_len(line) <= 40 or " " not in body.rstrip("\\ ↵")
    assert texts(text) == texts(wide)
    commands = text.replace(" \\\n", " ").splitlines()
    following = shlex.split(commands[commands.index("Next:") + 1])
    assert following[-2:] == ["--after", "long.jsonl:2"]


@given(st.text(alphabet="ab 编\n│é", max_size=60), st.integers(2, 12))
def test_wrapped_text_is_the_text(text, width):
    """Lines joined are the text; a line is too wide only where it could not be broken."""
    lines = ["".join(part for part, _ in line) for line in painter.wrapped([(text, 0)], width)]
    assert "".join(lines) == text
    for line in lines:
        shown = line.rstrip(" \n")
        assert cell_len(shown) <= width or not re.search("[ 编│].", shown)
