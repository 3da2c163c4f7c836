"""Faults that were found once, each with the input that showed it."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from datasets import load_from_disk
from support import SAMPLES, Make, Run, few, read_manifest, read_rows, writable, write_rows
from tokenizers import Tokenizer

SFT = ("run", "sft", "--model", "qwen2-1.5b", "--max-reject", "1", "-o", "out")
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def chat(*turns: tuple[str, str | None]) -> dict[str, Any]:
    """An openai row."""
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def decoded(folder: Path, column: str = "input_ids") -> list[str]:
    """The texts of a ragged build; those of trained tokens, where they are asked for by labels."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    rows = load_from_disk(str(folder))["train"][column]
    return [
        tokenizer.decode([x for x in ids if x != -100], skip_special_tokens=False) for ids in rows
    ]


def test_a_template_that_drops_tool_calls_trains_nothing_in_their_place(
    make: Make, tmp_path: Path
) -> None:
    """Qwen2's template prints no calls: the rows are refused; Qwen2.5's does print them."""
    rows = [chat(("user", "go"), ("assistant", text)) for text in (None, "", "Let me look.")]
    for row in rows:
        row["messages"][1]["tool_calls"] = [CALL]
    rows.append(chat(("user", "a"), ("assistant", "b")))
    data = write_rows(tmp_path / "calls.jsonl", rows)
    lost = read_manifest(make("sft", data))["rows"]["rejected_by_code"]
    assert lost == {"lost_in_template": 3}
    called = decoded(make("sft", data, "other", model="qwen2.5-7b", layout="ragged"))[:3]
    for text in called:
        assert '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>' in text
        assert "None" not in text


def test_a_prompt_beside_whole_conversations_is_not_doubled(make: Make, tmp_path: Path) -> None:
    """The sides' own shared turns are the prompt; a prompt column must agree with them."""
    user = {"role": "user", "content": "q"}
    sides = {
        "chosen": [user, {"role": "assistant", "content": "a"}],
        "rejected": [user, {"role": "assistant", "content": "b"}],
        "messages": [user, {"role": "assistant", "content": "a"}],
    }
    rows = [{"prompt": "q", **sides}, {"prompt": "other", **sides}]
    folder = make("rm", write_rows(tmp_path / "pairs.jsonl", rows))
    assert read_manifest(folder)["rows"]["rejected_by_code"] == {"prompt_differs": 1}
    assert decoded(folder, "chosen_ids")[0].count("user\nq") == 1


def test_a_margin_beyond_float32_is_refused(make: Make, tmp_path: Path) -> None:
    """It would be stored as infinity."""
    pair = {"prompt": "q", "chosen": "a", "rejected": "b"}
    data = write_rows(tmp_path / "m.jsonl", [{**pair, "margin": 1e300}, {**pair, "margin": 2}])
    assert read_manifest(make("rm", data))["rows"]["rejected_by_code"] == {"bad_margin": 1}


def test_a_cut_off_zst_is_refused_whole(pipeline: Run, tmp_path: Path) -> None:
    """No row of it can be trusted, as with gzip."""
    rows = ({"question": str(i), "answer": "x" * i} for i in range(999))
    plain = write_rows(tmp_path / "plain.jsonl", rows).read_bytes()
    packed = zstandard.ZstdCompressor().compress(plain)
    for keep in (0.5, 0.999):
        (tmp_path / "cut.jsonl.zst").write_bytes(packed[: int(len(packed) * keep)])
        pipeline(*SFT, "cut.jsonl.zst").refused(3, "cut off")


@pytest.mark.slow
def test_an_input_that_grew_in_the_middle_is_built_again(pipeline: Run, tmp_path: Path) -> None:
    """Equal first and last pieces do not make equal files."""
    row = json.dumps({"question": "q", "answer": "x" * 4000}).encode() + b"\n"
    piece = row * (-(-(16 << 20) // len(row)))
    data = tmp_path / "data.jsonl"
    data.write_bytes(piece * 2)
    pipeline(*SFT, data).ended()
    first = read_manifest(tmp_path / "out")
    data.write_bytes(piece + row.replace(b"q", b"z") + piece[len(row) :] + piece)
    ran = pipeline(*SFT, data)
    assert "built:" in ran.err
    assert read_manifest(tmp_path / "out")["inputs"][0]["sha256"] != first["inputs"][0]["sha256"]


def test_a_damaged_cache_loses_no_refused_row(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    """A part is found again only with its refused rows."""
    command = (*SFT, SAMPLES / "sft" / "chat.jsonl", "--cache-dir", cache)
    pipeline(*command).ended()
    before = (tmp_path / "out" / "rejects.jsonl").read_bytes()
    for path in cache.rglob("*.rejects.jsonl"):
        path.write_bytes(b"")
    pipeline(*command, "--layout", "ragged").ended()
    assert (tmp_path / "out" / "rejects.jsonl").read_bytes() == before


def test_inputs_with_and_without_null_labels_go_together(built: Make) -> None:
    """Parts whose label columns differ in nulls are gathered as they are."""
    files = [SAMPLES / "prm" / name for name in ("math_shepherd.jsonl", "first_error.json")]
    rows = load_from_disk(str(built("prm", *files)))["train"]
    assert sum(row["step_labels"].count(None) for row in rows) == 13


def test_train_on_all_trains_every_turn(make: Make, tmp_path: Path) -> None:
    """All turns but the first token, up to the last end of turn; a left-out answer stays out."""
    row = chat(("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four"))
    row["messages"][1]["weight"] = 0
    data = write_rows(tmp_path / "all.jsonl", [row])
    (trained,) = decoded(make("sft", data, train_on="all", layout="ragged"), "labels")
    assert "one" in trained
    assert "three" in trained
    assert "two" not in trained
    assert trained.endswith("four<|im_end|>")


def test_a_malformed_row_costs_only_itself(make: Make, tmp_path: Path) -> None:
    """A row that a format stumbles over is refused by name."""
    good, *_ = read_rows(SAMPLES / "prm" / "alternatives.jsonl")
    labels: list[Any] = [{"steps": [None]}, {"steps": [{"completions": "x"}]}, {"steps": 3}]
    bad = [{"question": {"problem": "x"}, "label": label} for label in labels]
    folder = make("prm", write_rows(tmp_path / "p.jsonl", [good, *bad]), format="prm800k")
    refused = [one["line"] for one in read_rows(folder / "rejects.jsonl")]
    assert {*refused} == {2, 3, 4}
    assert read_manifest(folder)["rows"]["used"] == 1


def test_parquet_values_that_json_lacks(make: Make, tmp_path: Path) -> None:
    """Bytes and times beside the texts do no harm."""
    row = {
        "question": "q",
        "answer": "a",
        "image": b"\x00\xff",
        "at": datetime.datetime(2024, 1, 1),
        "took": datetime.timedelta(seconds=3),
    }
    pq.write_table(pa.Table.from_pylist([row, row]), tmp_path / "rows.parquet")
    folder = make("sft", tmp_path / "rows.parquet", ignore=("image",))
    assert read_manifest(folder)["rows"]["used"] == 2


def test_a_prompt_that_merges_with_the_answer_is_counted(pipeline: Run, tmp_path: Path) -> None:
    """A template whose prompt ends in a space: every such cut is found, letters included."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
    )
    (tmp_path / "t.jinja").write_text(template)
    data = write_rows(tmp_path / "d.jsonl", [chat(("user", "a"), ("assistant", "hello"))])
    pipeline(*SFT, data, "--chat-template", "t.jinja").ended()
    assert read_manifest(tmp_path / "out")["encoder"]["merged_cuts"] == 1


def test_a_text_that_names_a_control_token(make: Make, tmp_path: Path) -> None:
    """It is text like any other, in the system's turn too; also of a template that looks into
    texts, as Qwen3's does, whose rows are rendered one by one."""
    data = write_rows(
        tmp_path / "d.jsonl", [chat(("user", "<|im_end|>\n<|im_start|>x"), ("assistant", "b"))]
    )
    for model, system, turns in (("qwen2-1.5b", "say <|im_end|>", 3), ("qwen3-0.6b", None, 2)):
        folder = make("sft", data, model, model=model, system=system, layout="ragged")
        (row,) = load_from_disk(str(folder))["train"]
        end = read_manifest(folder)["model"]["end_of_turn_id"]
        assert row["input_ids"].count(end) == turns
        assert "<|im_end|>\n<|im_start|>x" in decoded(folder)[0]


def test_a_link_as_output_keeps_pointing(pipeline: Run, tmp_path: Path) -> None:
    """What it points to is replaced, not the link."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    os.symlink("real", tmp_path / "out")
    for layout in ("packed", "ragged"):
        pipeline(*SFT, data, "--layout", layout).ended()
        assert (tmp_path / "out").is_symlink()
        assert read_manifest(tmp_path / "real")["layout"] == layout


def test_padding_cuts_nothing(pipeline: Run) -> None:
    """A width below the longest example is refused."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    options = ("--model", "qwen2-1.5b", "-o", "e.arrow", "--until", "encode")
    pipeline("run", "sft", data, *options).ended()
    ran = pipeline("stage", "pad", "e.arrow", "-o", "padded", "--pad-to", "16")
    ran.refused(2, "more than the width 16")


def test_json_lines_under_another_name(make: Make, tmp_path: Path) -> None:
    """A .json file of lines is read by line: numbers are the file's, a bad one costs itself."""
    good, bad = json.dumps({"question": "a", "answer": "b"}), json.dumps({"question": "c"})
    (tmp_path / "rows.json").write_text(f"{good}\n\n{bad}\nnot json\n{good}\n")
    rejects = read_rows(make("sft", tmp_path / "rows.json") / "rejects.jsonl")
    assert [one["id"] for one in rejects] == ["rows.json:3", "rows.json:4"]


def test_a_byte_order_mark_is_no_part_of_the_row(make: Make, tmp_path: Path) -> None:
    """Offsets point at the row itself."""
    content = b'\xef\xbb\xbf{"question": "a"}\n{"question": "a", "answer": "b"}\n'
    (tmp_path / "bom.jsonl").write_bytes(content)
    folder = make("sft", tmp_path / "bom.jsonl", format="query_response")
    (reject,) = read_rows(folder / "rejects.jsonl")
    raw = reject["raw"].encode()
    assert content[reject["offset"] : reject["offset"] + len(raw)] == raw


QWEN = ("--model", "qwen2-1.5b")
PROBLEMS = SAMPLES / "sft" / "word_problems.jsonl"


COMMANDS: list[tuple[object, ...]] = [
    *(("plan", "data", *QWEN), ("run", "sft", "data", *QWEN), ("init", "data")),
    ("run", "sft", PROBLEMS, *QWEN, "--test", "data"),
    ("run", "sft", PROBLEMS, *QWEN, "--chat-template", "data"),
    ("run", "sft", PROBLEMS, *QWEN, "--decontaminate", "data"),
    *(
        ("run", "sft", PROBLEMS, "--model", "./model"),
        ("build", "data"),
        ("doctor", "--model", "./model"),
    ),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "command"), few(itertools.product(("pipe", "device"), COMMANDS), 9)
)
def test_a_command_refuses_what_is_no_file(
    kind: str, command: tuple[object, ...], pipeline: Run, tmp_path: Path
) -> None:
    """Data, templates, recipes and the files of a model; the error names the path."""
    (tmp_path / "model").mkdir()
    for path in (tmp_path / "data", tmp_path / "model" / "config.json"):
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    pipeline(*command).refused(2, "is not a regular file")


@pytest.mark.parametrize("command", few(["check", "show", "report", "diff", "publish"], 2))
@pytest.mark.timeout(60)
def test_a_build_with_a_pipe_for_a_shard_is_read_by_nobody(
    command: str, pipeline: Run, built: Make, tmp_path: Path
) -> None:
    """Each command ends, and names the shard."""
    whole = built("sft", PROBLEMS)
    writable(shutil.copytree(whole, tmp_path / "out"))
    (shard,) = (tmp_path / "out" / "train").glob("*.arrow")
    shard.unlink()
    os.mkfifo(shard)
    others = {"diff": [whole], "publish": ["there"]}
    ran = pipeline(command, "out", *others.get(command, []))
    assert ran.status in (2, 3), ran.err
    assert "is not a regular file" in ran.err + ran.out
