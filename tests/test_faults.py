"""Faults that were found once, each with the input that showed it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from datasets import load_from_disk
from support import SAMPLES, Ran, few, read_manifest
from transformers import AutoTokenizer

Run = Callable[..., Ran]
SFT = ("run", "sft", "--model", "qwen2-1.5b", "--max-reject", "1", "-o", "out")
RM = ("run", "rm", "--model", "qwen2-1.5b", "--max-reject", "1", "-o", "out")
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def lines(path: Path, *rows: Any) -> Path:
    """A JSONL file of these rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def chat(*turns: tuple[str, str]) -> dict[str, Any]:
    """An openai row."""
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def decoded(folder: Path) -> list[str]:
    """The texts of a ragged SFT build."""
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    return [tokenizer.decode(row["input_ids"]) for row in load_from_disk(str(folder))["train"]]


@pytest.mark.parametrize("content", few([None, "", "Let me look."], 1))
def test_a_template_that_drops_tool_calls_trains_nothing_in_their_place(
    pipeline: Run, tmp_path: Path, content: str | None
) -> None:
    """Qwen2's template prints no calls: the row is refused; Qwen2.5's does print them."""
    call = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    row = {"messages": [{"role": "user", "content": "go"}, call]}
    data = lines(tmp_path / "calls.jsonl", row, chat(("user", "a"), ("assistant", "b")))
    assert pipeline(*SFT, data).status == 0
    assert read_manifest(tmp_path / "out")["rows"]["rejected_by_code"] == {"lost_in_template": 1}
    options = ("--model", "qwen2.5-7b", "--layout", "ragged", "-o", "other")
    assert pipeline("run", "sft", data, *options).status == 0
    text = decoded(tmp_path / "other")[0]
    assert '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>' in text
    assert "None" not in text


def test_a_prompt_beside_whole_conversations_is_not_doubled(pipeline: Run, tmp_path: Path) -> None:
    """The sides' own shared turns are the prompt; a prompt column must agree with them."""
    user = {"role": "user", "content": "q"}
    sides = {
        "chosen": [user, {"role": "assistant", "content": "a"}],
        "rejected": [user, {"role": "assistant", "content": "b"}],
        "messages": [user, {"role": "assistant", "content": "a"}],
    }
    data = lines(tmp_path / "pairs.jsonl", {"prompt": "q", **sides}, {"prompt": "other", **sides})
    assert pipeline(*RM, data).status == 0
    assert read_manifest(tmp_path / "out")["rows"]["rejected_by_code"] == {"prompt_differs": 1}
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "out" / "tokenizer"))
    row = load_from_disk(str(tmp_path / "out"))["train"][0]
    assert tokenizer.decode(row["chosen_ids"]).count("user\nq") == 1


def test_a_margin_beyond_float32_is_refused(pipeline: Run, tmp_path: Path) -> None:
    """It would be stored as infinity."""
    pair = {"prompt": "q", "chosen": "a", "rejected": "b"}
    data = lines(tmp_path / "m.jsonl", {**pair, "margin": 1e300}, {**pair, "margin": 2})
    assert pipeline(*RM, data).status == 0
    assert read_manifest(tmp_path / "out")["rows"]["rejected_by_code"] == {"bad_margin": 1}


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_a_cut_off_zst_is_refused_whole(pipeline: Run, tmp_path: Path, keep: float) -> None:
    """No row of it can be trusted, as with gzip."""
    plain = b"".join(
        json.dumps({"question": str(i), "answer": "x" * i}).encode() + b"\n" for i in range(999)
    )
    packed = zstandard.ZstdCompressor().compress(plain)
    (tmp_path / "cut.jsonl.zst").write_bytes(packed[: int(len(packed) * keep)])
    ran = pipeline(*SFT, "cut.jsonl.zst")
    assert ran.status == 3
    assert "cut off" in ran.err


@pytest.mark.slow
def test_an_input_that_grew_in_the_middle_is_built_again(pipeline: Run, tmp_path: Path) -> None:
    """Equal first and last pieces do not make equal files."""
    row = json.dumps({"question": "q", "answer": "x" * 4000}).encode() + b"\n"
    piece = row * (-(-(16 << 20) // len(row)))
    data = tmp_path / "data.jsonl"
    data.write_bytes(piece * 2)
    assert pipeline(*SFT, data).status == 0
    first = read_manifest(tmp_path / "out")
    data.write_bytes(piece + row.replace(b"q", b"z") + piece[len(row) :] + piece)
    ran = pipeline(*SFT, data)
    assert "built:" in ran.err
    assert read_manifest(tmp_path / "out")["inputs"][0]["sha256"] != first["inputs"][0]["sha256"]


def test_a_damaged_cache_loses_no_refused_row(pipeline: Run, tmp_path: Path) -> None:
    """A part is found again only with its refused rows."""
    command = (*SFT, SAMPLES / "sft" / "chat.jsonl", "--cache-dir", "cache")
    assert pipeline(*command).status == 0
    before = (tmp_path / "out" / "rejects.jsonl").read_bytes()
    for path in (tmp_path / "cache").rglob("*.rejects.jsonl"):
        path.write_bytes(b"")
    assert pipeline(*command, "--layout", "ragged").status == 0
    assert (tmp_path / "out" / "rejects.jsonl").read_bytes() == before


def test_inputs_with_and_without_null_labels_go_together(pipeline: Run, tmp_path: Path) -> None:
    """Parts whose label columns differ in nulls are gathered as they are."""
    files = [SAMPLES / "prm" / name for name in ("math_shepherd.jsonl", "first_error.json")]
    ran = pipeline("run", "prm", "--model", "qwen2-1.5b", *files, "-o", "out")
    assert ran.status == 0, ran.err
    labels = [
        x for row in load_from_disk(str(tmp_path / "out"))["train"] for x in row["step_labels"]
    ]
    assert labels.count(None) == 13


def test_train_on_all_trains_every_turn(pipeline: Run, tmp_path: Path) -> None:
    """All turns but the first token, up to the last end of turn; a left-out answer stays out."""
    row = chat(("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four"))
    row["messages"][1]["weight"] = 0
    data = lines(tmp_path / "all.jsonl", row)
    assert pipeline(*SFT, data, "--train-on", "all", "--layout", "ragged").status == 0
    found = load_from_disk(str(tmp_path / "out"))["train"][0]
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "out" / "tokenizer"))
    trained = tokenizer.decode([label for label in found["labels"] if label != -100])
    assert "one" in trained
    assert "three" in trained
    assert "two" not in trained
    assert trained.endswith("four<|im_end|>")


@pytest.mark.parametrize(
    "label", [{"steps": [None]}, {"steps": [{"completions": "x"}]}, {"steps": 3}]
)
def test_a_malformed_row_costs_only_itself(pipeline: Run, tmp_path: Path, label: object) -> None:
    """A row that a format stumbles over is refused by name."""
    good = json.loads((SAMPLES / "prm" / "alternatives.jsonl").read_text("utf-8").splitlines()[0])
    data = lines(tmp_path / "p.jsonl", good, {"question": {"problem": "x"}, "label": label})
    options = ("--model", "qwen2-1.5b", "--format", "prm800k", "-o", "out")
    ran = pipeline("run", "prm", data, *options)
    assert ran.status == 0, ran.err
    assert read_manifest(tmp_path / "out")["rows"]["rejected"] == 1


def test_parquet_values_that_json_lacks(pipeline: Run, tmp_path: Path) -> None:
    """Bytes and times beside the texts do no harm."""
    import datetime

    row = {
        "question": "q",
        "answer": "a",
        "image": b"\x00\xff",
        "at": datetime.datetime(2024, 1, 1),
        "took": datetime.timedelta(seconds=3),
    }
    pq.write_table(pa.Table.from_pylist([row, row]), tmp_path / "rows.parquet")
    ran = pipeline(*SFT, "rows.parquet", "--ignore", "image")
    assert ran.status == 0, ran.err


def test_a_prompt_that_merges_with_the_answer_is_counted(pipeline: Run, tmp_path: Path) -> None:
    """A template whose prompt ends in a space: every such cut is found, letters included."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
    )
    (tmp_path / "t.jinja").write_text(template)
    data = lines(tmp_path / "d.jsonl", chat(("user", "a"), ("assistant", "hello")))
    ran = pipeline(*SFT, data, "--chat-template", "t.jinja")
    assert ran.status == 0, ran.err
    assert read_manifest(tmp_path / "out")["encoder"]["merged_cuts"] == 1


def test_a_system_text_that_names_a_control_token(pipeline: Run, tmp_path: Path) -> None:
    """It is text like any other."""
    data = lines(tmp_path / "d.jsonl", chat(("user", "a"), ("assistant", "b")))
    options = ("--system", "say <|im_end|>", "--layout", "ragged")
    assert pipeline(*SFT, data, *options).status == 0
    row = load_from_disk(str(tmp_path / "out"))["train"][0]
    model = read_manifest(tmp_path / "out")["model"]
    assert row["input_ids"].count(model["end_of_turn_id"]) == 3


def test_control_text_under_a_template_that_looks_into_texts(pipeline: Run, tmp_path: Path) -> None:
    """Qwen3's rows are rendered one by one; control text in them is still only text."""
    data = lines(
        tmp_path / "d.jsonl", chat(("user", "<|im_end|>\n<|im_start|>x"), ("assistant", "b"))
    )
    options = ("--model", "qwen3-0.6b", "--layout", "ragged")
    ran = pipeline("run", "sft", data, *options, "-o", "out")
    assert ran.status == 0, ran.err
    row = load_from_disk(str(tmp_path / "out"))["train"][0]
    model = read_manifest(tmp_path / "out")["model"]
    assert row["input_ids"].count(model["end_of_turn_id"]) == 2
    assert "<|im_end|>\n<|im_start|>x" in decoded(tmp_path / "out")[0]


def test_another_projects_manifest_is_no_build(pipeline: Run, tmp_path: Path) -> None:
    """A folder with somebody's manifest.json, or with more than a build in it, is not replaced."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"name": "my web app", "files": {}}')
    assert pipeline(*SFT, data).status == 2
    (folder / "manifest.json").unlink()
    assert pipeline(*SFT, data).status == 0
    (folder / "notes.txt").write_text("keep me")
    assert pipeline(*SFT, data, "--layout", "ragged").status == 2
    assert (folder / "notes.txt").read_text() == "keep me"


def test_a_link_as_output_keeps_pointing(pipeline: Run, tmp_path: Path) -> None:
    """What it points to is replaced, not the link."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    os.symlink("real", tmp_path / "out")
    for layout in ("packed", "ragged"):
        ran = pipeline(*SFT, data, "--layout", layout)
        assert ran.status == 0, ran.err
        assert (tmp_path / "out").is_symlink()
        assert read_manifest(tmp_path / "real")["layout"] == layout


def test_padding_cuts_nothing(pipeline: Run, tmp_path: Path) -> None:
    """A width below the longest example is refused."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    options = ("--model", "qwen2-1.5b", "-o", "e.arrow", "--until", "encode")
    assert pipeline("run", "sft", data, *options).status == 0
    ran = pipeline("stage", "pad", "e.arrow", "-o", "padded", "--pad-to", "16")
    assert ran.status == 2
    assert "more than the width 16" in ran.err


def test_json_lines_under_another_name(pipeline: Run, tmp_path: Path) -> None:
    """A .json file of lines is read by line: numbers are the file's, a bad one costs itself."""
    good, bad = json.dumps({"question": "a", "answer": "b"}), json.dumps({"question": "c"})
    text = f"{good}\n\n{bad}\nnot json\n{good}\n"
    (tmp_path / "rows.json").write_text(text)
    assert pipeline(*SFT, "rows.json").status == 0
    rejects = (tmp_path / "out" / "rejects.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(r)["id"] for r in rejects] == ["rows.json:3", "rows.json:4"]


def test_a_byte_order_mark_is_no_part_of_the_row(pipeline: Run, tmp_path: Path) -> None:
    """Offsets point at the row itself."""
    content = b'\xef\xbb\xbf{"question": "a"}\n{"question": "a", "answer": "b"}\n'
    (tmp_path / "bom.jsonl").write_bytes(content)
    ran = pipeline(*SFT, "bom.jsonl", "--format", "query_response")
    assert ran.status == 0, ran.err
    reject = json.loads((tmp_path / "out" / "rejects.jsonl").read_text("utf-8"))
    raw = reject["raw"].encode()
    assert content[reject["offset"] : reject["offset"] + len(raw)] == raw
