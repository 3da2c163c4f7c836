"""Secrets of addresses and of variables are shown nowhere, and a recipe is data unless trusted."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from stub_http import Answer, Asked, Site, serve_http
from support import Ran, Run, few, raised, sweep, table

from pipeline import secrets, sources
from pipeline.options.recipe import builds_of
from stages.errors import UsageError

MODEL = ("--model", "qwen2-1.5b")
TABLE = table("secrets.toml")
MARK = "Zq-7"  # in every secret; no text in base64 has a hyphen
USER, QUERY = f"al-{MARK}:pw!{MARK}-word", f"X-Amz-Signature=sig{MARK}9'x&token=tok{MARK}(8)"
GOOD = b"".join(
    json.dumps({"question": f"What is {n} + {n}?", "answer": f"{2 * n}."}).encode() + b"\n"
    for n in range(20)
)
RATED = GOOD.replace(b'"}', b'", "label": true}')
FILES = {
    "good.jsonl": GOOD,
    "rated.jsonl": RATED,
    "bad.jsonl": GOOD + b"{}\n" * 20,
    "empty.jsonl": b"",
    "binary.jsonl": bytes(range(256)),
}


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """A server that gives ranges of a few files to whoever knows user and query."""

    site = Site()
    site.files = {f"/set/{name}": content for name, content in FILES.items()}

    def answer(asked: Asked) -> Answer:
        name, _, query = asked.path.rpartition("/")[2].partition("?")
        if name == "busy.jsonl":
            return Answer(503)
        if "Authorization" not in asked.headers or MARK not in query:
            return Answer(403)
        return site.answer(asked)

    with serve_http(answer) as url:
        yield url.removeprefix("http://")


@pytest.fixture
def silent(pipeline, tmp_path, cache_home) -> Run:
    """Runs a command, and finds no secret in what it prints, writes, keeps and tells."""

    read: set[tuple[Path, int, int]] = set()  # files as they were before

    def run(*arguments: object, but: str = MARK * 9) -> Ran:  # a folder's name that is not shown
        ran = pipeline(*arguments)
        said = {"stdout": ran.out, "stderr": ran.err}
        for path in [*tmp_path.rglob("*"), *cache_home.rglob("*")]:
            said[f"{path.name} "] = path.name.replace(but, "")
            known = (path, path.stat().st_mtime_ns, path.stat().st_size)
            if path.is_file() and known not in read:
                read.add(known)
                said[str(path)] = path.read_bytes().decode("utf-8", "replace")
        leaks = {
            where: text[max(text.index(MARK) - 60, 0) :][:99]
            for where, text in said.items()
            if MARK in text
        }
        assert not leaks, arguments
        return ran

    return run


def address(host: str, name: str, scheme: str = "http") -> str:
    """An address that is full of secrets."""
    return f"{scheme}://{USER}@{host}/set/{name}?{QUERY}"


@pytest.mark.parametrize("name", few(["rated", "binary", "absent", "busy"], 1))
def test_errors_about_an_address_show_none_of_its_secrets(silent, host, name):
    """To people, to programs, in tracebacks, and what a corrected command lacks has gaps."""
    there = address(host, f"{name}.jsonl")
    for command in (("run", "sft", there, "-o", "out"), ("plan", there)):
        ran = silent(*command, *MODEL, "--json", "--debug", "--notify=cat > told.json")
        found = json.loads(ran.out)
        assert found["code"] == ran.status > 1, ran.err
        assert "Traceback" in ran.err
        for corrected in found.get("commands", ()):
            assert f"'http://...@{host}/set/rated.jsonl?...'" in corrected
        assert ("commands" in found) is (name == "rated")


@pytest.mark.slow
def test_builds_of_an_address_hold_none_of_its_secrets(silent, host, tmp_path, monkeypatch):
    """Nor do refused ones, plans, stage files, recipes and the cache."""
    there = address(host, "good.jsonl")
    told = ("--json", "--notify", "cat > told.json")
    assert silent("run", "sft", there, *MODEL, "-o", "out", "--origin", there, *told).status == 0
    assert (tmp_path / "told.json").is_file()
    bad = address(host, "bad.jsonl")
    assert silent("run", "sft", bad, *MODEL, "-o", "bad", "--debug", *told).status == 3
    assert (tmp_path / "bad.failed" / "report.html").is_file()
    assert silent("run", "sft", there, *MODEL, "-o", "one", "--until", "normalize").status == 0
    plan = silent("plan", there, *MODEL, "--json")
    assert json.loads(plan.out)["inputs"][0]["origin"] == f"http://{host}/set/good.jsonl"
    assert silent("init", there, *MODEL, "-o", "r.toml").status == 0
    assert 'data = ["${DATA_1}"]' in (tmp_path / "r.toml").read_text()
    assert silent("build", "r.toml").status == 2
    monkeypatch.setenv("DATA_1", there)
    assert silent("build", "r.toml", "--keep", "0", "--json", "-o", "again").status == 0
    same = [(tmp_path / one / "train").glob("*.arrow") for one in ("out", "again")]
    assert len({next(shards).read_bytes() for shards in same}) == 1


NOWHERE = (
    address("nowhere.invalid", "x"),
    address("bucket", "x", "s3"),
    address("host", "x", "foo"),
    f"http://u:{MARK}-word/more-{MARK}@host/x",
    f"s3:/{USER}@b/x?{QUERY}",
)


@pytest.mark.great_expectations
@sweep(1)
@pytest.mark.parametrize("first", range(len(NOWHERE)))
def test_no_command_shows_the_secrets_of_an_address(silent, tmp_path, first):
    """Wherever one is written that has no business there; each command has one of them in turn, and
    all of them in all cases of the sweep."""
    (tmp_path / "d.jsonl").write_bytes(GOOD)
    run = ("run", "sft", "d.jsonl", *MODEL)
    silent(*run, "-o", "out").ended()
    for number, command in enumerate(TABLE["commands"], first):
        words = command.replace("RUN", " ".join(run)).split()
        there = NOWHERE[number % len(NOWHERE)]
        silent(*(word.replace("ADDRESS", there) for word in words), "--debug")


def test_what_is_shown_of_an_address():
    """All but user, password and query; patterns, ports and containers are no secrets."""
    for text, wanted in TABLE["shown"]:
        assert secrets.redacted(text, ".") == wanted
        assert secrets.redacted(secrets.redacted(text)) == secrets.redacted(text)


def test_a_store_that_is_written_to_has_no_secrets_in_its_address(silent, host):
    """It is kept with what lies there."""
    for option in ("-o", "--cache-dir"):
        there = address("bucket", "x", "s3")
        ran = silent("run", "sft", address(host, "good.jsonl"), *MODEL, option, there)
        assert (ran.status, "s3://bucket/set/x has a user" in ran.err) == (2, True)


def test_values_of_variables_are_not_shown(silent, tmp_path, monkeypatch):
    """In no key: in errors, their JSON, tracebacks, plans, what a run records and the cache."""
    monkeypatch.setenv("HIDDEN", f"of'{MARK} folder")
    monkeypatch.setenv("SMALL", "sft")
    (tmp_path / "d.jsonl").write_bytes(GOOD)
    folder = tmp_path / f"given of'{MARK} folder"
    head = 'task = "${SMALL}"\noutput = "out"\nkeep = 0\n'
    recipe = tmp_path / "r.toml"
    for command, keys in zip(itertools.cycle(("build", "plan")), TABLE["recipes"], strict=False):
        recipe.write_text(f"{head}{keys}\n")
        trusted = ("--trust",) if command == "build" else ()
        ran = silent(command, "r.toml", *trusted, "--json", "--debug")
        assert ran.status > 1, ran.err
        assert "HIDDEN}" in ran.out
    folder.mkdir()
    (folder / "x.jsonl").write_bytes(GOOD)
    recipe.write_text(f'{head}model = "qwen2-1.5b"\ndata = ["given ${{HIDDEN}}/"]\n')
    for command in ("plan", "build"):
        silent(command, "r.toml", "--json", but=folder.name).ended()
    assert "given ${HIDDEN}/x.jsonl" in (tmp_path / "out" / "run.json").read_text()


CODE = ['notify = "touch ran"', 'expectations = ["s.json", "s.py/."]', 'ray-address = "auto"']


@pytest.mark.parametrize("key", CODE)
def test_a_recipe_runs_nothing_unless_it_is_trusted(tmp_path, key):
    """Whichever table says it; what a command line says may run."""
    for name in ("s.json", "s.py", "d.jsonl"):
        (tmp_path / name).write_text("{}")
    path = tmp_path / "r.toml"
    for under in ("", "[[build]]\n"):
        if under and "notify" in key:
            continue
        head = 'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "d.jsonl"\n'
        text = f'{head}{under}engine = "ray"\n{key}\n'
        path.write_text(text)
        error = raised(UsageError, builds_of, path, says=r"r\.toml:\d: .*runs code")
        assert "--trust" in error.remedy
        assert builds_of(path, trust=True)
        name, _, value = key.partition(" = ")
        flags = {name.replace("-", "_"): () if "[" in value else "x"}
        assert builds_of(path, flags=flags)
        path.write_text(text.replace(key, ""))
        assert builds_of(path, [] if "[" in value or under else [f"{name}=x"])
    path.write_text(text.replace(key, 'expectations = ["s.json"]'))
    assert builds_of(path)


def test_a_broken_link_is_named_with_what_it_points_to(tmp_path):
    """In a folder, as a pattern finds it, and by itself; whatever it is called."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(GOOD)
    for name in ("b.jsonl", "latest"):
        link = folder / name
        link.symlink_to("gone/away")
        for argument in (folder, f"{folder}/*", link):
            with pytest.raises(UsageError, match=rf"{link} is a broken link: gone/away is not"):
                sources.locate(str(argument), tmp_path)
        link.unlink()
    (folder / ".hidden").symlink_to("gone")
    assert len(sources.locate(str(folder), tmp_path)) == 1
