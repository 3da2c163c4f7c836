"""No code in the docs is untested: each block is run or read by the program, or is said to be text.

``sh`` runs as it stands, in a folder with ``sample_data/``; of ``bash`` commands, which need what
the tests have not (a trainer, a model, a download), names, options and versions are checked.
``python`` runs, ``toml`` is a recipe or a profile that is read, ``json`` is JSON. What is printed,
or shows a shape, is ``text``. Examples of docs/codes are those of tests/test_explain.py, and those
of CONTRIBUTING.md of test_extending.py. And the guides' links lead somewhere, their pictures and
versions are those of now, generated pages are current, and inputs are read as they are documented.
"""

import ast
import gzip
import hashlib
import json
import os
import re
import runpy
import shlex
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from support import ROOT, SAMPLES, printed, raised, records_of, run_python, sweep, table, write_rows

from pipeline import exports, tasks
from pipeline.options.recipe import builds_of
from posttrain_pipeline.commands import cli
from stages import contract, errors, readers
from stages.tokenizers import profiles

DOCS = ROOT / "docs"


class Block(NamedTuple):
    """A block of code; ``line`` is where it begins."""

    page: Path
    line: int
    kind: str
    text: str


def _blocks(page: Path) -> list[Block]:
    """Fenced blocks, and those that four blanks make, whose kind is empty."""
    found: list[Block] = []
    kind: str | None = None
    lines = page.read_text("utf-8").splitlines()
    listed = False  # in a list, four blanks continue an item
    for number, line in enumerate(lines, 1):
        fence = re.match(r" *```+(\w*)$", line)
        if fence is not None and kind is None:
            kind, begun, text = fence[1], number, []
        elif fence is not None:
            assert kind is not None
            found.append(Block(page, begun, kind, "\n".join(text)))
            kind = None
        elif kind is not None:
            text.append(line)
        elif line.strip():
            before = lines[number - 2].strip() if number > 1 else ""
            if re.match(r" {4}\S", line) and not before and not listed:
                found.append(Block(page, number, "", line))
            listed = bool(re.match(r" *([-*]|\d+\.) ", line)) or (listed and line[0] == " ")
    assert kind is None, f"{page.name}: a block is not closed"
    return found


# Generated pages are tested with what generates them.
GENERATED = {DOCS / "reference.md", *(DOCS / "codes").glob("*.md")}
EVERY = [
    block
    for page in sorted({*DOCS.rglob("*.md"), ROOT / "README.md"} - GENERATED)
    for block in _blocks(page)
]


def of(*kinds: str) -> list[Block]:
    """The blocks of some kinds."""
    return [block for block in EVERY if block.kind in kinds]


def name(block: Block) -> str:
    """Where a block stands."""
    return f"{block.page.relative_to(ROOT).as_posix()}:{block.line}"


def _lines(page: Path, kind: str) -> list[str]:
    """The lines of a page's blocks of one kind, without comments."""
    texts = [block.text for block in of(kind) if block.page == page]
    whole = [line for text in texts for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in whole if line and line[0] != "#"]


def test_every_block_says_what_it_is():
    """No other kinds, and no block of four blanks, of which nothing says what it is."""
    known = {"sh", "bash", "python", "toml", "json", "text"}
    others = [name(block) for block in EVERY if block.kind not in known]
    assert not others
    assert {block.kind for block in EVERY} >= {"sh", "bash", "python", "toml", "text"}


@pytest.mark.great_expectations
@sweep(4)
@pytest.mark.parametrize(
    "page", sorted({block.page for block in of("sh")}), ids=lambda page: page.stem
)
def test_commands_run(page, pipeline, tmp_path):
    """In the order of the page; and launch scripts that the page starts then exist."""
    os.symlink(SAMPLES, tmp_path / "sample_data")
    for line in _lines(page, "sh"):
        program, *words = shlex.split(line)
        if page.stem == "tutorial" and "tiny" in line:
            break  # tests/training runs all of it
        assert program == "pipeline", line
        pipeline(*words).ended()
    for line in _lines(page, "bash"):
        program, *words = shlex.split(line)
        if program == "sh":
            assert (tmp_path / words[0]).is_file(), line


_PROGRAMS = ("pip", "make", "pytest", "duckdb", "sh", "python", ".venv/bin/python")


_EMPTY = click.Context(cli)


def require_command(words: list[str]) -> None:
    """A command of ours with options that it has."""
    command: click.Command | None = cli
    words = words[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if command.name == "versions" and words[0] not in command.list_commands(_EMPTY):
            break  # pipeline versions DIR
        command = command.get_command(_EMPTY, words.pop(0))
    known = {option for one in command.params for option in one.opts} | {"-h", "--help"}
    assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= known


def test_commands_that_cannot_run_here_exist():
    """Programs, targets of make, files, options of ours, and versions that the parity tests run."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    peers = (ROOT / "tests" / "parity" / "peers").glob("*.txt")
    versions = {path.stem.rpartition("-")[::2] for path in peers}
    parts = [
        (block, part)
        for block in of("bash")
        for line in block.text.replace("\\\n", " ").splitlines()
        for part in re.split(r" && |; do |; ", line.partition(" #")[0])
    ]
    for block, part in parts:
        words = shlex.split(part, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)  # a variable of the environment
        if not words or words[0] in ("for", "done", "wait"):
            continue
        said = f"{name(block)}: {part}"
        if words[0] == "pipeline":
            require_command([word for word in words if word not in ("&", "done")])
        else:
            assert words[0] in _PROGRAMS, said
        for word in words[1:]:
            package, _, version = word.partition("==")
            assert not version or (package, version) in versions, said
            assert words[0] != "make" or word in targets, said
            assert not word.endswith(".py") or (ROOT / word).is_file(), said


def test_json_is_json():
    """Each line is a value, or the whole block is one."""
    for block in of("json"):
        with suppress(ValueError):
            json.loads(block.text)
            continue
        assert all(json.loads(line) is not None for line in block.text.splitlines()), name(block)


@pytest.mark.parametrize("block", of("toml"), ids=name)
def test_toml_is_read(block, tmp_path, monkeypatch):
    """The program reads it; a part of a recipe is read with what a recipe must have."""
    monkeypatch.setenv("EXTRA", str(tmp_path))
    (tmp_path / "evals").mkdir()
    for file in ("gsm8k.jsonl", "more.parquet"):  # that a recipe names
        (tmp_path / "evals" / file).touch()
    path = tmp_path / "file.toml"
    said = tomllib.loads(block.text)
    if block.page.stem == "profiles":
        path.write_text(block.text, "utf-8")
        assert (profiles.models_of if "models" in said else profiles.load)(path)
        return
    needed = {"task": '"sft"', "model": '"qwen2-1.5b"', "data": '["data.jsonl"]'}
    missing = [] if "build" in said or "source" in said else needed.keys() - said.keys()
    lines = [f"{key} = {needed[key]}" for key in missing]
    path.write_text("\n".join([*lines, block.text]), "utf-8")
    assert builds_of(path, trust=True)


PYTHON = [block for block in of("python") if block.page.stem != "tutorial"]  # tests/training


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for b in PYTHON if "torch" not in b.text], ids=name)
def test_python_runs(block, pipeline, tmp_path, cache_home):
    """In a folder where DIR is a build, with an index of packs where the page is about that."""
    os.symlink(SAMPLES, tmp_path / "sample_data")
    rows = [{"prompt": f"What is {n} + 1?", "completion": f"It is {n + 1}."} for n in range(300)]
    write_rows(tmp_path / "data.jsonl", rows)
    indexed = ["--index-only"] if block.page.stem == "index" else []
    pipeline("run", "sft", "data.jsonl", "--model", "qwen2-1.5b", "-o", "DIR", *indexed).ended()
    if block.page.stem == "README":
        steps = "sample_data/prm/math_shepherd.jsonl"
        pipeline("run", "prm", steps, "--model", "qwen2-1.5b", "-o", "prm").ended()
    run_python(block.text, tmp_path, XDG_CACHE_HOME=str(cache_home)).ended()


@pytest.mark.parametrize("block", [b for b in PYTHON if "torch" in b.text], ids=name)
def test_python_that_needs_torch_names_what_there_is(block):
    """What it imports of ours is defined there; tests/training and tests/failures use it."""
    imported = [
        node
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipeline")
    ]
    assert imported
    for node in imported:
        path = ROOT / str(node.module).replace(".", "/")
        text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
        for one in node.names:
            assert re.search(rf"\b{one.name}\b", text), one.name


def test_the_record_of_the_trainers_is_of_the_pinned_releases():
    """Its tests exist and passed, with the requirements that are pinned now.

    ``make compatibility`` writes the record; docs/compatibility.md shows it, and says which pinned
    releases have none.
    """
    folder = ROOT / "tests" / "parity"
    pinned = {path.stem: path.read_bytes() for path in (folder / "peers").glob("*.txt")}
    recorded = json.loads((folder / "ran.json").read_text("utf-8"))
    assert recorded
    assert set(recorded) <= set(pinned), "run `make compatibility`"
    page = (DOCS / "compatibility.md").read_text("utf-8")
    for peer in set(pinned) - set(recorded):
        assert f"| `{peer}` | not recorded |" in page
    for peer, said in recorded.items():
        now = hashlib.sha256(pinned[peer]).hexdigest()
        assert said["requirements"] == now, f"{peer} has other requirements now"
        assert said["tests"], peer
        assert set(said["tests"].values()) == {"passed"}, peer
        for test in said["tests"]:
            file, _, function = test.partition("[")[0].partition("::")
            assert f"def {function}(" in (ROOT / file).read_text("utf-8"), test


def test_every_trainer_task_and_family_has_its_page():
    """One page each; a text-only variant of a trainer is told on that trainer's page."""
    trainers = {path.stem for path in (DOCS / "trainers").glob("*.md")}
    assert trainers | {"openrlhf-text"} == set(exports.names())
    assert {path.stem for path in (DOCS / "tasks").glob("*.md")} == set(tasks.names())
    told = "".join(path.read_text("utf-8") for path in (DOCS / "families").glob("*.md"))
    found = re.findall(r"<!-- table: family (\w+) -->", told)
    assert sorted(found) == sorted(profiles.own_families())


@pytest.mark.slow
def test_pictures_are_current():
    """They are what ``docs/pictures.py`` draws from the builds that this version makes."""
    drawn = runpy.run_path(str(DOCS / "pictures.py"))["pages"]()
    assert len(drawn) == len(list((DOCS / "how").glob("*.svg"))) == 5
    for path, text in drawn.items():
        assert path.read_text("utf-8") == text, f"{path.name}: run docs/pictures.py"


_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


def _anchors(page: Path) -> set[str]:
    """What links may name in a page, as GitHub and mkdocs make it from headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head).strip().lower() for head in heads]
    return {head.replace(" ", "-") for head in plain}


def test_links_lead_somewhere():
    """To a file that there is, and to a heading of it."""
    for page in [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target, anchor in _LINK.findall(text):
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), f"{page}: {target}"
            if anchor and file.suffix == ".md":
                assert anchor in _anchors(file), f"{page}: {target}#{anchor}"


def test_generated_pages_are_current():
    """They are what ``make docs`` writes; where they are not, the difference is shown."""
    stale = runpy.run_path(str(ROOT / "docs" / "generate.py"))["stale"]()
    assert not stale, f"run `make docs` and commit what it changes:\n{stale}"


def _documented_cases() -> list[tuple[str, bytes, str, str]]:
    """The rows of docs/inputs.md that have an example: what, the file's content, what happens, and
    the reader of the section."""
    text = (ROOT / "docs" / "inputs.md").read_text("utf-8")
    lines, _, tables = text.partition("### Tables of texts")
    found = []
    for reader, section in (("jsonl", lines), ("csv", tables)):
        rows = re.findall(r"^\| ([^|]+) \| `([^|]+)` \| ([^|]+) \|$", section, re.MULTILINE)
        marks = ("b'", ".encode(", "bytes(")
        cases = [row for row in rows if any(mark in row[1] for mark in marks)]
        found += [(what, eval(example, {}), outcome, reader) for what, example, outcome in cases]
    return found


def _records(path: Path) -> list[contract.Record]:
    reader = readers.load(path.suffix[1:])
    if reader.name == "csv":  # others are not refused for what a look at them shows
        reader.glimpse(str(path), 10)
    return records_of(*reader.splits(str(path)))


CASES = _documented_cases()
assert len(CASES) >= 39  # they are found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_inputs_are_read_as_documented(tmp_path, case):
    """Each example of the table gives the rows, the refusal or the error that stands beside it."""
    _, content, outcome, reader = case
    path = tmp_path / f"example.{reader}"
    path.write_bytes(content)
    refusal = re.search(r"file refused: `([^`]+)`", outcome)
    if refusal is not None:
        raised(errors.ContainerError, _records, path, says=re.escape(refusal[1]))
        return
    found = _records(path)
    codes = re.findall(r"refused: `(\w+)`", outcome)
    rows = re.search(r"(\d+) rows?\b", outcome)
    assert [record.error[0] for record in found if record.error] == codes
    assert sum(record.data is not None for record in found) == int(rows[1] if rows else 0)


def _declared() -> dict[str, list[str]]:
    """The rows of docs/models.md that name a profile."""
    text = (ROOT / "docs" / "models.md").read_text("utf-8")
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:3] == "| `"]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_the_page_of_models_says_what_profiles_declare():
    """End of turn, eos, pad, stops, bos and what becomes of a dialogue."""
    declared = _declared()
    known = sorted(set(declared) & set(profiles.all_profiles()))
    assert len(known) >= 5
    for name in known:
        profile = profiles.all_profiles()[name]
        assert declared[name] == [
            f"`{profile.end_of_turn}`",
            f"`{profile.eos_token}`",
            f"`{profile.pad_token}`",
            " ".join(f"`{token}`" for token in profile.generation_eos),
            profile.bos_policy,
            "one per turn" if profile.one_example_per_turn else "one example",
        ]
        assert profile.pad_token not in (profile.eos_token, profile.end_of_turn)
        assert profile.end_of_turn in profile.generation_eos


def test_the_table_of_asks_names_tests_that_there_are():
    """Every ask of docs/reliability.md is shown by a test that exists, or by an option or file."""
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page.split("every ask")[1], re.M)
    asks = [row for row in rows if row[0] not in ("report", "what")]
    asks = [row for row in asks if "::" in row[2]]
    assert len(asks) > 35
    assert {report for report, _, _ in asks} == {
        *("never stops", "padding", "stop marker", "reward loss 0", "step labels")
    }
    for path, name in re.findall(r"`(tests/[\w/.]+)::(\w+)`", page):
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), f"{path}::{name}"


# docs/first_runs.md: files as people bring them; the first command builds, or prints the one that
# does.

FIRST_RUNS = ROOT / "tests" / "tables" / "first_runs"
RUNS = table("first_runs.toml")


@sweep(2)
@pytest.mark.parametrize("name", RUNS)
def test_one_corrected_command_is_enough(name, pipeline, tmp_path):
    """The page's commands, what they print, and the whole build."""
    task, reading = RUNS[name]["task"], RUNS[name]["reading"]
    page = (DOCS / "first_runs.md").read_text("utf-8")
    content = (FIRST_RUNS / name.removesuffix(".gz")).read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    out = name.split(".")[0]
    first = f"pipeline run {task} --model qwen2-1.5b {name} -o {out}"
    assert f"\n{first}\n" in page
    ran = pipeline(*shlex.split(first)[1:])
    if name == "pytania.jsonl.gz":
        corrected, *_ = printed(ran.refused(3).err)
        assert f"  {corrected}\n" in page
        ran = pipeline(*shlex.split(corrected)[1:])
    rows, used, kept = RUNS[name]["counts"]
    assert f"format    {reading} (" in ran.ended().err
    whole = rf"({used} used|\d+ used whole \+ \d+ used in part)"
    assert re.search(rf"^rows +{rows} in = {whole} \+ {rows - used} refused", ran.err, re.M)
    assert f" = {kept} kept + " in ran.err
    seen = pipeline("show", out).ended()
    for text in RUNS[name]["shown"]:
        assert text in seen.out
