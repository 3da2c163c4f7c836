"""Builds leave out the rows that ask what an evaluation asks, and list each with both texts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import load_from_disk
from support import Make, Run, files_of, read_manifest, read_rows, table_bytes, write_rows

from stages.overlap.words import plain

WORDS = (
    "apples boats coins drums eggs flags grapes hats inks jars kites lamps maps nets market "
    "harbour station library garden bakery museum workshop orchard school carries brings sends"
).split()
FULL_WIDTH = {ord(str(n)): chr(0xFF10 + n) for n in range(10)}


def _problems(count: int, seed: int) -> list[str]:
    """Different problems, of words and numbers."""
    draw = random.Random(seed)
    parts = (
        [f"{draw.randint(1000, 9999):,} {' '.join(draw.sample(WORDS, 6))}" for _ in range(3)]
        for _ in range(count)
    )
    return [f"{one}, {other} and {last}. How many things are there?" for one, other, last in parts]


def _paraphrased(question: str, way: int) -> str:
    """The same in another case, with other digits and other spaces."""
    plain = question.replace(",", "") if way % 2 else question.replace(" and ", "  and\n")
    spaced = [plain.replace(" ", "  "), plain.replace(" ", ""), plain.replace(" ", "\u00a0")]
    text = spaced[way % 3]
    text = text.translate(FULL_WIDTH) if way % 4 < 2 else text
    return text.upper() if way % 5 < 3 else text.swapcase()


ASKED = _problems(40, seed=1)
INNOCENT = _problems(300, seed=2)
SHORT = ["What is the capital of Peru?", "2 + 2 = ?", "Wer schrieb den Faust?"]
MODEL = ("--model", "qwen2-1.5b")


def _train(path: Path, questions: list[str]) -> Path:
    rows = [{"prompt": one, "completion": f"Answer {n}."} for n, one in enumerate(questions)]
    return write_rows(path, rows)


def _build(pipeline: Run, train: Path, out: Path, *words: object) -> dict[str, Any]:
    pipeline("run", "sft", train, *MODEL, "-o", out, *words).ended()
    return read_manifest(out)


def _hits(out: Path) -> list[dict[str, Any]]:
    return read_rows(out / "contaminated.jsonl")


@pytest.fixture(scope="module")
def planted(built: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, set[str]]:
    """Rows of which some ask what an evaluation asks, their build, and the ids of those rows."""
    folder = tmp_path_factory.mktemp("planted")
    copies = ASKED[:20] + [_paraphrased(one, way) for way, one in enumerate(ASKED[20:])]
    copies += ["what is the capital of peru", "2+2=", "WER SCHRIEB DEN FAUST?!"]
    questions = INNOCENT + copies
    order = list(range(len(questions)))
    random.Random(3).shuffle(order)
    train = _train(folder / "train.jsonl", [questions[i] for i in order])
    ids = {f"train.jsonl:{line}" for line, i in enumerate(order, 1) if i >= len(INNOCENT)}
    asked = [{"id": n, "question": one, "answer": "?"} for n, one in enumerate(ASKED + SHORT)]
    evals = write_rows(folder / "evals.jsonl", asked)
    return train, built("sft", train, "--decontaminate", f"held-out={evals}"), ids


def test_every_planted_copy_is_found_and_no_innocent_row(
    planted: tuple[Path, Path, set[str]], pipeline: Run
) -> None:
    """Exact copies, and those in another case, with other digits and spaces; short ones too."""
    train, out, ids = planted
    manifest, hits = read_manifest(out), _hits(out)
    assert {hit["id"] for hit in hits} == ids
    assert manifest["rows"] | {"in": 343, "used": 300, "contaminated": 43} == manifest["rows"]
    (record,) = manifest["decontamination"]["evaluations"]
    assert (record["name"], record["column"]) == ("held-out", "question")
    assert (record["questions"], record["found"], record["rows"]) == (43, 43, 43)
    asked = ASKED + SHORT
    assert all(hit["question"] == asked[hit["line"] - 1] for hit in hits)
    assert {hit["share"] for hit in hits} == {1.0}
    rows = read_rows(train)
    for hit in hits:
        assert hit["said"] == rows[int(hit["id"].rpartition(":")[2]) - 1]["prompt"]
    pipeline("check", out).ended()


def test_hits_are_shown_with_both_texts(
    planted: tuple[Path, Path, set[str]], pipeline: Run
) -> None:
    """In the order of the rows; as an object for programs."""
    _, out, ids = planted
    shown = pipeline("overlaps", out, "--limit", 0).out
    assert all(name in shown for name in ids)
    assert "held-out: 43 rows left out for 43 of 43 questions" in shown
    assert "WER SCHRIEB DEN FAUST?!" in shown
    assert "Wer schrieb den Faust?" in shown
    found = pipeline("overlaps", out, "--json", "--limit", 3).told
    assert found["contaminated"] == _hits(out)[:3]
    assert found["decontamination"] == read_manifest(out)["decontamination"]
    pipeline("overlaps", out, "--evaluation", "none").refused(2, "held-out")


@pytest.mark.slow
def test_another_share_encodes_nothing_again(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    """A part has what each row shares, however little; the limit is for the choice."""
    question = "ash birch cedar date elm fir gum hazel iris juniper kauri larch maple oak"
    half = "ash birch cedar date elm fir gum hazel and then something else"  # 8 of 14 words
    train = _train(tmp_path / "t.jsonl", [question, half, "What else is there?"])
    evals = write_rows(tmp_path / "e.jsonl", [{"problem": question}])
    counts = []
    for number, share in enumerate(("0.5", "0.6", "0")):
        words = ("--decontaminate", evals, "--overlap-share", share, "--cache-dir", cache)
        manifest = _build(pipeline, train, tmp_path / f"out{number}", *words)
        parts = list((cache / "parts").rglob("*.arrow"))
        counts.append((manifest["rows"]["contaminated"], len(parts)))
    assert counts == [(2, 1), (1, 1), (2, 1)]
    assert [hit["share"] for hit in _hits(tmp_path / "out0")] == [1.0, round(8 / 14, 6)]
    assert _hits(tmp_path / "out0")[1]["match"] == "ash birch cedar date elm fir gum hazel"


def test_answers_are_searched_where_asked(pipeline: Run, tmp_path: Path) -> None:
    """A row that quotes a question in its answer asks something else."""
    rows = [{"prompt": "Invent a problem.", "completion": f"Here is one: {ASKED[0]}"}]
    rows += [{"prompt": one, "completion": "x"} for one in INNOCENT[:5]]
    train = write_rows(tmp_path / "t.jsonl", rows)
    evals = write_rows(tmp_path / "e.jsonl", [{"problem": ASKED[0]}])
    words = ("--decontaminate", evals)
    assert not pipeline("plan", train, *MODEL, *words, "--json").told["contaminated"]["examples"]
    words = (*words, "--overlap-in", "row")
    assert _build(pipeline, train, tmp_path / "out", *words)["rows"]["used"] == 5
    (hit,) = _hits(tmp_path / "out")
    assert hit["id"] == "t.jsonl:1"
    assert ASKED[0] in hit["said"]


def test_evaluations_of_every_kind(pipeline: Run, tmp_path: Path) -> None:
    """Each of two questions, one of them planted; the column is named, or known by its name."""
    asked = ASKED[:2]
    rows: list[dict[str, Any]] = [{"task_id": "x", "goal_text": one} for one in asked]
    parquet = table_bytes(pa.Table.from_pylist(rows), "parquet", 1)
    (tmp_path / "e.parquet").write_bytes(parquet)
    (tmp_path / "e.json").write_text(json.dumps(rows))
    (tmp_path / "e.txt").write_text("\n".join(asked) + "\n\n")
    answer = {"role": "assistant", "content": "x"}
    turns = [[{"role": "user", "content": one}, answer] for one in asked]
    write_rows(tmp_path / "e.jsonl", [{"meta": {"turns": one}} for one in turns])
    train = _train(tmp_path / "t.jsonl", [ASKED[1], *INNOCENT[:4]])
    named = ("p=e.parquet#goal_text", "j=e.json#goal_text", "t=e.txt", "l=e.jsonl#meta.turns")
    words = [word for one in named for word in ("--decontaminate", one)]
    manifest = _build(pipeline, train, tmp_path / "out", *words)
    assert {(hit["id"], hit["line"]) for hit in _hits(tmp_path / "out")} == {("t.jsonl:1", 2)}
    evaluations = manifest["decontamination"]["evaluations"]
    assert [(one["questions"], one["found"]) for one in evaluations] == [(2, 1)] * 4


def test_a_question_in_several_columns(pipeline: Run, tmp_path: Path) -> None:
    """An instruction is a question together with its input; others are joined where named so."""
    begin = "Find the noun phrase in the following sentence."
    train = _train(tmp_path / "t.jsonl", [f"{begin} {ASKED[0]}", f"{begin} {ASKED[1]}"])
    rows = [{"instruction": begin, "input": ASKED[0], "output": "x"}]
    alpaca = write_rows(tmp_path / "a.jsonl", rows)
    named = write_rows(tmp_path / "b.jsonl", [{"passage": begin, "asked": ASKED[0]}])
    words = ("--decontaminate", alpaca, "--decontaminate", f"{named}#passage+asked")
    manifest = _build(pipeline, train, tmp_path / "out", *words)
    assert {hit["id"] for hit in _hits(tmp_path / "out")} == {"t.jsonl:1"}
    columns = [one["column"] for one in manifest["decontamination"]["evaluations"]]
    assert columns == ["instruction+input", "passage+asked"]


def test_questions_that_cannot_be_judged_are_told(pipeline: Run, tmp_path: Path) -> None:
    """Empty ones, those without letters, and rows that cannot be read."""
    train = _train(tmp_path / "t.jsonl", INNOCENT[:4])
    evals = tmp_path / "e.jsonl"
    good = json.dumps({"question": ASKED[0]})
    evals.write_text(f'{good}\n{{"question": ""}}\n{{"question": "?!"}}\n{{"other": 1}}\n[1\n')
    ran = pipeline("run", "sft", train, *MODEL, "-o", "out", "--decontaminate", evals).ended()
    assert "e: no row could be compared with its lines 2, 3, 4, 5" in ran.err
    (record,) = read_manifest(tmp_path / "out")["decontamination"]["evaluations"]
    assert (record["questions"], record["not_judged"]) == (1, [2, 3, 4, 5])


def test_evaluations_that_cannot_be_used(pipeline: Run, tmp_path: Path) -> None:
    """Each is named, with the way on."""
    train = _train(tmp_path / "t.jsonl", INNOCENT[:4])
    write_rows(tmp_path / "e.jsonl", [{"zzz": ASKED[0]}])
    (tmp_path / "q.txt").write_text("A question?\n")
    (tmp_path / "e.bin").write_bytes(b"x")
    for words, why in (
        ("--decontaminate none.jsonl", "There is no evaluation file none.jsonl"),
        ("--decontaminate e.jsonl", "its columns are: zzz"),
        ("--decontaminate e.jsonl#other", "no text in the column 'other'"),
        ("--decontaminate a=q.txt --decontaminate a=e.jsonl#zzz", "called a"),
        ("--decontaminate e.bin", "no reader is for its name"),
    ):
        pipeline("run", "sft", train, *MODEL, "-o", "out", *words.split()).refused(2, why)


def test_rows_of_token_ids_are_not_passed_over(pipeline: Run, tmp_path: Path) -> None:
    """They have no text that could be compared."""
    train = write_rows(tmp_path / "t.jsonl", [{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}] * 4)
    evals = write_rows(tmp_path / "e.jsonl", [{"question": ASKED[0]}])
    given = (*MODEL, "-o", "out", "--format", "pretokenized")
    for words in (["--decontaminate", evals], ["--near-dedup", "0.8"]):
        said = pipeline("run", "sft", train, *given, *words)
        said.refused(2, "Rows of token ids cannot be compared")


def test_a_build_of_nothing_but_evaluations_is_refused(pipeline: Run, tmp_path: Path) -> None:
    """And the message says why nothing is left."""
    train = _train(tmp_path / "t.jsonl", ASKED[:5])
    evals = write_rows(tmp_path / "e.jsonl", [{"question": one} for one in ASKED])
    ran = pipeline("run", "sft", train, *MODEL, "-o", "out", "--decontaminate", evals)
    ran.refused(3, "every example asks what an evaluation file asks")


@pytest.mark.slow
def test_the_split_and_doubles_come_after(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    """What an evaluation asks is no part of a side's share; the ledger holds, and the bytes do not
    depend on the number of workers."""
    questions = [*INNOCENT[:60], *INNOCENT[:5], ASKED[0], ASKED[0]]
    rows = [{"prompt": one, "completion": "x"} for one in questions]
    train = write_rows(tmp_path / "t.jsonl", rows)
    evals = write_rows(tmp_path / "e.jsonl", [{"question": ASKED[0]}])
    words = ("--decontaminate", evals, "--dedup", "--test-size", "0.3")
    rows_of = _build(pipeline, train, tmp_path / "out", *words)["rows"]
    assert (rows_of["used"], rows_of["duplicates"], rows_of["contaminated"]) == (60, 5, 2)
    assert sum(map(len, load_from_disk(str(tmp_path / "out")).values())) >= 2
    pipeline("check", tmp_path / "out").ended()
    _build(pipeline, train, tmp_path / "two", *words, "--workers", 2, "--cache-dir", cache)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "two")


def test_a_plan_says_what_would_be_left_out(pipeline: Run, tmp_path: Path) -> None:
    """Of its sample."""
    train = _train(tmp_path / "t.jsonl", [*ASKED[:3], *INNOCENT[:7]])
    evals = write_rows(tmp_path / "e.jsonl", [{"question": one} for one in ASKED])
    asked = ("plan", train, *MODEL, "--decontaminate", evals)
    said = "3 examples of 10 sampled rows with a question of an evaluation"
    assert said in pipeline(*asked).ended().out
    found = pipeline(*asked, "--json").told
    assert found["contaminated"] == {"examples": 3, "first": [f"t.jsonl:{n}" for n in (1, 2, 3)]}


def test_evaluations_of_a_recipe_count_from_its_folder(pipeline: Run, tmp_path: Path) -> None:
    """Paths and globs, with a name or a column; two files cannot have one name."""
    folder = tmp_path / "recipes [1]"
    for name in ("evals/a/one.jsonl", "evals/b/two.jsonl", "evals/x=y#z.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_rows(folder / name, [{"ask": ASKED[0]}])
    _train(folder / "t.jsonl", [ASKED[0], *INNOCENT[:3]])
    files = '["mine=evals/*/*.jsonl#ask", "evals/x=y#z.jsonl#ask"]'
    head = 'task = "sft"\nmodel = "qwen2-1.5b"\ndata = ["t.jsonl"]\noutput = "out"\nkeep = 0\n'
    (folder / "r.toml").write_text(f"{head}decontaminate = {files}\n")
    pipeline("build", folder / "r.toml").ended()
    records = read_manifest(folder / "out")["decontamination"]["evaluations"]
    assert [one["name"] for one in records] == ["mine/one", "mine/two", "x=y#z"]
    assert [one["rows"] for one in records] == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.cases
def test_real_rows_are_found_among_real_rows(cases: Path, pipeline: Run, tmp_path: Path) -> None:
    """Every hundredth question of a training set is an evaluation: each is found, and of the other
    rows only those that share more than half of a question."""
    data = cases / "sft" / "gsm8k_train" / "train.jsonl"
    rows = read_rows(data)
    asked = range(0, len(rows), 100)
    evals = write_rows(tmp_path / "e.jsonl", [{"question": rows[n]["question"]} for n in asked])
    _build(pipeline, data, tmp_path / "out", "--decontaminate", evals)
    hits = _hits(tmp_path / "out")
    whole = {
        int(hit["id"].rpartition(":")[2]) - 1: hit["line"] - 1 for hit in hits if hit["contained"]
    }
    assert whole == {row: n for n, row in enumerate(asked)}
    others = [hit for hit in hits if not hit["contained"]]
    assert len(others) < 20
    for hit in others:
        question = rows[asked[hit["line"] - 1]]["question"]
        assert hit["share"] > 0.5
        assert hit["match"] in " ".join(plain(question).decode().split())


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(
    ("name", "evaluation"),
    [
        ("sft/sharegpt_zh/sharegpt_zh_1K_format.jsonl", "rm/medicalgpt_dpo_zh/dpo_zh_500.jsonl"),
        ("sft/alpaca_en_demo/alpaca_en_demo.json", "sft/gsm8k_train/train.jsonl"),
    ],
)
def test_other_real_rows_are_innocent(
    name: str, evaluation: str, cases: Path, pipeline: Run, tmp_path: Path
) -> None:
    """Chinese conversations and English instructions, among questions of other sets."""
    given = ("--max-reject", 1, "--max-length", 32768, "--decontaminate")
    manifest = _build(pipeline, cases / name, tmp_path / "out", *given, cases / evaluation)
    assert manifest["rows"]["contaminated"] == 0
    assert manifest["decontamination"]["evaluations"][0]["questions"] >= 400
