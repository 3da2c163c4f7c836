"""The language of recipes: every key, every mistake with its line, and the schema for editors."""

import json
import operator
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from conftest import NAME
from hypothesis import given
from hypothesis import strategies as st
from support import ROOT, SAMPLE_OF, SAMPLES, few, raised, read_manifest, table

from pipeline import tasks
from pipeline.builder import plan_page, population
from pipeline.builder.forecast import forecast
from pipeline.inputs import equal_build
from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.inputs.scan import scan
from pipeline.manifest.json_records import as_json as of_record
from pipeline.options import build_options, command_line, many_values, overlaps
from pipeline.options import recipe_model as declared
from pipeline.options.build_options import OPTIONS, PHASE_OF, PHASES
from pipeline.options.config import Config, from_record
from pipeline.options.many_values import UNLESS_DEFAULT, Option
from pipeline.options.paths import Data, ModelName, Place, TextFile, TextFiles
from pipeline.options.recipe import builds_of
from pipeline.options.values import Amount, Number, OneOf, Switch, Value, Whole, Width
from posttrain_pipeline.api import config_of
from stages import catalog, errors
from stages.errors import UsageError
from stages.files import toml_file
from stages.tokenizers.profiles import all_profiles

DATA = SAMPLES / "sft" / "word_problems.jsonl"
HEAD = f'task = "sft"\nmodel = "qwen2-1.5b"\ndata = {json.dumps(str(DATA))}\n'

_KEYS = (Path(__file__).parent / "recipe_keys.toml").read_text("utf-8")
RIGHT, WRONG = (
    dict(re.findall(r"^([\w-]+) = (.*)$", part, re.MULTILINE))
    for part in _KEYS.partition("[beside]")[0].split("[wrong]")
)
_BESIDE: dict[str, str] = tomllib.loads(_KEYS)["beside"]
_TASK_OF = dict.fromkeys(("neutral", "prompt-separator", "step-tag", "prm-template"), "prm")
_UNREAD = ("where", "filter", "dedup-keep")  # a schema reads no conditions


def recipe_with(key: str, value: str | None, table: str = "") -> str:
    """A recipe with a key at its top or in a table, and with what must stand beside it; None leaves
    it out."""
    task, data = _TASK_OF.get(key, "sft"), f'["{DATA}"]'
    top = {"task": f'"{task}"', "model": '"qwen2-1.5b"', "data": data}
    inside = {"name": '"a"', "data": top.pop("data")} if table == "source" else {}
    lines = [f"{name} = {text}" for name, text in top.items() if name != key]
    lines += [_BESIDE[key]] if key in _BESIDE else []
    lines += [f"[[{table}]]"] if table else []
    lines += [f"{name} = {text}" for name, text in inside.items() if name != key]
    lines += [] if value is None else [f"{key} = {value}"]
    return "\n".join([*lines, ""])


def write_recipe(folder: Path, text: str, name: str = "recipe.toml") -> Path:
    """The file of a recipe, beside the files that keys name."""
    template = all_profiles()["qwen2-1.5b"].chat_template
    for other in ("a.txt", "b.txt"):
        (folder / other).write_text(f"{template}{{# mine #}}")
    path = folder / name
    text = text.replace("{dir}", str(folder)).replace("{data}", str(DATA))
    path.write_text(text, "utf-8")
    return path


def _json(text: str) -> Any:
    """What an editor checks: TOML's dates are texts to it."""
    return json.loads(json.dumps(tomllib.loads(text), default=str))


EXAMPLES = sorted([*(ROOT / "sample_data").glob("*.toml"), *(ROOT / "examples").rglob("*.toml")])
VALIDATOR = jsonschema.Draft7Validator(declared.schema())


def test_every_key_is_tried():
    """A new option needs a right and a wrong value beside this file."""
    assert set(RIGHT) == set(WRONG) == set(declared.keys(declared.TOP))


@pytest.mark.parametrize("key", RIGHT)
def test_a_key_takes_its_values_and_no_others(key, tmp_path):
    """At the top and in the tables that have it, what it does not take is named with its line; the
    schema takes the same, so that an editor shows the mistake while it is typed."""
    option = declared.keys(OPTIONS)[key]
    for of, keys in (("", declared.TOP), ("source", declared.SOURCE), ("build", declared.BUILD)):
        if key not in declared.keys(keys):
            continue
        right, wrong = (recipe_with(key, values[key], of) for values in (RIGHT, WRONG))
        (config,) = builds_of(write_recipe(tmp_path, right), trust=True)
        if of != "source":
            assert getattr(getattr(config, PHASE_OF[option.name]), option.name) != option.default
        error = raised(errors.UsageError, builds_of, write_recipe(tmp_path, wrong), trust=True)
        where = f"recipe.toml:{wrong.count(chr(10))}: {f'{of} 1: ' if of else ''}"
        assert where in error.what
        assert key in error.what
        assert VALIDATOR.is_valid(_json(right))
        assert key in _UNREAD or not VALIDATOR.is_valid(_json(wrong))
        assert not VALIDATOR.is_valid(_json(right.replace(f"\n{key} = ", f"\n{key}x = ")))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_schema_takes_the_examples(path):
    """And the program does, from any folder."""
    VALIDATOR.validate(_json(path.read_text()))
    assert builds_of(path, trust=True)


def test_all_mistakes_are_named_at_once(tmp_path):
    """Each with its line: of keys, types, ranges, choices, and of what does not go together."""
    wrong = table("refusals.toml")["mistakes"]
    error = raised(errors.UsageError, builds_of, write_recipe(tmp_path, wrong["recipe"]))
    assert f"recipe.toml has {len(wrong['said'])} mistakes" in error.what
    for line, words in wrong["said"]:
        assert f"recipe.toml:{line}: {words}" in error.what


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        text = value if value == "${NONE}" else value.replace("$", "$$")
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return value.isoformat() if isinstance(value, date) else json.dumps(value)


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
_NAMES = _TEXT.filter(lambda text: not {*text} & {*"=.$"})  # no variable is read in a key


def _values(option: Option) -> st.SearchStrategy[Any]:
    """Values of an option, as a recipe has them."""
    kind: Value = option.value
    fixed = {"where": ["a=1", "b>=2"], "tolerance": {"shortcuts.fail": 1.5, "truncation.warn": 2.0}}
    if option.name in fixed:
        return st.just(fixed[option.name])
    if isinstance(kind, OneOf):
        return st.sampled_from(kind.listed())
    if isinstance(kind, Switch):
        return st.booleans()
    if isinstance(kind, Width):
        return st.sampled_from(["longest", "max-length"]) | st.integers(8, 999)
    if isinstance(kind, Amount):
        return st.integers(1, 10**6) | st.sampled_from(["5k", "1.5M"])
    if isinstance(kind, Whole):
        return st.integers(kind.least or 8, min(kind.most or 99, 99))
    if isinstance(kind, many_values.Pairs):
        return st.dictionaries(_NAMES, _TEXT, max_size=3)
    if isinstance(kind, TextFile | TextFiles):
        return st.just([str(ROOT / "README.md")] if kind.many else str(ROOT / "README.md"))
    if isinstance(kind, Place | ModelName | Data):
        return st.sampled_from(["/a b/c", "/x.toml"])
    if isinstance(kind, many_values.Texts):
        return st.lists(_TEXT, max_size=3)
    if isinstance(kind, Number):
        return st.floats(0, 1, exclude_min=kind.above == 0, exclude_max=kind.below == 1)
    return st.floats(0, 1) if "number" in kind.words else _TEXT


def _words(option: Option, value: Any) -> list[str]:
    flag = option.flags[-1]
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, Mapping):
        value = [f"{name}={one}" for name, one in value.items()]
    return [f"{flag}={one}" for one in (value if isinstance(value, list) else [value])]


@click.command()
@command_line.with_options(command_line.BUILD)
def _options(**given: Any) -> dict[str, Any]:
    """Exists for its parameters."""
    return given


def _tried(make: Callable[[], Config]) -> Config | str:
    try:
        return make()
    except errors.UsageError:
        return "refused"


@given(st.data(), st.sampled_from(tasks.names()))
def test_a_recipe_and_a_command_are_one(tmp_path_factory, data, task):
    """The same options, in a file or as words, give the same build or are both refused; but that a
    recipe keeps versions unless it says ``keep = 0``, as a command does by default."""
    others = {name for one in tasks.names() for name in tasks.load(one).options}
    foreign = others - {*tasks.load(task).options}
    own = [option for name, option in OPTIONS.items() if option.flags and name not in foreign]
    chosen = data.draw(st.lists(st.sampled_from(own), unique_by=lambda o: o.name, max_size=6))
    values = {option.key: data.draw(_values(option)) for option in chosen}
    values |= {"model": "qwen2-1.5b", "output": "/out"}
    words = [w for o in own if o.key in values for w in _words(o, values[o.key])]
    written = {"keep": 0, **values}
    text = "".join(f"{_toml(k)} = {_toml(x)}\n" for k, x in written.items())
    path = tmp_path_factory.mktemp("recipe") / "r.toml"
    path.write_text(f'task = "{task}"\ndata = "/rows.jsonl"\n{text}', "utf-8")

    def by_command() -> Config:
        parsed = _options.main(words, standalone_mode=False)
        return command_line.config_from(task, ("/rows.jsonl",), parsed)

    read = _tried(lambda: builds_of(path, trust=True)[0])
    assert _tried(by_command) == read
    assert read == "refused" or VALIDATOR.is_valid(_json(path.read_text("utf-8")))


_SCALARS = st.one_of(
    *(st.booleans(), st.integers(-3, 9), st.floats(-1, 2), _TEXT, st.dates()),
    st.sampled_from(["${NONE}", "x=1", "packed", "sft", "50M", ""]),
)
_ANY = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=2)
)
_KEY = st.sampled_from([*declared.keys({**declared.TOP, **declared.SOURCE}), "layuot", "train_on"])
_TABLE = st.dictionaries(_KEY, _ANY, max_size=3)


@given(
    _TABLE,
    st.lists(_TABLE, max_size=2) | _ANY,
    st.lists(_TABLE, max_size=2) | _ANY,
    st.lists(st.tuples(_KEY, _SCALARS), max_size=2),
)
def test_whatever_is_written_is_read_or_explained(tmp_path_factory, top, source, build, changes):
    """No recipe ends in a traceback, and each of its mistakes names the recipe or ``--set``."""
    usual = {"task": "sft", "model": "qwen2-1.5b", "data": "/rows.jsonl"}
    table = {**usual, **top} | ({"source": source} if source else {})
    table |= {"build": build} if build else {}
    path = tmp_path_factory.mktemp("any") / "r.toml"
    path.write_text("".join(f"{_toml(k)} = {_toml(x)}\n" for k, x in table.items()), "utf-8")
    said = "r.toml"
    try:
        assert builds_of(path, [f"{key}={value}" for key, value in changes])
    except errors.UsageError as error:
        said = error.what.splitlines()[0]
    assert "r.toml" in said or "--set" in said


def test_paths_count_from_the_recipe(tmp_path, monkeypatch):
    """All of a recipe's paths; addresses, hub ids and profiles are left as they are."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "in [x]"
    (folder / "org" / "here").mkdir(parents=True)
    (folder / "rows.jsonl").write_text("{}\n")
    data = ["rows.jsonl", "*.jsonl", "s3://b/*.jsonl", "org/data", "org/here", "/a.jsonl", "-"]
    text = f'task = "sft"\nmodel = "./m"\ndata = {json.dumps(data)}\nchat-template = "a.txt"\n'
    (config,) = builds_of(write_recipe(folder, text).relative_to(tmp_path))
    wanted = ["in [x]/rows.jsonl", "in [[]x]/*.jsonl", "s3://b/*.jsonl", "org/data"]
    assert [*config.source.data] == [*wanted, "in [x]/org/here", "/a.jsonl", "-"]
    assert config.parts.model == "in [x]/./m"
    assert config.run.output == Path("in [x]/rows-sft-m")
    for model, read in (("qwen2-1.5b", ""), ("org/name", ""), ("org/here", "in [x]/")):
        (config,) = builds_of(Path("in [x]/recipe.toml"), [f"model={model}"])
        assert config.parts.model == f"{read}{model}"
    (config,) = builds_of(Path("in [x]/recipe.toml"), flags={"model": "./m", "output": Path("o")})
    assert (config.parts.model, config.run.output) == ("./m", Path("o"))


def test_paths_from_elsewhere_are_told(tmp_path, monkeypatch):
    """Recipes once had such paths: the message has the path that is meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "sub").mkdir()
    path = write_recipe(tmp_path / "sub", 'task = "sft"\nmodel = "m"\ndata = "rows.jsonl"\n')
    with pytest.raises(errors.UsageError, match=r"recipe.toml:3: .*Write '../rows.jsonl'"):
        builds_of(path.relative_to(tmp_path))


def test_variables_of_the_environment(tmp_path, monkeypatch):
    """In any text; a value that is one variable has the type of its key."""
    monkeypatch.setenv("WIDE", "2048")
    monkeypatch.setenv("YES", "true")
    monkeypatch.setenv("NAME", "${WIDE} $$")  # is not looked at again
    text = (
        'max-length = "${WIDE}"\ndedup = "${YES}"\nsystem = "a ${NAME} b $$ $x $${YES}"\n'
        'map = { question = "${YES}.x" }\nstop = ["<${WIDE}>"]\n'
    )
    (config,) = builds_of(write_recipe(tmp_path, HEAD + text))
    assert (config.plan.max_length, config.plan.dedup) == (2048, True)
    assert config.source.system == "a ${WIDE} $$ b $ $x ${YES}"
    assert config.source.map == {"question": "true.x"}
    assert config.plan.stop == ("<2048>",)
    assert VALIDATOR.is_valid(_json(HEAD + text))
    bad = HEAD + '# here\nlayout = "${NO_LAYOUT}"\nstop = ["a",\n"${NO_STOP}", "${1}"]\n'
    error = raised(errors.UsageError, builds_of, write_recipe(tmp_path, bad))
    assert ":5: layout needs the environment variable NO_LAYOUT" in error.what
    assert ":7: stop needs the environment variable NO_STOP" in error.what
    assert ":7: ${1} names no variable" in error.what


def test_set_changes_a_key(tmp_path):
    """With the type of the key, in tables too; a mistake is said of the words, not of the file."""
    path = write_recipe(tmp_path, HEAD + 'max-length = 64\n[map]\nquestion = "a"\n')
    (config,) = builds_of(
        path,
        [
            *("max_length=2048", "dedup=true", "system=5", "map.answer=b.c", 'stop=["x", "y"]'),
            *("tolerance={shortcuts.fail = 2}", "tolerance.truncation.warn=0.5", "where=a=1"),
        ],
    )
    assert (config.plan.max_length, config.plan.dedup, config.source.system) == (2048, True, "5")
    assert config.source.map == {"question": "a", "answer": "b.c"}
    assert config.judge.tolerance == {"shortcuts.fail": 2, "truncation.warn": 0.5}
    assert (config.plan.stop, config.source.where) == (("x", "y"), ("a=1",))
    for wrong, says in (
        ("max-length=x", "^--set max-length=x: max-length must be a whole number"),
        ("speed=9", "^--set speed=9: there is no option 'speed'"),
        *((wrong, "is not KEY=VALUE") for wrong in ("max-length", "=3", "map.=3")),
    ):
        raised(errors.UsageError, builds_of, path, [wrong], says=says)


def test_build_has_every_flag_of_run():
    """And needs none of them."""
    command: click.Command = catalog.load("posttrain_pipeline.commands", "build", "COMMAND")
    flags = {flag for param in command.params for flag in param.opts}
    assert flags >= {flag for option in OPTIONS.values() for flag in option.flags}
    assert not [p.name for p in command.params if isinstance(p, click.Option) and p.required]


# Every key of a TOML file is found at its line, however the file is written.

_PIECES = st.sampled_from(["a", "b-c", '"d.e"', "'f = 1'", "_1", '"\\u0067"'])
_COMMENT = st.sampled_from(["", "  # x = 1", " # [[b]] \"'"])


@st.composite
def _entries(draw: st.DrawFn, numbers: list[int]) -> list[str]:
    """Lines of one table; every number in a file is another."""
    keys = draw(st.lists(_PIECES, unique=True, max_size=4))
    lines = []
    for key in keys:
        dotted = draw(st.sampled_from(["", ".z", " . 'y y' . z"]))
        lines += f"{key}{dotted} = {draw(_written(numbers, 2))}{draw(_COMMENT)}".split("\n")
    return lines


@st.composite
def _written(draw: st.DrawFn, numbers: list[int], depth: int) -> str:
    numbers.append(len(numbers))
    unique = f"9{len(numbers):05}"
    texts = [unique, f'"{unique} # \\" ]"', f"'{unique} = ['"]
    texts += [f'"""{unique}\n[no]\na = 1 \\""""""', f"'''{unique}\n]]'''"]
    kind = draw(st.sampled_from([*texts, "list", "table"] if depth else [unique]))
    if kind in texts:
        return kind
    items = draw(st.lists(_written(numbers, depth - 1), max_size=3))
    if kind == "table":
        return "{" + ", ".join(f"k{at} = {item}" for at, item in enumerate(items)) + "}"
    return "[" + draw(st.sampled_from([", ", ",\n  # ]\n  "])).join(items) + "]"


@st.composite
def files(draw: st.DrawFn) -> str:
    """A TOML file with all kinds of tables, keys and values."""
    numbers: list[int] = []
    lines = draw(_entries(numbers))
    for name in draw(st.lists(st.sampled_from("tuv"), unique=True, max_size=3)):
        for _ in range(times := draw(st.integers(0, 3))):
            lines += ["", f"[[ {name} ]]" if times > 1 else f"[{name}]", *draw(_entries(numbers))]
            if draw(st.booleans()):
                lines += [f'  [{name}."n.x"]', *draw(_entries(numbers))]
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


def _leaves(value: Any, place: toml_file.Place = ()) -> list[tuple[toml_file.Place, str]]:
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in _leaves(inner, (*place, key))]
    if isinstance(value, list):
        return [one for at, inner in enumerate(value) for one in _leaves(inner, (*place, at))]
    return [(place, str(value)[:6])]


@given(files())
def test_each_value_is_at_its_line(text):
    """The line that is found is the one that has the value, which no other line has."""
    table, lines, found = tomllib.loads(text), text.split("\n"), toml_file.lines_of(text)
    for place, value in _leaves(table):
        assert value in lines[found[place] - 1], (place, text)
        assert all(place[:length] in found for length in range(1, len(place)))


@pytest.mark.parametrize(("text", "place", "line"), table("lines_of_keys.jsonl"))
def test_a_key_is_at_its_line(text, place, line):
    """Some that are easily missed."""
    assert toml_file.lines_of(text)[tuple(place)] == line


# A recipe with several sources or several builds: what each is, and what they share.

WORDS = SAMPLES / "sft" / "word_problems.jsonl"
CHAT = SAMPLES / "sft" / "chat.jsonl"
TOP = 'task = "sft"\nmodel = "qwen2-1.5b"\nkeep = 0\n'


def _source(name: str, data: object, **keys: str) -> str:
    """A table of a recipe; values as TOML has them."""
    lines = [f"{key.replace('_', '-')} = {value}" for key, value in keys.items()]
    data = json.dumps(str(data))
    return "\n".join(["[[source]]", f'name = "{name}"', f"data = {data}", *lines, ""])


MATH = _source("math", WORDS, system='"Think."', map='{ question = "question" }')
TALK = _source("talk", CHAT, train_on='"last"')


def _recipe(folder: Path, text: str, name: str = "mix.toml") -> Path:
    (folder / name).write_text(text, "utf-8")
    return folder / name


def test_the_id_says_which_source_an_input_is_of(tmp_path):
    """The same files, cut into sources elsewhere, are another build."""
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text("{}\n")
    found = set()
    for cut in (("ab", "c"), ("a", "bc"), ("abc",)):
        tables = "".join(
            f'[[source]]\nname = "{names}"\ndata = {[f"{name}.jsonl" for name in names]}\n'
            for names in cut
        )
        (config,) = builds_of(_recipe(tmp_path, TOP + tables))
        found.add(equal_build.id_of("recipe", scan(config)))
    assert len(found) == 3


def test_budgets_are_read_and_checked(tmp_path):
    head = TOP + TALK
    for key, right, wrong in table("refusals.toml")["budgets"]:
        path = _recipe(tmp_path, f"{head}{key} = {right}\n")
        (build,) = builds_of(path)
        (source,) = build.sources
        assert list(source.budget.given) == [key.replace("-", "_")]
        assert VALIDATOR.is_valid(_json(path.read_text()))
        with pytest.raises(UsageError, match=f"{key} must be"):
            builds_of(_recipe(tmp_path, f"{head}{key} = {wrong}\n"))
        with pytest.raises(UsageError, match=rf"'{key}' is a key of \[\[source\]\]"):
            builds_of(_recipe(tmp_path, f"{TOP}{key} = {right}\n{TALK}"))


@pytest.mark.parametrize(("text", "says"), table("refusals.toml")["recipes"])
def test_what_is_wrong_with_tables(text, says, tmp_path):
    """Named with line and table."""
    for name, known in (("TOP", TOP), ("MATH", MATH), ("TALK", TALK)):
        text = text.replace(f"{name}\n", known)
    assert says in raised(UsageError, builds_of, _recipe(tmp_path, text)).what


def test_what_may_differ_comes_from_the_top(tmp_path):
    """A source's own key wins over a build's, and this over the top's; a flag wins over all."""
    text = (
        f'{TOP}system = "top"\nsource = [{{ name = "a", data = "x" }}, '
        '{ name = "b", data = "y", system = "own" }]\n'
        '[[build]]\noutput = "1"\n[[build]]\noutput = "2"\nsystem = "build"\n'
    )
    path = _recipe(tmp_path, text)

    def systems(**flags: object) -> list[list[str | None]]:
        builds = builds_of(path, flags=flags)
        return [[one.options.system for one in config.sources] for config in builds]

    assert systems() == [["top", "own"], ["build", "own"]]
    assert systems(system="flag") == [["flag", "flag"]] * 2
    (one, two) = builds_of(path, ["source.b.system=set", "build.2.max-length=64"])
    assert (one.sources[1].options.system, two.plan.max_length) == ("set", 64)
    with pytest.raises(UsageError, match=r"there is no \[\[source\]\] 'c'"):
        builds_of(path, ["source.c.system=set"])


@pytest.mark.slow
def test_several_builds_share_their_parts(pipeline, tmp_path, cache):
    """One call, one object with the result of each; the rows of two layouts are encoded once."""
    text = (
        f"{TOP}{MATH}{TALK}"
        '[[build]]\noutput = "ragged"\nlayout = "ragged"\n'
        '[[build]]\noutput = "no"\nfor = "megatron"\nlayout = "ragged"\n'
        '[[build]]\noutput = "packed"\nlayout = "packed"\n'
    )
    ran = pipeline("build", _recipe(tmp_path, text), "--json", "--cache-dir", cache).ended(2)
    told = json.loads(ran.out)
    assert (told["status"], told["code"], told["manifest"]) == ("failed", 2, None)
    assert told["message"].startswith("2 of 3 builds made, 1 failed; ")
    layouts = [(one["manifest"] or {}).get("layout") for one in told["builds"]]
    assert layouts == ["ragged", None, "packed"]
    assert [one["status"] for one in told["builds"]] == ["built", "failed", "built"]
    assert f"Error: {tmp_path / 'no'}: " in ran.err
    assert len({path.name for path in cache.glob("parts/*/*.arrow")}) == 2
    assert not (tmp_path / "no").exists()


def test_plan_reads_a_recipe(pipeline, tmp_path):
    """The page is that of the same options; of several sources it has the rows of all."""
    path = _recipe(tmp_path, f'{TOP}output = "o"\ndata = "{WORDS}"\nmax-length = 512\n')
    asked = ("--task", "sft", "--model", "qwen2-1.5b", "-o", tmp_path / "o")
    plain = pipeline("plan", WORDS, *asked, "--max-length", "64")
    ran = pipeline("plan", path, "--max-length", "64")
    assert (ran.status, ran.out) == (plain.status, plain.out), ran.err
    said = pipeline("plan", _recipe(tmp_path, TOP + MATH + TALK), "--json").ended().told
    assert [Path(one["path"]).name for one in said["inputs"]] == [WORDS.name, CHAT.name]
    assert said["rows"] == sum(len(data.read_bytes().splitlines()) for data in (WORDS, CHAT))
    pipeline("plan", WORDS).ended(2)


def test_plan_says_what_sources_would_give(pipeline, tmp_path, cache, monkeypatch):
    """By the arithmetic of the build; a few examples may stand for all of them."""
    text = f"{TOP}{_source('math', WORDS, rows='4')}{_source('talk', CHAT, epochs='2')}"
    path = _recipe(tmp_path, f"max-reject = 1\n{text}")
    pipeline("build", path, "-o", "out", "--quiet", "--cache-dir", cache).ended()
    manifest = read_manifest(tmp_path / "out")
    _, given = manifest["sources"]
    (config,) = builds_of(path, flags={"cache_dir": cache})
    estimate = forecast(config)
    (words, talk) = (of_record(one) for one in population.sources(estimate))
    assert words["splits"]["train"]["examples"] == 4
    assert (talk["splits"], talk["has"]) == (given["splits"], given["has"])
    table = {one["max_length"]: one["packs"] for one in population.packing_table(estimate)}
    assert table[4096] == manifest["packing"]["packs"]
    assert "math: about 4 examples from 10" in plan_page.as_text(estimate)
    monkeypatch.setattr(population, "MOST", 12)
    (words, talk) = (of_record(one) for one in population.sources(estimate))
    assert abs(words["splits"]["train"]["examples"] - 4) <= 2
    assert abs(talk["splits"]["train"]["examples"] - given["splits"]["train"]["examples"]) <= 4


def test_a_large_input_counts_for_more(tmp_path, cache):
    """As many rows of each are sampled, and the build has all of them."""
    for name, rows, words in (("many", 9000, 3), ("few", 90, 300)):
        row = {"question": "q", "answer": "a " * words}
        lines = (json.dumps({**row, "id": n}) + "\n" for n in range(rows))
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    text = "".join(_source(n, tmp_path / f"{n}.jsonl", ignore='"id"') for n in ("many", "few"))
    (config,) = builds_of(_recipe(tmp_path, TOP + text), flags={"cache_dir": cache})
    many, few = population.sources(forecast(config))
    assert abs(many.has.examples - 9000) <= 90
    assert few.has.examples == 90
    assert 0.4 < many.share < 0.7


# Options by phase: each is one field of one phase, and enters the hashes that its phase feeds.

OF_ANOTHER_MODEL = "thinking"  # whose tokenizer takes seconds to make
# Another value of what every recipe has.
OTHER = {"task": '"prm"', "data": '["elsewhere.jsonl"]', "model": '"elsewhere"'}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Of all recipes, so that those which are alike are equal."""
    return tmp_path_factory.mktemp("recipes")


def _given(key: str, folder: Path, cache_dir: Path) -> tuple[Config, Config]:
    """The build of a recipe without a key, and with it."""
    texts = [recipe_with(key, RIGHT[key] if key in OTHER else None)]
    texts += [recipe_with(key, OTHER.get(key, RIGHT[key]))]
    if key == OF_ANOTHER_MODEL:
        texts = [text.replace(NAME, "qwen3-8b") for text in texts]
    flags = {} if key == "cache-dir" else {"cache_dir": cache_dir}
    (without,), (given,) = (
        builds_of(write_recipe(folder, text), flags=flags, trust=True) for text in texts
    )
    return without, given


def _config(tmp_path: Path, cache_dir: Path, **options: Any) -> Config:
    given = {"task": "sft", "model": NAME, "output": tmp_path / "out", **options}
    return Config.of(data=("data.jsonl",), cache_dir=cache_dir, **given)


def _bound(one: Config, other: Config) -> bool:
    """Whether what is searched for, compared or encoded in rows differs by more than its option."""
    return any(
        of(one) != of(other)
        for of in (
            lambda config: config.plan.longest_example,
            lambda config: config.groups,  # rows are split, or no longer
            lambda config: config.carried,  # parts have what is compared
            lambda config: (overlaps.search_of(config.plan), overlaps.likeness_of(config.plan)),
        )
    )


RECIPES: dict[str, Recipe] = {}


def _resolved(config: Config) -> Recipe:
    """The recipe of one of the few configurations that all others are compared with."""
    key = str(config.for_build) + config.parts.model
    if key not in RECIPES:
        RECIPES[key] = resolve_recipe(config, [])
    return RECIPES[key]


def test_each_option_is_one_field():
    """The command line, a recipe and a call have each field of each phase once."""

    @command_line.with_options(command_line.BUILD)
    def command(**given: Any) -> None:
        """Takes the options of every build."""

    options = [option.name for option in click.command()(command).params]
    reached = Counter([*options, "task", "data"])
    assert reached == Counter(one.name for phase in PHASES.values() for one in fields(phase))
    assert set(reached.values()) == {1}
    with pytest.raises(TypeError, match="no option 'layuot'"):
        Config.of("sft", ("x.jsonl",), NAME, Path("out"), layuot="ragged")


# Data and model count as what they name, another task is another set of options, and another end
# of turn or cache needs another template or tokenizer.
UNRESOLVED = ("task", "data", "model", "eos", "cache-dir")


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=[pytest.mark.slow] if key == OF_ANOTHER_MODEL else [])
        for key in RIGHT
    ],
)
def test_an_option_changes_the_hashes_of_its_phase(key, folder, cache_dir):
    """One changed option changes what is recorded for parts, for the build, for both or neither;
    and the same of a recipe's two hashes, which have the model's profile in them."""
    base, changed = _given(key, folder, cache_dir)
    phase = PHASE_OF[declared.keys(build_options.OPTIONS)[key].name]
    assert changed != base
    spelled = key in ("data", "model")  # recorded as the hash of what they name
    assert (changed.for_build != base.for_build) == (phase != "run" and not spelled)
    if key == "test":  # whose files are a source of their own
        return
    feeds_parts = phase in ("source", "parts") and not spelled
    bound = phase == "plan" and _bound(base, changed)
    assert (changed.for_parts != base.for_parts) == (feeds_parts or bound)
    if key not in UNRESOLVED:
        one, two = _resolved(base), resolve_recipe(changed, [])
        assert (one.fingerprint != two.fingerprint) == (phase != "run")
        parts = [recipe.part_fingerprint(recipe.config.source.format) for recipe in (one, two)]
        assert (parts[0] != parts[1]) == (feeds_parts or _bound(one.config, two.config))


def test_a_manifest_keeps_the_order_of_its_options(tmp_path):
    """Files that were written have the options in this order, and equal builds are equal bytes."""
    names = list(_config(tmp_path, tmp_path).for_build)
    assert names[:8] == "task format map ignore where null_fields layout trainer".split()
    first = names.index("expectations") + 1
    assert names[first - 6 : first] == "tolerance dedup test_size shuffle seed expectations".split()
    later = "group_by pack_within total empty title license origin"
    assert names[first:] == later.split()
    every = [one for phase in PHASES.values() for one in fields(phase)]
    where_given = {one.name for one in every if one.metadata.get(UNLESS_DEFAULT)}
    others = {n for n in PHASE_OF if PHASE_OF[n] != "run"} - {"data", "model", "test"}
    assert set(names) == others - where_given


def test_recorded_options_are_read_back(tmp_path):
    """What a manifest holds gives the same options, whatever a newer version wrote beside."""
    given = {"map": {"prompt": "q"}, "where": ["a=1", "b=2"], "dedup": True, "stop": ["x"]}
    config = config_of("sft", "data.jsonl", {"model": NAME, "output": str(tmp_path), **given}, "t")
    recorded = {**config.for_build, "task": "sft", "of_a_newer_version": 1}
    again = Config.of(data=("data.jsonl",), model=NAME, output=tmp_path, **from_record(recorded))
    assert again.for_build == config.for_build
    phases = operator.attrgetter("source", "parts", "plan", "judge")
    assert phases(again) == phases(config)


@pytest.mark.parametrize(("task", "options", "says"), table("refusals.toml")["options"])
def test_what_does_not_go(task, options, says, tmp_path):
    """Each phase checks its own options, and the whole what two phases must agree on."""
    raised(UsageError, _config, tmp_path, tmp_path, task=task, **options, says=says)


# ``pipeline init``: the recipe that it writes is one, and builds as it is.

MODEL = ("--model", "qwen2-1.5b")


def _uncommented(text: str) -> str:
    """With every offered line, each alone in front of its comment."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("# More options"))
    offered = [line.removeprefix("# ") if " = " in line else line for line in lines[start:]]
    return "\n".join([*lines[:start], *offered, ""])


@pytest.mark.parametrize("task", few(SAMPLE_OF, 1))
def test_what_it_writes_builds(pipeline, tmp_path, task):
    """The task is found, and the build is that of ``run``; what it offers is right too."""
    assert pipeline("init", SAMPLE_OF[task], *MODEL).ended().out == "recipe.toml\n"
    path = tmp_path / "recipe.toml"
    VALIDATOR.validate(_json(path.read_text()))
    assert tomllib.loads(path.read_text())["task"] == task
    pipeline("build", "recipe.toml", "-o", "one", "--quiet").ended()
    pipeline("run", task, SAMPLE_OF[task], *MODEL, "-o", "two", "--quiet").ended()
    one, two = (tmp_path / name / "manifest.json" for name in ("one/current", "two"))
    assert one.read_bytes() == two.read_bytes()
    every = tmp_path / "every.toml"
    every.write_text(_uncommented(path.read_text()))
    VALIDATOR.validate(_json(every.read_text()))
    (config,) = builds_of(every)
    assert config.plan.trainer == "trl"
    pipeline("init", SAMPLE_OF[task], *MODEL).refused(2, "is there already")


def test_it_prints_the_schema(pipeline):
    """That of this installation; the shipped one where no other package adds anything."""
    assert json.loads(pipeline("init", "--schema").out) == VALIDATOR.schema
    pipeline("init").ended(2)
