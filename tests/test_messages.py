"""One object for programs, whatever happens; lines of JSON while it happens; who is notified."""

import errno
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Make, Ran, Run, raised, read_manifest

from pipeline.builds import failed
from pipeline.messages import lines, result, session
from pipeline.messages.session import Session
from pipeline.report.headline import counted as on_a_page
from stages import errors
from stages.errors import counted, were

GOOD = SAMPLES / "sft" / "word_problems.jsonl"
MODEL = ("--model", "qwen2-1.5b")
SFT = ("run", "sft", GOOD, *MODEL, "-o", "out")
KEYS = "status code message remedy task build_id figures paths manifest".split()


def object_of(ran: Ran) -> dict[str, Any]:
    """The one object on stdout; nothing else stands there."""
    assert ran.out.count("\n") == 1, ran.out
    found: dict[str, Any] = json.loads(ran.out)
    assert [key for key in found if key != "commands"] == KEYS  # which only some errors have
    assert found["code"] == ran.status
    return found


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Rows of which too many are refused."""
    path = tmp_path / "bad.jsonl"
    path.write_text('{"question": "x", "answer": ""}\n' * 30 + '{"question": "x", "answer": "y"}\n')
    return path


@pytest.mark.slow
def test_other_commands_begin_with_status_and_code(pipeline: Run, built: Make) -> None:
    """What they print besides is theirs."""
    for command in (("plan", GOOD, *MODEL), ("check", built("sft", GOOD)), ("doctor", *MODEL)):
        told = pipeline(*command, "--json").told
        assert list(told.items())[:2] == [("status", "ok"), ("code", 0)]


def lines_of(text: str) -> list[dict[str, Any]]:
    """Lines of JSON, every one of them."""
    return [json.loads(line) for line in text.splitlines()]


def test_stderr_is_lines_of_json(pipeline: Run, tmp_path: Path, bad: Path) -> None:
    """One a phase with its rows, and the last says how it ended; also for errors, also in the
    arguments."""
    ran = pipeline(*SFT, "--log-format", "json")
    assert ran.out == "out/manifest.json\n"
    found, manifest = lines_of(ran.err), read_manifest(tmp_path / "out")
    phases = ["start", "encode", "plan", "write", "check", "report", "publish"]
    assert [line["event"] for line in found] == ["phase"] * len(phases) + ["end"]
    assert [line["phase"] for line in found[:-1]] == phases
    assert all(line["done"] == line["total"] for line in found[:-1])
    rows = {line["phase"]: line.get("rows") for line in found[:-1]}
    assert rows["encode"] == manifest["rows"]["in"]
    assert rows["write"] == manifest["splits"]["train"]["rows"]
    assert found[-1]["status"] == "built"
    for words, status in ((MODEL, "refused"), (MODEL[:1], "failed")):
        *_, last = lines_of(pipeline("run", "sft", bad, *words, "--log-format=json").err)
        assert (last["event"], last["level"], last["status"]) == ("end", "error", status)
        assert last["message"]


def test_a_phase_that_goes_on_is_told_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """By an alarm, which rings while nothing is finished."""
    assert lines.EVERY == 10
    log = lines.Log()
    with session.beating(log, 0.05):
        log("encode", 0, 7)
        log("encode", 3, 7)
        deadline = time.monotonic() + 10
        told = ""
        while told.count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
            told += capsys.readouterr().err
        log("encode", 7, 7)
    found = lines_of(told + capsys.readouterr().err)
    assert [(line["done"], line["total"]) for line in found[:3]] == [(3, 7)] * 3
    assert found[-1]["done"] == 7
    time.sleep(0.15)
    assert capsys.readouterr().err == ""


def test_a_notification_is_stopped_when_it_hangs(tmp_path: Path) -> None:
    """With all that its shell started."""
    began = time.monotonic()
    command = f"{sys.executable} -c 'import time; time.sleep(60)' | cat"
    wrong = session.notified(command, "x" * (1 << 20), seconds=0.5)
    assert wrong is not None
    assert "within 0.5 seconds" in wrong
    assert time.monotonic() - began < 30
    assert session.notified("true", "x" * (1 << 20)) is None  # which it does not read


def test_the_arguments_say_how_to_talk() -> None:
    """Before they are parsed; what stands after -- is data."""
    session = Session.of(["run", "--json", "--log-format", "json", "--notify=a b"])
    assert (session.in_json, session.in_lines, session.notify) == (True, True, "a b")
    session = Session.of(["run", "--", "--json", "--log-format=json"])
    assert (session.in_json, session.in_lines) == (False, False)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_copied_is_told_as_one_file(code: int) -> None:
    """Copying a folder gathers its failures, and loses their numbers but in words."""
    failed.begin()  # another test of this process may have published
    errors = [OSError(code, os.strerror(code), name) for name in "xy"]
    told = result.of_error(shutil.Error([("a", str(one.filename), str(one)) for one in errors]))
    assert told == result.of_error(errors[0])
    assert told.code == 5
    assert ("Make room" in told.remedy) == (code == errno.ENOSPC)


@pytest.mark.parametrize("code", sorted(result._OF_SYSTEM))
def test_what_the_system_refuses_is_told_with_path_and_fix(code: int) -> None:
    """Never by its number; of two paths, where it is full, the one that is written."""
    failed.begin()
    for error in (
        OSError(code, os.strerror(code), "a b/c"),
        OSError(code, "", "old", None, "a b/c"),
    ):
        told = result.of_error(error)
        wanted = "a b/c" if error.filename == "a b/c" or code in result._OF_TARGET else "old"
        assert told.code == 5
        assert wanted in told.message
        assert "Errno" not in told.message
        assert told.remedy.endswith(".")
    if code in (errno.ENOSPC, errno.EROFS):  # of which the system does not always name the file
        assert "Errno" not in result.of_error(OSError(code, os.strerror(code))).message


def test_what_was_given_is_not_offered() -> None:
    """An option of a remedy that the command has, in either spelling; another value of it is."""
    failed.begin()
    for given in (["--verify"], ["--where", "a=1"], ["--where=a=1"]):
        error = errors.DataError("No.", "Add --verify. Or leave rows out with --where a=1.")
        told = result.of_error(error, arguments=["run", "sft", "d.jsonl", *given])
        assert given[0].partition("=")[0] not in told.remedy
        assert told.remedy.count("--") == 1
    error = errors.DataError("No.", "Leave rows out with --where a=2.")
    told = result.of_error(error, arguments=["run", "sft", "d.jsonl", "--where", "a=1"])
    assert told.remedy == "Leave rows out with --where a=2."


def test_a_missing_permission_is_one_sentence() -> None:
    """Whoever meets it: what the command prints, and what reading a file raises."""
    failed.begin()
    error = PermissionError(errno.EACCES, "no", "a/b")
    read = raised(errors.SurroundingsError, errors.require_reading, error)
    told = result.of_error(error)
    assert read.args == errors.no_permission("a/b").args
    assert (told.message, told.remedy) == (read.what, read.remedy)


# One of something that is called as if it were many.
_WRONG = re.compile(
    r"(?<![\d.,:/-])1 (?:sampled |equal |trained |more )?(rows|examples|tokens|packs|pairs|steps"
    r"|labels|shards|files|inputs|findings|turns|sequences|probes|duplicates|expectations|conversations)\b(?!/s)"
)


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")]
)
def test_one_is_singular(count: int, words: str) -> None:
    """Nothing and many are not; pages part thousands by a narrow space."""
    assert counted(count, "row") == words
    assert on_a_page(count, "row") == words.replace(",", "\u202f")
    assert were(count) == ("was" if count == 1 else "were")


@pytest.mark.slow
def test_a_build_of_one_row_speaks_of_one_row(pipeline: Run, tmp_path: Path) -> None:
    """In plan, summary, show, check and on the page; so does a build that refuses one of two."""
    lines = (SAMPLES / "sft" / "chat.jsonl").read_text("utf-8").splitlines()
    empty = {"role": "assistant", "content": ""}
    bad = json.dumps({"messages": [{"role": "user", "content": "Hello?"}, empty]})
    (tmp_path / "one.jsonl").write_text(f"{lines[0]}\n", "utf-8")
    (tmp_path / "two.jsonl").write_text(f"{lines[0]}\n{bad}\n", "utf-8")
    said = []
    for name in ("one", "two"):
        data = (f"{name}.jsonl", "--model", "qwen2-1.5b", "--max-reject", "0.5")
        said += [
            pipeline("plan", "--task", "sft", *data),
            pipeline("run", "sft", *data, "-o", name),
        ]
        said += [pipeline("show", name), pipeline("check", name)]
        assert not said[-1].status
        page = (tmp_path / name / "report.html").read_text("utf-8")
        assert not _WRONG.search(re.sub("<[^>]*>", "", page))
    text = "\n".join(one.out + one.err for one in said)
    assert "in 1 of 1 sampled row" in text
    assert "1 of 2 rows" in text
    assert not _WRONG.search(text), _WRONG.search(text)
