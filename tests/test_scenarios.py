"""What commands do one after the other, and what each leaves behind.

A scenario stands in a file of ``tests/scenarios``, one file a subject:

    [[scenario]]
    name = "an_empty_file"             unique in its file
    law = "What it shows."
    slow = true
    files = { "a.jsonl" = '''...''' }  what is written before; see ``write``

    [[scenario.step]]
    files = {}                         written before this command
    run = "run sft a.jsonl MODEL"      MODEL is an option, SAMPLES the folder of samples, and
                                       ID(out) how the id of a build begins
    env = { HOME = "." }               variables of its process
    before = '''...'''                 code that its process runs first
    status = 0
    says = ["..."]                     in what it prints
    hides = ["..."]                    not in what it prints
    follow = true                      every command that it prints ends with 0
    read = { "out/manifest.json" = { "rows.used" = 5 } }
    gone = ["out"]                     what is not there
    same = ["out", "one two"]          builds of equal examples, in whatever order; of two together
    equal = ["out", "other"]           folders of equal bytes, but for ``run.json``

Files that are read are JSON, lines of it, TOML or text, a split of a build (``out/train``) or the
text of its ids (``out/train.text``), and ``-`` is what the command printed. Places in them are
dotted: a key, a number, the ``name`` of an item, or ``*`` for every item. A wanted text that begins
with ``~`` is a part of what stands there, one with ``!`` is none, and ``> 5`` is a larger number; a
list is several of them.
"""

import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, SAMPLES, Ran, Run, expanded, files_of, printed, read_rows, stored_rows
from tokenizers import Tokenizer


@dataclass(frozen=True)
class Step:
    """A command, and what must come of it."""

    run: str
    status: int = 0
    env: dict[str, str] = field(default_factory=dict)
    before: str = ""
    files: dict[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    follow: bool = False
    read: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """Steps in a folder of their own."""

    name: str
    law: str
    step: list[dict[str, Any]]
    slow: bool = False
    files: dict[str, Any] = field(default_factory=dict)


def _scenarios() -> dict[str, Scenario]:
    found = {}
    for path in sorted((ROOT / "tests" / "scenarios").glob("*.toml")):
        for said in tomllib.loads(path.read_text("utf-8"))["scenario"]:
            found[f"{path.stem}/{said['name']}"] = Scenario(**said)
    return found


SCENARIOS = _scenarios()


def write(path: Path, content: Any) -> None:
    """A text as it is, or rows (``support.expanded``), or the first ``lines`` of a ``sample``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content.replace("SAMPLES", str(SAMPLES)), "utf-8")
        return
    lines = []
    for some in content if isinstance(content, list) else [content]:
        assert some.keys() <= {"count", "row", "each", "first", "sample", "lines"}, some
        if "sample" in some:
            text = (SAMPLES / some["sample"]).read_text("utf-8")
            lines += text.splitlines(keepends=True)[: some.get("lines")]
            continue
        lines += [json.dumps(row) + "\n" for row in expanded(some)]
    path.write_text("".join(lines), "utf-8")


def _id(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text("utf-8"))["build_id"])[:12]


def _content(path: Path, ran: Ran) -> Any:
    if path.name == "-":
        return ran.told
    if path.is_dir():
        return stored_rows(path.parent, path.name)
    if path.suffix == ".text":
        tokenizer = Tokenizer.from_file(str(path.parent / "tokenizer" / "tokenizer.json"))
        rows = stored_rows(path.parent, path.stem)
        return [tokenizer.decode(row["input_ids"], skip_special_tokens=False) for row in rows]
    if path.suffix == ".jsonl":
        return read_rows(path)
    readers = {".json": json.loads, ".toml": tomllib.loads}
    return readers.get(path.suffix, str)(path.read_text("utf-8"))


def _at(value: Any, place: str) -> Any:
    """What stands at a dotted place."""
    head, _, rest = place.partition(".")
    if not place:
        return value
    if head == "*":
        return [_at(one, rest) for one in value]
    if isinstance(value, list):
        named = {str(one["name"]): one for one in value if isinstance(one, dict) and "name" in one}
        return _at(value[int(head)] if head.isdigit() else named[head], rest)
    return _at(value[head], rest)


def _is(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list) and wanted and all(str(one)[:1] in ("~", "!") for one in wanted):
        return all(_is(found, one) for one in wanted)
    if isinstance(wanted, str) and wanted[:1] in ("~", "!"):
        return (wanted[1:] in str(found)) == (wanted[0] == "~")
    if isinstance(wanted, str) and wanted[:2] == "> ":
        return bool(found > float(wanted[2:]))
    return bool(found == wanted)


def _require(step: Step, ran: Ran, folder: Path) -> None:
    for text in step.says:
        assert text in ran.out + ran.err, f"{text}\n{ran.out}{ran.err}"
    for text in step.hides:
        assert text not in ran.out + ran.err
    for name, wanted in step.read.items():
        found = _content(folder / name, ran)
        for place, value in wanted.items():
            assert _is(_at(found, place), value), (name, place, _at(found, place))
    for name in step.gone:
        assert not (folder / name).exists()
    names = ("row_id", "row_ids", "source", "sources")
    builds = [
        sorted(
            repr({key: row[key] for key in row if key not in names})
            for one in name.split()
            for row in stored_rows(folder / one)
        )
        for name in step.same
    ]
    assert all(build == builds[0] for build in builds)
    files = [files_of(folder / name) for name in step.equal]
    assert all(one == files[0] for one in files)


@pytest.mark.sweep(16)
@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=[pytest.mark.slow] * one.slow) for k, one in SCENARIOS.items()]
)
def test_a_scenario_goes_as_it_says(name: str, pipeline: Run, tmp_path: Path) -> None:
    """Each command in its turn."""
    scenario = SCENARIOS[name]
    for path, content in scenario.files.items():
        write(tmp_path / path, content)
    for step in (Step(**said) for said in scenario.step):
        for path, content in step.files.items():
            write(tmp_path / path, content)
        line = step.run.replace("MODEL", "--model qwen2-1.5b").replace("SAMPLES", str(SAMPLES))
        line = re.sub(r"ID\((.+?)\)", lambda match: _id(tmp_path / match[1]), line)
        ran = pipeline(*shlex.split(line), before=step.before, **step.env).ended(step.status)
        _require(step, ran, tmp_path)
        commands = printed(ran.err) if step.follow else []
        assert commands or not step.follow, ran.err
        for one in commands:
            pipeline(*shlex.split(one)[1:]).ended()


def test_every_table_is_read() -> None:
    """A file of rows that no test names would be asserted by nobody."""
    tests = ROOT / "tests"
    texts = "".join(path.read_text("utf-8") for path in tests.rglob("*.py"))
    assert [one.name for one in (tests / "tables").iterdir() if one.name not in texts] == []
