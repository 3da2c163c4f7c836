"""Real input files: counts that are known, ids that are Hugging Face's."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import load_from_disk
from support import Make, Run, few, read_manifest, read_rows, sweep, table
from transformers import AutoTokenizer

from benchmarks import cases as every_case
from pipeline.tasks import kind_of
from stages import contract, errors, formats
from stages.normalize import evidence, stage

pytestmark = pytest.mark.cases


Rows = Callable[..., tuple[Path, dict[str, Any], Any]]


@pytest.fixture
def build(built: Make) -> Rows:
    """Makes a ragged build; gives its folder, its manifest and its rows."""

    def run(*arguments: object) -> tuple[Path, dict[str, Any], Any]:
        folder = built(*arguments, "--layout", "ragged")
        return folder, read_manifest(folder), load_from_disk(str(folder))["train"]

    return run


# By hand: examples, markers, good, bad and unlabelled steps.
COUNTED = {name: tuple(counts) for name, counts in table("counted_cases.jsonl")}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("data", few(COUNTED, 1))
def test_prm_counts(cases: Path, build: Rows, data: str) -> None:
    """Examples, markers and labels as counted in the files by hand, read back from the shards."""
    asked = ("--ignore", "label.finish_reason", "--ignore", "is_initial_screening_question")
    _, manifest, rows = build("prm", cases / "prm" / data, *asked * ("raw6" in data))
    model = manifest["model"]
    ids = [i for row in rows for i in row["input_ids"]]
    labels = [i for row in rows for i in row["labels"]]
    assert COUNTED[data] == (
        len(rows),
        ids.count(model["step_token_id"]),
        labels.count(model["good_token_id"]),
        labels.count(model["bad_token_id"]),
        sum(row["step_labels"].count(None) for row in rows),
    )


@pytest.mark.slow
def test_gsm8k_ids_are_hugging_faces(cases: Path, build: Rows) -> None:
    """Every row is used, and its ids equal apply_chat_template and the Qwen2 ChatML by hand."""
    data = cases / "sft" / "gsm8k_train" / "train.jsonl"
    folder, manifest, rows = build("sft", data)
    assert manifest["rows"]["in"] == manifest["rows"]["used"] == len(rows) == 7473
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    source = read_rows(data)
    texts = []
    for row in source:
        messages = [
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": row["answer"]},
        ]
        texts.append(tokenizer.apply_chat_template(messages, tokenize=False))
        by_hand = (
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            f"<|im_start|>user\n{row['question']}<|im_end|>\n"
            f"<|im_start|>assistant\n{row['answer']}<|im_end|>\n"
        )
        assert texts[-1] == by_hand
    ids = tokenizer(texts)["input_ids"]
    assert [row["input_ids"] for row in rows] == ids
    assert all(row["labels"][-2] == tokenizer.eos_token_id for row in rows)


# file, task, reading, examples, codes of the refused rows
EVERY: list[Any] = table("cases.toml")["every"]
UNPAIRED = [
    f"rm/trl_zen/{kind}_unpaired_preference.jsonl" for kind in ("conversational", "standard")
]


def rows_of(path: Path) -> list[Any]:
    """The rows of a case, read without any reader of ours."""
    if path.is_dir():
        return list(load_from_disk(str(path))["train"])
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    text = path.read_text("utf-8")
    lines = [line for line in text.split("\n") if line.strip()]  # they end there and nowhere else
    return json.loads(text) if path.suffix == ".json" else list(map(json.loads, lines))


def test_every_case_is_read_as_what_it_is(cases: Path) -> None:
    """The reading, how many examples it gives, and what is refused; no data file is left out."""
    for name, task, reading, examples, codes in EVERY:
        rows = rows_of(cases / name)
        templated = "dolly" in name
        options = contract.FormatOptions(already_templated=templated)
        if templated:
            with pytest.raises(errors.DataError, match="1,000 of 1,000 sampled rows") as caught:
                evidence.detect(rows, kind_of(task), name)
            assert "--already-templated" in caught.value.remedy
        try:
            found = evidence.detect(rows, kind_of(task), name, options)
            shown, said = found.reading, found.evidence
        except evidence.UnsettledError as asked:
            shown, said = (asked.remedy, reading)[f"--format {reading}" in asked.remedy], ""
        assert shown == reading, name
        assert f"in {len(rows):,} of {len(rows):,} sampled rows" in said or not said, name
        if "twitter" in name:  # a column Label, which pipeline run asks about
            rows = [{key: value for key, value in row.items() if key != "Label"} for row in rows]
        normalize = stage.Normalize(kind_of(task), formats.load(reading), options)
        made = normalize([contract.Record(i, 0, b"", row) for i, row in enumerate(rows)])
        refused = Counter(made["reject_code"].drop_null().to_pylist())
        assert refused == codes, name
        assert made.num_rows - refused.total() == examples, name
    files = {p for p in cases.rglob("*") if p.suffix in (".json", ".jsonl", ".parquet", ".arrow")}
    named = [cases / name for name, *_ in EVERY] + [cases / name for name in UNPAIRED]
    assert all(any(path.is_relative_to(case) for case in named) for path in files)


# Of the last one, a fifth of the rows has no question.
REFUSED = {
    *UNPAIRED,
    "rm/trl_zen/standard_implicit_prompt_preference.jsonl",
    "sft/openai_toy_chat/toy_chat_fine_tuning.jsonl",
}
FLAGS = {"", "`--already-templated`", "`--reasoning-in think`", "`--ignore Label`"}


@sweep(1)
@pytest.mark.parametrize("share", range(3))
def test_every_case_is_built_with_at_most_one_flag(cases: Path, pipeline: Run, share: int) -> None:
    """Or refused with status 3."""

    def start(*words: str) -> tuple[int, str, str]:
        ran = pipeline(*words)
        return ran.status, ran.out, ran.err

    every = every_case.inputs(cases)
    assert len(every) == len(EVERY) + len(UNPAIRED)
    built = [every_case.build(task, path, cases, start) for task, path in every[share::3]]
    lines = every_case.table(built).splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
    assert all((row[3] == "3") == (row[1] in REFUSED) for row in rows)
    assert all(row[3] in "03" for row in rows)
    assert {row[2] for row in rows} <= FLAGS | {"`--where is_initial_screening_question=false`"}
