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
from support import SAMPLES, Make, Ran, Run, read_manifest

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


def test_a_build_is_built_then_unchanged(pipeline: Run, tmp_path: Path) -> None:
    """The object has the manifest, and its figures are the manifest's."""
    ran = pipeline(*SFT, "--json", "--quiet")
    built = object_of(ran)
    assert ran.err == ""
    manifest = read_manifest(tmp_path / "out")
    assert (built["status"], built["code"], built["task"]) == ("built", 0, "sft")
    assert built["manifest"] == manifest
    assert built["build_id"] == manifest["build_id"]
    assert built["figures"]["rows"] == manifest["rows"]
    assert built["paths"]["manifest"] == "out/manifest.json"
    again = object_of(pipeline(*SFT, "--json"))
    assert again == {**built, "status": "unchanged", "message": again["message"]}


def test_an_unexpected_exception_is_an_object_too(pipeline: Run) -> None:
    """Status 1, and where in our code it was raised."""
    code = (
        "import pipeline.inputs.scan as scan\ndef broken(*_):\n    raise ZeroDivisionError('oh')\n"
        "scan.short_names = broken\n"
    )
    for more in ((), ("--debug",)):
        ran = pipeline(*SFT, "--json", *more, before=code)
        found = object_of(ran)
        assert (found["code"], found["status"]) == (1, "failed")
        assert "ZeroDivisionError: oh" in found["message"]
        assert "--debug" in found["remedy"]
        assert ("Traceback" in ran.err) is bool(more)


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


def test_a_command_is_notified_of_every_end(pipeline: Run, tmp_path: Path, bad: Path) -> None:
    """From the command line and from a recipe, which may be wrong in every other key."""
    keep = ("--notify", "cat >> told.jsonl; echo not shown")
    object_of(pipeline(*SFT, *keep, "--json", "--quiet"))
    pipeline("run", "sft", bad, *MODEL, *keep).ended(3)
    pipeline("run", "sft", bad, "--model", *keep).ended(2)
    recipe = tmp_path / "recipe.toml"
    told = '[notify]\ncommand = "cat >> told.jsonl"\n'
    head = f'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "{GOOD}"\noutput = "out"\nkeep = 0\n'
    recipe.write_text(head + told)
    pipeline("build", recipe, "-h").ended()
    pipeline("build", recipe, "--trust").ended()
    recipe.write_text(f'task = "sft"\nspeed = 9\ndata = "{GOOD}"\nmodel = "m"\n{told}')
    pipeline("build", recipe, "--trust").ended(2)
    recipe.write_text(told)
    pipeline("build", recipe, "--trust").ended(2)
    objects = lines_of((tmp_path / "told.jsonl").read_text())
    statuses = ["built", "refused", "failed", "unchanged", "failed", "failed"]
    assert [one["status"] for one in objects] == statuses
    assert objects[0]["manifest"]["task"] == "sft"


def test_a_notification_is_stopped_when_it_hangs(tmp_path: Path) -> None:
    """With all that its shell started."""
    began = time.monotonic()
    command = f"{sys.executable} -c 'import time; time.sleep(60)' | cat"
    wrong = session.notified(command, "x" * (1 << 20), seconds=0.5)
    assert wrong is not None
    assert "within 0.5 seconds" in wrong
    assert time.monotonic() - began < 30
    assert session.notified("true", "x" * (1 << 20)) is None  # which it does not read


def test_a_recipe_that_is_stopped_says_what_was_built(pipeline: Run, tmp_path: Path) -> None:
    """One object: the builds before, and that of the interruption; the last is not begun."""
    builds = "".join(f'[[build]]\noutput = "{name}"\n' for name in "abc")
    head = f'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "{GOOD}"\n'
    (tmp_path / "r.toml").write_text(head + builds)
    code = """
from pipeline import run_build
def stop(config, report, parts, built=run_build._built):
    if config.run.output.name == "b":
        raise KeyboardInterrupt
    return built(config, report, parts)
run_build._built = stop
"""
    ran = pipeline("build", "r.toml", "--json", "--quiet", before=code)
    found = ran.ended(130).told
    assert (found["code"], found["status"]) == (130, "failed")
    assert [one["status"] for one in found["builds"]] == ["built", "failed"]
    assert found["builds"][1]["paths"] == {"output": "b"}
    assert not (tmp_path / "c").exists()


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
