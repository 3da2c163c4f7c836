"""A recipe with several sources or several builds: what each is, and what they share."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Run, read_manifest, stored_rows, table, write_rows
from test_recipe import VALIDATOR, _json

from pipeline.builder import plan_page, population
from pipeline.builder.forecast import forecast
from pipeline.inputs import equal_build
from pipeline.inputs.scan import scan
from pipeline.manifest.json_records import as_json as of_record
from pipeline.options.recipe import builds_of
from stages.errors import UsageError

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


@pytest.mark.slow
def test_two_sources_are_two_runs_in_one(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    """The rows of each are those of ``run`` on it alone, in the order of the sources, each with the
    name of its source."""
    common = ("--model", "qwen2-1.5b", "--layout", "ragged", "--cache-dir", cache)
    alone = {
        "math": (WORDS, "--system", "Think.", "--map", "question=question"),
        "talk": (CHAT, "--train-on", "last"),
    }
    for name, words in alone.items():
        pipeline("run", "sft", *words, *common, "-o", name).ended()
    recipe = _recipe(tmp_path, f'{TOP}output = "mix"\nlayout = "ragged"\n{MATH}{TALK}')
    pipeline("build", recipe, "--cache-dir", cache, "--workers", "2").ended()
    expected = [row | {"source": name} for name in alone for row in stored_rows(tmp_path / name)]
    assert stored_rows(tmp_path / "mix") == expected
    manifest = read_manifest(tmp_path / "mix")
    assert [one["source"] for one in manifest["inputs"]] == ["math", "talk"]
    assert [one["name"] for one in manifest["options"]["sources"]] == ["math", "talk"]
    assert manifest["options"]["sources"][1]["train_on"] == "last"
    assert "train_on" not in manifest["options"]


def test_a_mixture_is_checked(pipeline: Run, tmp_path: Path) -> None:
    """Nothing to do is noticed; ``check`` makes a sample of every source again with its own
    options."""
    recipe = _recipe(tmp_path, f'{TOP}output = "one"\n{MATH}{TALK}')
    pipeline("build", recipe).ended()
    assert "already up to date" in pipeline("build", recipe).err
    said = pipeline("check", "one", "--json").ended().told
    assert said["rows_made_again"] == read_manifest(tmp_path / "one")["examples"]["kept"], said


def test_the_id_says_which_source_an_input_is_of(tmp_path: Path) -> None:
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


def test_a_source_is_held_to_its_own_limit(pipeline: Run, tmp_path: Path) -> None:
    """One without a limit counts with the others, towards the limit at the top."""
    good = json.loads(CHAT.read_text().splitlines()[0])
    refused = {"messages": [{"role": "user", "content": "no answer"}]}
    rows = [{**good, "id": f"bad{at}"} if at % 2 else refused for at in range(60)]
    bad = write_rows(tmp_path / "bad.jsonl", rows)
    for keys, status in (({}, 3), ({"max_reject": "0.6"}, 0), ({"max_reject": "0.3"}, 3)):
        text = TOP + TALK + _source("bad", bad, ignore='["id"]', **keys)
        pipeline("plan", _recipe(tmp_path, text)).ended(status)
    ran = pipeline("build", tmp_path / "mix.toml", "-o", "out")
    ran.refused(3, "rows of source bad were refused", "at most 30.0% by max-reject of source bad")


def test_budgets_are_read_and_checked(tmp_path: Path) -> None:
    head = TOP + TALK
    for key, right, wrong in (
        ("share", "1.0", "1.5"),
        ("rows", '"20k"', "0"),
        ("tokens", '"1.5M"', '"1.5"'),
        ("trained-tokens", "3_000", "-3"),
        ("epochs", "2.5", "0"),
        ("weight", "3", "-1"),
    ):
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
def test_what_is_wrong_with_tables(text: str, says: str, tmp_path: Path) -> None:
    """Named with line and table."""
    for name, known in (("TOP", TOP), ("MATH", MATH), ("TALK", TALK)):
        text = text.replace(f"{name}\n", known)
    with pytest.raises(UsageError) as raised:
        builds_of(_recipe(tmp_path, text))
    assert says in raised.value.what


def test_what_may_differ_comes_from_the_top(tmp_path: Path) -> None:
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


def test_an_option_that_an_error_names_is_of_one_source(pipeline: Run, tmp_path: Path) -> None:
    """As a flag it would be for all of them."""
    rows = [{"question": f"q {at}?", "answer": "a", "label": at % 2 == 0} for at in range(40)]
    rated = write_rows(tmp_path / "rated.jsonl", rows)
    path = _recipe(tmp_path, TOP + TALK + _source("rated", rated))
    for command in ("build", "plan"):
        ran = pipeline(command, path)
        ran.refused(3, "--where label=true", "keys of the [[source]] rated")
    path.write_text(path.read_text() + 'where = "label=true"\n')
    pipeline("plan", path).ended()


@pytest.mark.slow
def test_several_builds_share_their_parts(pipeline: Run, tmp_path: Path, cache: Path) -> None:
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


def test_plan_reads_a_recipe(pipeline: Run, tmp_path: Path) -> None:
    """The page is that of the same options; of several sources it has the rows of all."""
    path = _recipe(tmp_path, f'{TOP}output = "o"\ndata = "{WORDS}"\nmax-length = 512\n')
    asked = ("--task", "sft", "--model", "qwen2-1.5b", "-o", tmp_path / "o")
    plain = pipeline("plan", WORDS, *asked, "--max-length", "64")
    ran = pipeline("plan", path, "--max-length", "64")
    assert (ran.status, ran.out) == (plain.status, plain.out), ran.err
    ran = pipeline("plan", _recipe(tmp_path, TOP + MATH + TALK), "--json").ended()
    said = json.loads(ran.out)
    assert [Path(one["path"]).name for one in said["inputs"]] == [WORDS.name, CHAT.name]
    assert said["rows"] == sum(len(data.read_bytes().splitlines()) for data in (WORDS, CHAT))
    pipeline("plan", WORDS).ended(2)


def test_plan_says_what_sources_would_give(
    pipeline: Run, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_large_input_counts_for_more(tmp_path: Path, cache: Path) -> None:
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


@pytest.mark.slow
def test_lengths_are_known_or_not_said(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    """Where one source trains every turn and another its answers alone, a shard does not show which
    turns are answers; the figure is left out rather than guessed."""

    def longest(*words: object) -> Any:
        ran = pipeline(*words, "--json", "--quiet", "--cache-dir", cache).ended()
        return json.loads(ran.out)["manifest"]["max_new_tokens"]

    def mixed(keys: str) -> Any:
        text = f"{TOP}{_source('math', WORDS)}{_source('talk', CHAT)}{keys}"
        return longest("build", _recipe(tmp_path, text), "-o", "mix")

    alone = [
        longest("run", "sft", data, "--model", "qwen2-1.5b", "-o", data.stem)["max"]
        for data in (WORDS, CHAT)
    ]
    assert mixed("")["max"] == max(alone)
    assert mixed('train-on = "all"\n') is None
