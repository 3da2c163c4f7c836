"""A refused build says what would let it pass; each refused row and sequence is recorded."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import NAME
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, Run, few, files_of, read_manifest, read_rows, table, write_rows

from pipeline.builder import rejects, stagewise
from pipeline.cli import cli
from pipeline.manifest.json_records import load, one_line
from pipeline.manifest.records import Reject
from pipeline.options.config import Config
from stages.readers import jsonl

GOOD = SAMPLES / "sft" / "word_problems.jsonl"
MODEL = ("--model", "qwen2-1.5b", "-o", "out")
KEPT = ["reasons.json", "rejects.jsonl", "report.html"]


def rows(path: Path, answers: list[str]) -> Path:
    """A file of questions with these answers."""
    return write_rows(path, ({"question": "q", "answer": a} for a in answers))


def names(folder: Path) -> list[str]:
    """Of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_refused_build_leaves_its_reasons(pipeline: Run, tmp_path: Path) -> None:
    """The folder has what ``--json`` prints, is replaced by the next and removed by a success."""
    pipeline("run", "sft", GOOD, *MODEL).ended()
    before = files_of(tmp_path / "out", with_run=True)
    failed = tmp_path / "out.failed"
    bad = rows(tmp_path / "bad.jsonl", [""] * 30 + ["a"] * 70)
    ran = pipeline("run", "sft", bad, *MODEL, "--json").refused(3)
    told = ran.told
    assert told["status"] == "refused"
    assert names(failed) == KEPT
    assert told["paths"]["failed"] == "out.failed"
    assert told["paths"]["rejects"] == "out.failed/rejects.jsonl"
    assert "out.failed/rejects.jsonl" in told["remedy"]
    assert told["remedy"] in ran.err
    reasons = json.loads((failed / "reasons.json").read_text())
    assert (reasons["figures"], reasons["message"]) == (told["figures"], told["message"])
    assert told["figures"]["by_code"]["empty_answer"]["rows"] == 30
    assert told["figures"]["share"] == 0.3
    assert "30 of 100 rows were refused (30.0%; at most 1.0% by --max-reject)" in told["message"]
    page = (failed / "report.html").read_text()
    assert "30 of 100" in page
    assert "empty_answer: the first rows" in page
    assert "<script" not in page
    assert files_of(tmp_path / "out", with_run=True) == before

    fewer = rows(tmp_path / "bad.jsonl", [""] * 20 + ["a"] * 80)
    pipeline("run", "sft", fewer, *MODEL).refused(3)
    assert len(read_rows(failed / "rejects.jsonl")) == 20
    least = json.loads((failed / "reasons.json").read_text())["figures"]
    assert least["passes_with_max_reject"] == 0.2
    pipeline("run", "sft", GOOD, *MODEL).ended()  # unchanged, and no longer failed
    assert not failed.exists()

    # A folder with other files is left alone, and the message names none.
    failed.mkdir()
    (failed / "notes.txt").write_text("mine")
    ran = pipeline("run", "sft", fewer, *MODEL).refused(3)
    assert "out.failed" not in ran.err
    assert names(failed) == ["notes.txt"]


@pytest.mark.parametrize(("content", "says"), [("\n\n", "is empty"), ('{"a": 1}\n', "no format")])
def test_what_is_refused_before_it_begins_leaves_its_reasons(
    pipeline: Run, tmp_path: Path, content: str, says: str
) -> None:
    """There are no refused rows then."""
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    pipeline("run", "sft", path, *MODEL).refused(3, says, "out.failed/report.html")
    assert names(tmp_path / "out.failed") == ["reasons.json", "report.html"]


def test_a_broken_expectation_leaves_the_verdict(pipeline: Run, tmp_path: Path) -> None:
    """A suite of the user's that the rows do not meet."""
    short = {"column": "n_tokens", "max_value": 1}
    kind = "expect_column_values_to_be_between"
    suite = [{"type": kind, "kwargs": short, "meta": {"severity": "critical"}}]
    (tmp_path / "short.json").write_text(
        json.dumps({"name": "short", "meta": {"table": "examples"}, "expectations": suite})
    )
    pipeline("run", "sft", GOOD, *MODEL, "--expectations", "short.json").refused(3)
    assert "validation.json" in names(tmp_path / "out.failed")
    verdict = json.loads((tmp_path / "out.failed" / "validation.json").read_text())
    assert verdict["passed"] is False
    assert "Expectations that do not hold" in (tmp_path / "out.failed" / "report.html").read_text()


@given(
    st.lists(st.integers(600, 90_000), min_size=1, max_size=80),
    st.integers(0, 30),
    st.integers(0, 500),
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
)
def test_the_offered_lengths_keep_their_word(
    long: list[int], others: int, good: int, limit: float
) -> None:
    """Counts are exact, all fit the longest, and the least one passes where the one below fails."""
    fits = rejects.fitting(long)
    assert all(count == sum(n <= length for n in long) for length, count in fits.items())
    assert fits[max(fits)] == len(long)
    ledger, count = rejects.Ledger(), len(long) + others + good
    for n in long:
        ledger.count("too_long", f"{n} tokens", "r")
    for _ in range(others):
        ledger.count("empty_answer", "", "r")
    config = Config.of("sft", ("x",), "m", Path("o"), max_reject=limit)
    (of_all,) = rejects.limits(config)
    error = rejects.error_of(ledger, count, left=True, config=config, limit=of_all)
    figures = error.figures
    at = figures["too_long"]["passes_at"]

    def passes(length: int) -> bool:
        left = others + sum(n > length for n in long)
        return not rejects.too_many(left, count, limit)

    if at is None:
        assert not passes(max(long))
    else:
        assert passes(at)
        assert at == 1024 or not passes(at - 1024) or at - 1024 < min(long)
    assert not rejects.too_many(ledger.rejected_rows, count, figures["passes_with_max_reject"])


EMPTY = {"e.jsonl": b"", "e.jsonl.gz": gzip.compress(b""), "e.json": b"[]", "b.jsonl": b"\n \n"}


def test_empty_files_among_many_are_a_choice(pipeline: Run, tmp_path: Path) -> None:
    """Refused, with the flag in the message; or a warning, and an input of 0 rows."""
    folder = tmp_path / "data"
    rows(folder / "a.jsonl", ["a", "b"])
    for name, content in EMPTY.items():
        (folder / name).write_bytes(content)
    command = ("run", "sft", folder, *MODEL)
    pipeline(*command).refused(3, "is empty (4 of 5 files are)", "--empty warn")
    planned = pipeline("plan", folder, *MODEL, "--empty", "warn", "--json").ended().told
    assert planned["rows"] == 2
    ran = pipeline(*command, "--empty", "warn").ended()
    inputs: list[dict[str, Any]] = read_manifest(tmp_path / "out")["inputs"]
    assert {one["path"]: one["rows"] for one in inputs} == {"a.jsonl": 2, **dict.fromkeys(EMPTY, 0)}
    assert "warning   empty: b.jsonl" in ran.err
    assert "already up to date" in pipeline(*command, "--empty", "warn").err
    rows(folder / "a.jsonl", [])
    pipeline(*command, "--empty", "warn").refused(3, "is empty")


def alternatives(*steps: tuple[list[dict[str, Any]], int | None]) -> str:
    """A row of completions and the chosen one of each step."""
    made = [{"completions": given, "chosen_completion": chosen} for given, chosen in steps]
    return json.dumps({"question": {"problem": "What?"}, "label": {"steps": made}}) + "\n"


def test_each_is_counted_by_its_code(pipeline: Run, tmp_path: Path) -> None:
    """Made = kept + rejected; rows stay used; the summary names what a used row lost."""
    given = {"a": 1, "b": -1, "c": None}
    good, bad, nothing = ({"text": text, "rating": rating} for text, rating in given.items())
    (tmp_path / "steps.jsonl").write_text(
        alternatives(([good, nothing, bad], 0), ([bad], None), ([good], 0))
        + alternatives(([nothing], None))
        + alternatives(([nothing, nothing], None))
        + "{}\n"
    )
    command = ("steps.jsonl", "--model", "qwen2-1.5b", "--format", "prm800k", "-o", "out")
    done = pipeline("run", "prm", *command).ended()
    manifest = read_manifest(tmp_path / "out")
    rows, examples = manifest["rows"], manifest["examples"]
    assert (rows["in"], rows["used"], rows["rejected"]) == (4, 1, 3)
    assert rows["rejected_by_code"] == {"bad_column": 1, "unrated_completion": 2}
    # of the first row three are kept, one has no rating, and one is behind the chain's end
    assert (examples["made"], examples["kept"], examples["rejected"]) == (7, 3, 4)
    assert examples["rejected_by_code"] == {"behind_chain_end": 1, "unrated_completion": 3}
    assert "1 example refused, of rows with other examples: behind_chain_end" in done.err
    found = [(r["id"], r["code"]) for r in read_rows(tmp_path / "out" / "rejects.jsonl")]
    assert found == [
        ("steps.jsonl:1#0", "unrated_completion"),
        ("steps.jsonl:1#4", "behind_chain_end"),
        ("steps.jsonl:2#0", "unrated_completion"),
        ("steps.jsonl:3#0", "unrated_completion"),
        ("steps.jsonl:3#1", "unrated_completion"),
        ("steps.jsonl:4#0", "bad_column"),
    ]
    pipeline("check", "out").ended()


KEYS = ["id", "source", "line", "offset", "stage", "code", "detail", "raw"]


# Rows that normalize refuses, that a later stage refuses, and that stay; a blank line, CRLF and
# bytes that are no UTF-8 among them.
BAD: dict[str, list[str]] = {}
for task, line in table("mixed_rows.jsonl"):
    BAD.setdefault(task, []).append(line.replace("LONG", "word " * 90))
OPTIONS = ("--model", NAME, "--max-length", "64", "--too-long", "reject", "--max-reject", "1")


@pytest.fixture
def here(tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


def _run(*words: object) -> None:
    """A command in this process."""
    ran = CliRunner().invoke(cli, list(map(str, words)))
    assert ran.exit_code == 0, ran.output


def written(task: str, folder: Path) -> Path:
    path = folder / "rows.jsonl"
    text = "".join(f"{row}\n" for row in BAD[task])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize("task", few(BAD, 1))
@pytest.mark.usefixtures("here")
def test_a_stage_writes_the_rejects_that_the_build_writes(task: str, tmp_path: Path) -> None:
    """``_run``, ``_run --until`` and ``stage`` by ``stage``: the same lines, keys and order."""
    source = written(task, tmp_path)
    stages = [name for kind, name, *_ in stagewise.stage_table() if kind == task]
    stages = stages[1 : stages.index("validate") + 1]
    options = ("--format", {"sft": "openai", "rm": "preference", "prm": "stepwise"}[task], *OPTIONS)
    _run("run", task, source, *options, "-o", "out")
    _run("run", task, source, *options, "-o", "until.arrow", "--until", "validate")
    _run("stage", "normalize", source, "--task", task, *options, "-o", "0.arrow")
    for number, stage in enumerate(stages):
        _run("stage", stage, f"{number}.arrow", "-o", f"{number + 1}.arrow")
    of_run = (tmp_path / "out" / "rejects.jsonl").read_bytes()
    assert (tmp_path / "until.arrow.rejects.jsonl").read_bytes() == of_run
    paths = [tmp_path / f"{number}.arrow.rejects.jsonl" for number in range(len(stages) + 1)]
    alone = [row for path in paths for row in read_rows(path)]
    wanted = read_rows(tmp_path / "out" / "rejects.jsonl")
    assert sorted(alone, key=lambda one: one["line"]) == wanted
    assert [list(one) for one in (*alone, *wanted)] == [KEYS] * len(wanted) * 2
    assert len({one["stage"] for one in wanted}) > 1


@pytest.mark.usefixtures("here")
def test_where_a_row_stands_does_not_depend_on_how_its_file_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines and offsets count from the file's start, and what stands there is the row."""
    source = written("sft", tmp_path)
    content = source.read_bytes()
    target = ("-o", "out.arrow", "--until", "validate", "--format", "openai")
    seen = []
    for size, splits in ((jsonl.SPLIT_BYTES, 1), (100, 5)):
        monkeypatch.setattr(jsonl, "SPLIT_BYTES", size)
        assert len(jsonl.READER.splits(str(source))) == splits
        _run("run", "sft", source, *OPTIONS, *target)
        seen.append((tmp_path / "out.arrow.rejects.jsonl").read_bytes())
    assert seen[0] == seen[1]
    lines = seen[0].splitlines()
    assert [one_line(load(Reject, line)).encode() for line in lines] == lines
    for reject in (load(Reject, line) for line in lines):
        assert reject.id == f"rows.jsonl:{reject.line}"
        row = content[reject.offset :].splitlines()[0]
        assert row == content.splitlines()[reject.line - 1]
        assert row.decode("utf-8", "backslashreplace") == reject.raw
