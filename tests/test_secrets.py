"""Secrets of addresses and of variables are shown nowhere, and a recipe is data unless trusted."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import Ran

from expectations import gx_suites
from pipeline import secrets
from pipeline.options.recipe import builds_of
from pipeline.stores.sources import locate
from stages.errors import GateError, UsageError

Run = Callable[..., Ran]
MODEL = ("--model", "qwen2-1.5b")
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

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, _, query = self.path.rpartition("/")[2].partition("?")
            body = FILES.get(name)
            known = "Authorization" in self.headers and MARK in query
            status = 503 if name == "busy.jsonl" else 403 if not known else 200
            if body is None or status != 200:
                self.send_error(404 if status == 200 else status)
                return
            first, _, last = self.headers.get("Range", "=0-").partition("=")[2].partition("-")
            part = body[int(first) : int(last or len(body)) + 1]
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("ETag", f'"{len(body)}"')
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(part)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def silent(pipeline: Run, tmp_path: Path, cache_home: Path) -> Run:
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


@pytest.mark.parametrize(
    "name", ["rated", "binary", "absent", pytest.param("busy", marks=pytest.mark.slow)]
)
def test_errors_about_an_address_show_none_of_its_secrets(
    silent: Run, host: str, name: str
) -> None:
    """To people, to programs, in tracebacks, and what a corrected command lacks has gaps."""
    there = address(host, f"{name}.jsonl")
    for command in (("run", "sft", there, "-o", "out"), ("plan", there)):
        ran = silent(*command, *MODEL, "--json", "--debug", "--notify=cat > told.json")
        found = json.loads(ran.out)
        assert found["code"] == ran.status > 1, ran.err
        assert "Traceback" in ran.err
        for corrected in found.get("commands", ()):
            assert f"'http://...@{host}/set/rated.jsonl?...'" in corrected
        assert ("commands" in found) is (name == "rated" and command[0] == "run")


def test_builds_of_an_address_hold_none_of_its_secrets(
    silent: Run, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize("first", range(len(NOWHERE)))
def test_no_command_shows_the_secrets_of_an_address(
    silent: Run, tmp_path: Path, first: int
) -> None:
    """Wherever one is written that has no business there; each command has one of them in turn, and
    all of them in all cases of the sweep."""
    (tmp_path / "d.jsonl").write_bytes(GOOD)
    run = ("run", "sft", "d.jsonl", *MODEL)
    silent(*run, "-o", "out").ended()
    u = "ADDRESS"
    commands = (
        *(("run", "sft", u, *MODEL), ("plan", u, *MODEL), ("init", u), ("check", u)),
        *(("show", u), ("report", u), ("export", "trl", u), ("export", "trl", "out", "-o", u)),
        *(("publish", "out", u), ("versions", u), ("rollback", u), ("diff", "out", u)),
        *(("overlaps", u), ("overlaps", "out", u), ("doctor", "--model", u), ("list", u)),
        *(("stops", u), ("stops", "out", f"URL={u}"), ("explain", u), ("build", u), (u,)),
        *(("cache", "info", "--cache-dir", u), ("stage", "encode", u, "x"), ("run", u)),
        *(("overlay", u, "out"), ("overlay", "out", u), ("check", "out", "--source", u)),
        *((*run, "-o", u), (*run, "--cache-dir", u), (*run, "--decontaminate", u)),
        *((*run, "--test", u), (*run, "--chat-template", u), (*run, "--expectations", u)),
        *((*run, "--origin", u, "-o", "o"), (*run, "--data-docs", u), (*run, "--engine", u)),
        *((*run, f"--map={u}"), (*run, f"--frob={u}"), (*run, "--max-length", u)),
    )
    for number, words in enumerate(commands, first):
        there = NOWHERE[number % len(NOWHERE)]
        silent(*(word.replace(u, there) for word in words), "--debug")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("https://u:p@ss@h/a.jsonl?s=x", "https://.@h/a.jsonl?."),
        ("https://token@h/a?x", "https://.@h/a?."),
        ("see http://u:p@h/a?s=1 or 's3:/k:s@b/c'", "see http://.@h/a?. or 's3:/.@b/c'"),
        ("http://u:pa/ss@h/x", "http://.@"),
        ("http://h/x?s='a)b\"c", "http://h/x?."),
        ("hf://datasets/o/n@main/x.jsonl", "hf://datasets/o/n@main/x.jsonl"),
        ("s3://b/part-??.jsonl", "s3://b/part-??.jsonl"),
        ("abfs://box@account/x", "abfs://box@account/x"),
        ("http://[::1]:80/x@y and http://h:9: no", "http://[::1]:80/x@y and http://h:9: no"),
        ("a/b?c@d stdin:1", "a/b?c@d stdin:1"),
    ],
)  # fmt: skip
def test_what_is_shown_of_an_address(text: str, wanted: str) -> None:
    """All but user, password and query; patterns, ports and containers are no secrets."""
    assert secrets.redacted(text, ".") == wanted
    assert secrets.redacted(secrets.redacted(text)) == secrets.redacted(text)


def test_a_store_that_is_written_to_has_no_secrets_in_its_address(silent: Run, host: str) -> None:
    """It is kept with what lies there."""
    for option in ("-o", "--cache-dir"):
        there = address("bucket", "x", "s3")
        ran = silent("run", "sft", address(host, "good.jsonl"), *MODEL, option, there)
        assert (ran.status, "s3://bucket/set/x has a user" in ran.err) == (2, True)


def test_values_of_variables_are_not_shown(
    silent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no key: in errors, their JSON, tracebacks, plans, what a run records and the cache."""
    monkeypatch.setenv("HIDDEN", f"of'{MARK} folder")
    monkeypatch.setenv("SMALL", "sft")
    (tmp_path / "d.jsonl").write_bytes(GOOD)
    folder = tmp_path / f"given of'{MARK} folder"
    head = 'task = "${SMALL}"\noutput = "out"\nkeep = 0\n'
    recipe = tmp_path / "r.toml"
    for keys in (
        'model = "qwen2-1.5b"\ndata = ["given ${HIDDEN}/x.jsonl"]',
        'model = "${HIDDEN}"\ndata = ["d.jsonl"]',
        'model = "./${HIDDEN}/model"\ndata = ["d.jsonl"]',
        'model = "qwen2-1.5b"\ndata = ["${HIDDEN}", "http://${HIDDEN}@h/${HIDDEN}?x=${HIDDEN}"]',
        'model = "m"\ndata = ["x"]\nmax-length = "${HIDDEN}"\nlayout = "${HIDDEN}"',
        'model = "m"\ndata = ["x"]\nmap = {question = "${HIDDEN}", "a" = 3}\n"${HIDDEN}" = 3',
        'model = "m"\ndata = ["x"]\nnotify = "curl -d ${HIDDEN}"\ntolerance = "${HIDDEN}"',
    ):
        recipe.write_text(f"{head}{keys}\n")
        for command in (("build", "--trust"), ("plan",)):
            ran = silent(command[0], "r.toml", *command[1:], "--json", "--debug")
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
def test_a_recipe_runs_nothing_unless_it_is_trusted(tmp_path: Path, key: str) -> None:
    """Whichever table says it; what a command line says may run."""
    for name in ("s.json", "s.py", "d.jsonl"):
        (tmp_path / name).write_text("{}")
    path = tmp_path / "r.toml"
    for table in ("", "[[build]]\n"):
        if table and "notify" in key:
            continue
        head = 'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "d.jsonl"\n'
        text = f'{head}{table}engine = "ray"\n{key}\n'
        path.write_text(text)
        with pytest.raises(UsageError, match=r"r\.toml:\d: .*runs code") as raised:
            builds_of(path)
        assert "--trust" in raised.value.remedy
        assert builds_of(path, trust=True)
        name, _, value = key.partition(" = ")
        flags = {name.replace("-", "_"): () if "[" in value else "x"}
        assert builds_of(path, flags=flags)
        path.write_text(text.replace(key, ""))
        assert builds_of(path, [] if "[" in value or table else [f"{name}=x"])
    path.write_text(text.replace(key, 'expectations = ["s.json"]'))
    assert builds_of(path)


def test_a_recipe_that_is_not_trusted_notifies_nobody(pipeline: Run, tmp_path: Path) -> None:
    """Not even of its mistakes."""
    (tmp_path / "r.toml").write_text('notify = "touch ran"\n')
    pipeline("build", "r.toml").ended(2)
    assert not (tmp_path / "ran").exists()
    pipeline("build", "r.toml", "--trust").ended(2)
    assert (tmp_path / "ran").exists()


def test_a_suite_in_json_runs_nothing() -> None:
    """A condition on rows is a program to pandas."""
    kwargs = {"column": "x", "row_condition": "@pd.io.common.os.system('true') == 0"}
    one = {"type": "expect_column_values_to_not_be_null", "kwargs": kwargs}
    with pytest.raises(GateError, match="row_condition"):
        gx_suites.load("s.json", json.dumps([{"name": "mine", "expectations": [one]}]))


def test_a_broken_link_is_named_with_what_it_points_to(tmp_path: Path) -> None:
    """In a folder, as a pattern finds it, and by itself; whatever it is called."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(GOOD)
    for name in ("b.jsonl", "latest"):
        link = folder / name
        link.symlink_to("gone/away")
        for argument in (folder, f"{folder}/*", link):
            with pytest.raises(UsageError, match=rf"{link} is a broken link: gone/away is not"):
                locate(str(argument), tmp_path)
        link.unlink()
    (folder / ".hidden").symlink_to("gone")
    assert len(locate(str(folder), tmp_path)) == 1
