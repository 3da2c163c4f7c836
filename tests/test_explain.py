"""Every code that the program gives has a page, and the example of each page gives its code."""

import ast
import json
import os
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support import ROOT, SAMPLES, Run, in_shell, raised, read_manifest, run_python, sweep, table

from expectations.audits import audits
from expectations.invariants import invariants
from pipeline.builder.stagewise import describe
from pipeline.messages import explanations
from pipeline.messages.explanations import AUDITS, GROUPS, INVARIANTS, NOTES, Explanation, find
from pipeline.tasks import kind_of
from posttrain_pipeline.commands import cli
from stages import catalog, contract, errors, formats, readers
from stages.formats._fields import open_question
from stages.formats.unusable import Unusable
from stages.normalize.stage import Normalize
from stages.rows import carried

ROWS = ("lines", "columns", "turns", "pairs", "steps", "tokens")
EVERY = [one for name in GROUPS for one in explanations.group(name).codes]
Built: TypeAlias = Callable[[str], None]
LIKE_IT = 150  # rows without what is wrong, beside the one that has it


def of(*names: str) -> list[Explanation]:
    """The explanations of some groups that have an example."""
    return [one for one in EVERY if one.group in names and one.example is not None]


# Which codes there are: read from the calls that give them.

# By folder, the calls that give a code, and the place of the argument that it is.
_GIVES = {
    "stages": {
        **dict.fromkeys(("RowError", "AskError", "Refused"), 0),
        **dict.fromkeys(("columns.refuse", "open_question", "json_value"), 2),
    },
    "pipeline/publish": {"add": 1},
    "pipeline/serving": {"add": 0},
}


def _constants(tree: ast.Module) -> dict[str, str]:
    """The texts that names of a module stand for."""
    found = {}
    for node in (one for one in tree.body if isinstance(one, ast.Assign)):
        target, value = node.targets[0], node.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        for name, one in zip(names, values, strict=False):
            if isinstance(name, ast.Name) and isinstance(one, ast.Constant):
                found[name.id] = one.value
    return found


def _codes(folder: str) -> set[str]:
    """The codes that calls give, and those of records that cannot be parsed (``error=``)."""
    found: set[object] = set()
    for tree in (ast.parse(path.read_text("utf-8")) for path in (ROOT / folder).rglob("*.py")):
        named = _constants(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = f".{ast.unparse(call.func)}"
            given = [
                call.args[n : n + 1] for s, n in _GIVES[folder].items() if name.endswith(f".{s}")
            ]
            errors = [one.value for one in call.keywords if one.arg == "error"]
            given += [one.elts[:1] for one in errors if isinstance(one, ast.Tuple)]
            for one in (one for some in given for one in some):
                for text in [one.body, one.orelse] if isinstance(one, ast.IfExp) else [one]:
                    is_named = isinstance(text, ast.Name)
                    found.add(named.get(text.id) if is_named else getattr(text, "value", None))
    return {one for one in found if isinstance(one, str)}


def _of_rows() -> set[str]:
    """Codes of refused rows; of each kind of data that cannot be used, its format's name."""
    known = (formats.load(name) for name in catalog.names("stages.formats"))
    unusable = {one.name for one in known if isinstance(one, Unusable)}
    return _codes("stages") | unusable | {open_question("", "").code}


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    """Of refused rows, notes, faults of checks, findings about stops, audits, invariants."""
    from pipeline.builds import stored

    wanted = {
        "rows": _of_rows(),
        "check": _codes("pipeline/publish") | {stored.MISSING, stored.HASH, stored.UNKNOWN},
        "stops": _codes("pipeline/serving"),
        NOTES: {*carried.WORDS},
        AUDITS: {one.name for one in audits()},
        INVARIANTS: {law.name for law in invariants()},
    }
    assert len(wanted["rows"]) > 80
    explained = {name: {one.code for one in EVERY if one.group == name} for name in GROUPS}
    explained["rows"] = {one.code for one in EVERY if one.group in ROWS}
    for name, codes in wanted.items():
        assert codes == explained[name], name


def test_a_name_is_a_page_of_its_own() -> None:
    """No two pages have one name, and every group is read from its own file."""
    pages = [one.page for one in EVERY]
    assert len(pages) == len(set(pages))
    folder = ROOT / "pipeline" / "messages" / "codes"
    assert {path.stem for path in folder.iterdir()} == set(GROUPS)


def test_what_has_no_example_says_why() -> None:
    """In a table; all others have one, and a fix of their own."""
    bare = {one.code for one in EVERY if one.example is None and one.group != INVARIANTS}
    assert bare == {*table("codes_without_examples.toml")}
    for one in EVERY:
        assert one.means.endswith("."), one.code
        assert one.fix[-1] in ".}", one.code
        if (own := one.example) is not None:
            fixes = (own.fixed, own.fixed_options, own.fixed_write, own.fixed_commands)
            assert any(fixes), one.code


# Examples of rows: the file as the page shows it, among rows that are right.


def _write(one: Explanation, folder: Path, *, fixed: bool) -> None:
    example = one.example
    for name, text in example.files.items():
        (folder / name).write_text(text, "utf-8")
    program = example.fixed_write if fixed else example.write
    if program or (example.write and not example.fixed):
        run_python(program or example.write, folder).ended()
        return
    row = (example.fixed or example.row) if fixed else example.row
    beside = "" if example.alone or fixed else example.among or example.fixed
    content = f"{beside}\n".encode() * (LIKE_IT if beside and not example.asks else 0)
    encoding = "utf-8" if fixed else example.encoding
    times = LIKE_IT if fixed and example.whole else 1
    (folder / example.file).write_bytes(content + f"{row}\n".encode(encoding) * times)


def _refused(path: Path) -> set[str]:
    """The codes in a file of refused rows."""
    return {json.loads(line)["code"] for line in path.read_text("utf-8").splitlines()}


def _through(one: Explanation, *, fixed: bool) -> set[str]:
    """The codes that the command of a page gives, through every stage of its task; in this process,
    where everything is loaded."""
    _, *words = shlex.split(one.example.command(fixed=fixed))
    out = Path("out.arrow")
    ran = CliRunner().invoke(cli, [*words, "--until", "validate", "-o", str(out)])
    refused = Path(f"{out}.rejects.jsonl")
    if not refused.exists():
        assert ran.exception is not None
        raise ran.exception
    return _refused(refused)


@pytest.fixture
def here(tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands of this process run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


STAGES = [one for one in of(*ROWS) if one.example and not one.example.whole]
HEAVY = ("line_too_long", "too_many_turns")
# A fixed part of the examples; the rest are slow, together.
CHOSEN = [one for one in STAGES[::12] if one.code not in HEAVY]


@pytest.mark.sweep(12)
@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, marks=[] if one in CHOSEN else [pytest.mark.slow], id=one.code)
        for one in STAGES
    ],
)
def test_the_example_of_a_row_gives_its_code(one: Explanation, here: Path) -> None:
    """The row is refused with this code alone; where it is asked about, the build stops."""
    _write(one, here, fixed=False)
    if one.example.asks:
        raised(errors.DataError, _through, one, fixed=False)
    else:
        assert _through(one, fixed=False) == {one.code}
    _write(one, here, fixed=True)
    assert _through(one, fixed=True) == set()
    if one.example.asks:
        assert _of_normalize(one, here) == one.code


def _of_normalize(one: Explanation, here: Path) -> str:
    """The code that a row gets which the sample did not show: of normalize alone."""
    _write(one, here, fixed=False)
    task, named = one.example.task, one.example.options.partition("--format ")[2].split()
    reading = named[0] if named else describe(here / "out.arrow", here).formats[0]
    reader = readers.load(Path(one.example.file).suffix[1:])
    (split,) = reader.splits(one.example.file)
    (lines,) = reader.read(split)
    stage = Normalize(kind_of(task), formats.load(reading), contract.FormatOptions())
    codes = stage(lines.records).column("reject_code").to_pylist()
    (code,) = {code for code in codes if code is not None}
    return str(code)


@pytest.mark.slow
@pytest.mark.parametrize(
    "one", [one for one in of(*ROWS) if one.example and one.example.whole], ids=lambda one: one.code
)
def test_the_example_of_a_build_gives_its_code(one: Explanation, here: Path, pipeline: Run) -> None:
    """The same for codes that need a whole build."""
    _write(one, here, fixed=False)
    _, *words = shlex.split(one.example.command(fixed=False))
    pipeline(*words, "-o", "out")
    assert _refused(here / "out" / "rejects.jsonl") == {one.code}
    _write(one, here, fixed=True)
    pipeline(*words, "-o", "out").ended()
    assert _refused(here / "out" / "rejects.jsonl") == set()


@pytest.mark.parametrize("one", of(NOTES), ids=lambda one: one.code)
def test_the_example_of_a_note_has_it(one: Explanation, here: Path) -> None:
    """The row is kept with this note alone, and without any after the fix."""
    for fixed in (False, True):
        _write(one, here, fixed=fixed)
        _, *words = shlex.split(one.example.command(fixed=fixed))
        out = here / f"{fixed}.arrow"
        ran = CliRunner().invoke(cli, [*words, "--until", "normalize", "-o", str(out)])
        assert ran.exit_code == 0, ran.stderr
        notes = pa.ipc.open_file(out).read_all().column("note").unique().to_pylist()
        assert notes == ([None] if fixed else [None, one.code])


@sweep(2)
@pytest.mark.parametrize("one", of(AUDITS), ids=lambda one: one.code)
def test_the_example_of_an_audit_warns(one: Explanation, here: Path, pipeline: Run) -> None:
    """And with the fix it passes."""
    for fixed in (False, True):
        _write(one, here, fixed=fixed)
        _, *words = shlex.split(one.example.command(fixed=fixed))
        done = pipeline(*words, "-o", "out", "--max-reject", "0.5")
        if done.status:
            assert not fixed, done.err
            assert f"  {one.code}, " in done.err
            continue
        status = read_manifest(here / "out")["audits"][one.code]["status"]
        assert status == ("pass" if fixed else "warn"), status


SHELL = set("|>&;$*'\"")  # what only a shell reads


_BUILT: dict[str, Path] = {}  # by the command, which several examples begin with


@pytest.fixture
def built(here: Path, pipeline: Run, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Makes the build of a command that begins an example: once, then copied."""

    def run(line: str) -> None:
        output = line.split()[-1]
        if line not in _BUILT:
            pipeline(*line.split()[1:]).ended()
            _BUILT[line] = tmp_path_factory.mktemp("example")
            shutil.copytree(here / output, _BUILT[line] / output)
        else:
            shutil.copytree(_BUILT[line] / output, here / output)

    return run


@pytest.mark.great_expectations
@sweep(4)
@pytest.mark.parametrize("one", of("check", "stops"), ids=lambda one: one.code)
def test_the_commands_of_an_example_give_its_code(one, here, pipeline, built):
    """The last command names the code and ends with 3; after the fix it ends with 0."""
    os.symlink(SAMPLES, here / "sample_data")
    built(one.example.commands[0])
    for commands, status in ((one.example.commands[1:], 3), (one.example.fixed_commands, 0)):
        for line in commands:
            last = line is commands[-1]
            wanted = f"{line} --json" if last else line  # the codes as programs read them
            first, *words = wanted.split()
            if first == "pipeline" and not SHELL.intersection(wanted):
                done = pipeline(*words)
            else:
                done = in_shell(wanted, here)
            assert done.status == (status if last else 0), f"{line}\n{done.err}"
        said = json.loads(done.out)
        codes = {found["code"] for found in said.get("faults", said.get("findings", []))}
        assert (one.code in codes) == bool(status)


DAMAGED = [one for one in EVERY if one.group == INVARIANTS and one.example is not None]


def test_every_expectation_says_what_breaks_it_and_what_to_do_then() -> None:
    """In words of its own; most have an example, and the file explains none that there is not."""
    every = explanations.group(INVARIANTS).codes
    assert all(one.breaks.endswith(".") for one in every)
    assert len({one.breaks for one in every}) == len({one.fix for one in every}) == len(every)
    codes = ROOT / "pipeline" / "messages" / "codes"
    otherwise = tomllib.loads((codes / "expectations.toml").read_text("utf-8"))
    assert {*otherwise["codes"]} == {one.code for one in every}
    assert all(one.fix.removesuffix(otherwise["otherwise"].strip()).strip() for one in every)
    assert len(DAMAGED) > len(every) / 2


@pytest.mark.great_expectations
@sweep(2)
@pytest.mark.parametrize("line", sorted({one.example.commands[0] for one in DAMAGED}))
def test_a_damaged_build_is_told_by_the_expectation(line: str, here: Path, built: Built) -> None:
    """By name, of each damage to a build; the same command builds it anew, and it is right."""
    os.symlink(SAMPLES, here / "sample_data")
    built(line)
    folder = Path(line.split()[-1])
    shutil.copytree(folder, "whole")
    mine = [one for one in DAMAGED if one.example and one.example.commands[0] == line]
    for one in mine:
        shutil.rmtree(folder)
        shutil.copytree("whole", folder)
        exec(one.example.files["damage.py"], {})
        done = CliRunner().invoke(cli, ["check", str(folder), "--json"])
        assert done.exit_code == 3
        assert one.code in {found["code"] for found in json.loads(done.stdout)["faults"]}
    for words in (line.split()[1:], ["check", str(folder)]):
        assert CliRunner().invoke(cli, words).exit_code == 0


# What people see.


def test_the_terminal_shows_the_page_in_eighty_columns() -> None:
    """Title, meaning, example and fix; no line is wider, but for a word that is."""
    for one in EVERY:
        text = explanations.plain(one)
        assert one.code in text
        assert "FIX" in text
        for line in text.splitlines():
            assert len(line) <= explanations.WIDTH or " " not in line.strip(), line
    listing = explanations.listing(list(map(explanations.group, GROUPS)))
    assert max(map(len, listing.split("\n"))) <= explanations.WIDTH


def test_explain_prints_the_page(pipeline: Run) -> None:
    """Of a code; of all codes by group; and the nearest to one that does not exist."""
    page = pipeline("explain", "tie").ended().out
    assert page.rstrip("\n") == explanations.plain(find("tie")[0])
    listed = pipeline("explain").ended().out
    assert all(f"  {one.code} " in listed for one in EVERY)
    pipeline("explain", "to_long").refused(2, "Did you mean too_long")


def test_a_name_of_two_meanings_shows_both() -> None:
    """An audit is called as a code of rows is."""
    assert [one.group for one in find("control_text")] == ["tokens", AUDITS]
    raised(errors.UsageError, find, "zzzzzz", says="List all codes with: pipeline explain")
