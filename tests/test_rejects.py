"""One record of refused rows, whichever command refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import NAME

from pipeline.builder.stage_table import stage_table
from pipeline.cli import cli
from pipeline.manifest.json_records import load, one_line
from pipeline.manifest.records import Reject
from stages.readers import jsonl

KEYS = ["id", "source", "line", "offset", "stage", "code", "detail", "raw"]


def turns(*texts: str) -> str:
    roles = ("user", "assistant") * len(texts)
    said = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return json.dumps({"messages": said}, ensure_ascii=False)


# Rows that normalize refuses, that a later stage refuses, and that stay; a blank line, CRLF and
# bytes that are no UTF-8 among them.
BAD = {
    "sft": [
        turns("Grüße?", "Ja."),
        '{"messages": ',
        "",
        turns("What?", ""),
        turns("Long?", "word " * 90),
        turns("Odd role?", "ok").replace('"assistant"', '"oracle"'),
        turns("Long again, é?", "wörd " * 90) + "\r",
        '{"messages": [{"role": "user", "content": "\\ud800"}]}',
        turns("Is it?", "It is."),
        "\udcff\udcfe",
    ],
    "rm": [
        '{"prompt": "p", "chosen": "good", "rejected": "bad"}',
        '{"prompt": "p", "chosen": "same", "rejected": "same"}',
        '{"prompt": "p", "chosen": "' + "word " * 90 + '", "rejected": "bad"}',
        '{"prompt": "p", "chosen": "good"}',
        '{"prompt": "q", "chosen": "good", "rejected": "worse"}',
    ],
    "prm": [
        '{"prompt": "p", "completions": ["one", "two"], "labels": [1, 0]}',
        '{"prompt": "p", "completions": ["one", "two"], "labels": [1]}',
        '{"prompt": "p", "completions": ["' + "word " * 90 + '"], "labels": [1]}',
        '{"prompt": "q", "completions": ["one"], "labels": [0]}',
    ],
}
OPTIONS = ("--model", NAME, "--max-length", "64", "--too-long", "reject", "--max-reject", "1")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


def run(*words: object) -> None:
    """A command in this process."""
    ran = CliRunner().invoke(cli, list(map(str, words)))
    assert ran.exit_code == 0, ran.output


def written(task: str, folder: Path) -> Path:
    path = folder / "rows.jsonl"
    text = "".join(f"{row}\n" for row in BAD[task])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize("task", BAD)
def test_a_stage_writes_the_rejects_that_the_build_writes(task: str, tmp_path: Path) -> None:
    """``run``, ``run --until`` and ``stage`` by ``stage``: the same lines, keys and order."""
    source = written(task, tmp_path)
    stages = [name for kind, name, *_ in stage_table() if kind == task]
    stages = stages[1 : stages.index("validate") + 1]
    options = ("--format", {"sft": "openai", "rm": "preference", "prm": "stepwise"}[task], *OPTIONS)
    run("run", task, source, *options, "-o", "out")
    run("run", task, source, *options, "-o", "until.arrow", "--until", "validate")
    run("stage", "normalize", source, "--task", task, *options, "-o", "0.arrow")
    for number, stage in enumerate(stages):
        run("stage", stage, f"{number}.arrow", "-o", f"{number + 1}.arrow")
    of_run = (tmp_path / "out" / "rejects.jsonl").read_bytes()
    assert (tmp_path / "until.arrow.rejects.jsonl").read_bytes() == of_run
    paths = [tmp_path / f"{number}.arrow.rejects.jsonl" for number in range(len(stages) + 1)]
    alone = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    wanted = [json.loads(line) for line in of_run.splitlines()]
    assert sorted(alone, key=lambda one: one["line"]) == wanted
    assert [list(one) for one in (*alone, *wanted)] == [KEYS] * len(wanted) * 2
    assert len({one["stage"] for one in wanted}) > 1


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
        run("run", "sft", source, *OPTIONS, *target)
        seen.append((tmp_path / "out.arrow.rejects.jsonl").read_bytes())
    assert seen[0] == seen[1]
    lines = seen[0].splitlines()
    assert [one_line(load(Reject, line)).encode() for line in lines] == lines
    for reject in (load(Reject, line) for line in lines):
        assert reject.id == f"rows.jsonl:{reject.line}"
        row = content[reject.offset :].splitlines()[0]
        assert row == content.splitlines()[reject.line - 1]
        assert row.decode("utf-8", "backslashreplace") == reject.raw
