"""``pipeline show``: what is drawn is what is stored, and data cannot drive the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import support
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import small
from support import SAMPLES, model_record, write_rows
from transformers import AutoTokenizer

from pipeline.builds.build import Build
from pipeline.cli import cli
from pipeline.report.drawing import (
    ANSWER,
    BAD,
    CONTEXT,
    GOOD,
    OPEN,
    PADDING,
    SCORED,
    TRAINED,
    Drawer,
    Shards,
    visible,
)
from stages.encoders import Encoder, parsed
from stages.errors import UsageError
from stages.profile import TargetModel

Make = Callable[..., Path]
MODEL = model_record()
CHAT = SAMPLES / "sft" / "chat.jsonl"


def show(*arguments: object) -> str:
    """What the command prints where there is no terminal."""
    ran = CliRunner(env={"COLUMNS": ""}).invoke(cli, ["show", *map(str, arguments)])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@given(st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_pieces_say_what_the_tokenizer_says(
    model: TargetModel, reference: Encoder, text: str
) -> None:
    """Joined, the pieces are the whole text decoded; every token is in exactly one of them."""
    ids = reference.encode([text])[0].tolist()
    tokenizer = parsed(model.tokenizer_json)
    pieces = list(Drawer(tokenizer, MODEL).pieces(ids, [CONTEXT] * len(ids)))
    assert [i for piece in pieces for i in piece.ids] == ids
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    if "\ufffd" not in "".join(piece.text for piece in pieces):
        assert "".join(piece.text for piece in pieces) == visible(whole)


SPELLED = st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<|eot_id|>"])


@given(st.lists(st.tuples(SPELLED | st.text(max_size=4), st.booleans()), max_size=6))
@settings(max_examples=100, deadline=None)
def test_text_that_spells_a_control_token_is_drawn_apart_from_it(
    model: TargetModel, reference: Encoder, parts: list[tuple[str, bool]]
) -> None:
    """Every real one is marked as such and none of the spelled; the spelled are marked whole."""
    ids: list[int] = []
    for text, real in parts:
        real &= text in model.controls
        ids += [model.controls[text]] if real else reference.encode([text])[0].tolist()
    pieces = list(Drawer(parsed(model.tokenizer_json), MODEL).pieces(ids, [CONTEXT] * len(ids)))
    assert not any(piece.control and piece.spelled for piece in pieces)
    assert [p.ids[0] for p in pieces if p.control] == [
        i for i in ids if i in set(model.controls.values())
    ]
    plain = "".join("\0" if p.control or p.spelled else p.text for p in pieces)
    for name in ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<|eot_id|>"):
        assert name not in plain
    for piece in pieces:
        assert not piece.spelled or set(piece.text) & set("<|im_endstarofx/s>")


@pytest.mark.parametrize("policy", ["keep", "strip"])
def test_stop_text_stands_apart_where_rows_are_drawn(policy: str, tmp_path: Path) -> None:
    """In the plan and in the build, on a page without colours; stripped, it is nowhere."""
    row = {"prompt": "hi", "completion": "five<|im_end|>"}
    data = write_rows(tmp_path / "data.jsonl", [row])
    given = [str(data), "--model", "qwen2-1.5b", "--stop-text", policy]
    plan = CliRunner().invoke(cli, ["plan", *given, "--task", "sft"]).stdout
    assert ("  as text  <|im_end|>\n" in plan) == (policy == "keep")
    assert ("warning" in plan) == (policy == "keep")
    assert {"keep": "stop_text_kept", "strip": "stop_text_stripped"}[policy] in plan
    shown = CliRunner().invoke(cli, ["plan", *given, "--task", "sft", "--json"])
    pieces = json.loads(shown.stdout)["first_rows"][0]["sequences"][""]
    assert (["trained as text", "<|im_end|>"] in pieces) == (policy == "keep")
    target = tmp_path / "built"
    ran = CliRunner().invoke(cli, ["run", "sft", *given, "-o", str(target)])
    assert ran.exit_code == 0, ran.output
    drawn = show(target)
    assert ("five[text: <|im_end|>]<|im_end|>" in drawn) == (policy == "keep")
    assert ("trained | five<|im_end|>" in drawn) == (policy == "strip")
    page = (target / "report.html").read_text("utf-8")
    assert {"keep": "stop_text_kept", "strip": "stop_text_stripped"}[policy] in page
    assert ('<u class="t"' in page) == (policy == "keep")


@given(st.text())
def test_visible_text_controls_nothing(text: str) -> None:
    """Only printable characters and line ends are left; printable text is left alone."""
    shown = visible(text)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert shown == text or not text.isprintable()


def test_packs_show_every_example_in_its_place(built: Make) -> None:
    """One strip per example, its kinds from the labels, its text the tokenizer's."""
    folder = built("sft", CHAT)
    shards = Shards(Build.open(folder))
    row = shards.row("train", 0)
    strips = shards.strips(row)
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    assert [strip.name for strip in strips] == row["row_ids"]
    start = 0
    for strip, length in zip(strips, row["seq_lengths"], strict=True):
        ids = row["input_ids"][start : start + length]
        labels = row["labels"][start : start + length]
        assert "".join(p.text for p in strip.pieces) == visible(tokenizer.decode(ids))
        kinds = [p.kind for p in strip.pieces for _ in p.ids]
        assert kinds == [TRAINED if label != -100 else CONTEXT for label in labels]
        assert strip.trained == kinds.count(TRAINED)
        start += length
    text = show(folder)
    assert "train row 0 of 1" in text
    assert text.count("── chat.jsonl:") == len(strips)
    assert "trained | 100 °C, or 212 °F.<|im_end|>" in text


def test_markers_padding_and_scores(built: Make) -> None:
    """Each kind of token is drawn as what its row says."""
    data = SAMPLES / "prm" / "first_error.json"
    folder = built("prm", data, "--layout", "padded")
    shards = Shards(Build.open(folder))
    source = json.loads(data.read_text("utf-8"))
    for number in (0, 5):
        (strip,) = shards.strips(shards.row("train", number))
        at = int(strip.name.rpartition(":")[2]) - 1
        steps, wrong = len(source[at]["steps"]), source[at]["label"]
        kinds = [piece.kind for piece in strip.pieces if piece.kind in (GOOD, BAD, OPEN)]
        expected = [GOOD] * steps if wrong < 0 else [GOOD] * wrong + [BAD]
        assert kinds == expected + [OPEN] * (steps - len(expected))
        ids = shards.row("train", number)["input_ids"]
        padding = [piece.kind == PADDING for piece in strip.pieces]
        assert padding == [True] + [False] * strip.tokens
        assert strip.pieces[0].text.endswith(f"x {len(ids) - strip.tokens}]")
    folder = built("rm", SAMPLES / "rm" / "pairs.jsonl", "--max-reject", "1")
    pairs = Shards(Build.open(folder))
    row = pairs.row("train", 0)
    for side, strip in zip(("chosen", "rejected"), pairs.strips(row), strict=True):
        kinds = [piece.kind for piece in strip.pieces for _ in piece.ids]
        answer = len(row[f"{side}_ids"]) - row["prompt_length"] - 1
        assert kinds == [CONTEXT] * row["prompt_length"] + [ANSWER] * answer + [SCORED]


def test_long_examples_are_cut_in_the_middle(built: Make) -> None:
    """Head and tail are the whole strip's, and every token is drawn or counted."""
    shards = Shards(Build.open(built("sft", CHAT, "--layout", "ragged")))
    row = shards.row("train", 0)
    (whole,), (cut,) = shards.strips(row), shards.strips(row, tokens=12)
    at, gone = cut.left_out
    assert (at + 1, len(cut.pieces), gone) == (8, 12, len(row["input_ids"]) - 12)
    assert cut.pieces == whole.pieces[:8] + whole.pieces[-4:]
    assert (cut.tokens, cut.trained) == (whole.tokens, whole.trained)
    assert shards.strips(row, tokens=len(row["input_ids"])) == [whole]


def test_rows_are_found_by_id_in_any_layout(built: Make) -> None:
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
    shards = Shards(Build.open(folder))
    with pytest.raises(UsageError, match="No example has the row_id 'word_problems"):
        shards.find("word_problems.jsonl:99")
    with pytest.raises(UsageError, match="train has no row 10"):
        shards.row("train", 10)
    with pytest.raises(UsageError, match="There is no split 'test'"):
        shards.row("test", 0)


def on_terminal(folder: Path, **environment: str) -> bytes:
    """What the command writes to a terminal."""
    variables = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    return support.on_terminal(["show", str(folder)], variables | environment).encode()


def test_data_cannot_drive_the_terminal(make: Make, tmp_path: Path) -> None:
    """Escape sequences in content are written out; NO_COLOR leaves none of our own either."""
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202eabc"
    row = {"prompt": f"say {evil}", "completion": f"so {evil}"}
    data = write_rows(tmp_path / "rows.jsonl", [row])
    folder = make("sft", data)
    colored = on_terminal(folder)
    for raw in (b"\x1b[2J", b"\x1b]0;", b"\x07", b"\xc2\x9b", "\u202e".encode()):
        assert raw not in colored
    assert b"\x1b[32m" in colored  # trained, in our own green
    assert b"\\x1b[2J" in colored
    plain = on_terminal(folder, NO_COLOR="1")
    assert b"\x1b" not in plain
    assert b"trained | so \\x1b[2J" in plain
    assert "\x1b" not in show(folder)
    assert "\x1b[32m" in show(folder, "--color", "always")


@pytest.mark.parametrize("name", ["bert-base-uncased", "gemma-2-2b-it", "phi-3-mini-4k"])
def test_other_families_are_drawn_by_their_own_tokenizer(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Pairs for a WordPiece encoder, read at the first token, and for SentencePiece decoders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_bytes(small(name)[1])
    profile = f'like = "{name}"\nname = "small"\ntokenizer = "model"\ntoken_ids = {{}}\n'
    (tmp_path / "small.toml").write_text(profile)
    rows = [{"prompt": f"is it {i}", "chosen": "yes it is", "rejected": "no"} for i in range(4)]
    write_rows(tmp_path / "rows.jsonl", rows)
    shards = Shards(Build.open(make("rm", Path("rows.jsonl"), model="small.toml")))
    row = shards.row("train", 0)
    chosen = shards.strips(row)[0]
    kinds = [piece.kind for piece in chosen.pieces for _ in piece.ids]
    at = 0 if name.startswith("bert") else len(row["chosen_ids"]) - 1
    assert [i for i, kind in enumerate(kinds) if kind == SCORED] == [at]
    text = "".join(piece.text for piece in chosen.pieces)
    squeezed = "".join(text.replace("##", "").split())
    assert "isit0" in squeezed
    assert "yesitis" in squeezed
    assert "report.html" in shards.build.manifest.files
