"""Fixtures that the tests share: a bound model, a cache for the session, the command line."""

import fcntl
import functools
import hashlib
import importlib.util
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import shipped_judge
from hypothesis import HealthCheck, settings
from preloaded import Server, keep_tokenizers, outputs
from stub_s3 import S3Stub, serve_s3
from support import WIDE, Ran, follow, own_cache, started

from stages import encoders, profile
from stages.tokenizers import builtin, probes, profiles

NAME = "qwen2-1.5b"
READ_AT_START = ("HF_", "PYTHON")
_IN_UTC = {**os.environ, "TZ": "UTC"}

# What commands print depends on the width of a terminal: that of whoever runs the tests is none of
# theirs. Processes of pytest-xdist are told one, too.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # pytest imports readline, which sets it behind Python's back

vars(os)["fsync"] = lambda fd: None  # no test cuts the power
keep_tokenizers()

# Training needs torch, in an environment of its own (`make test-training`).
collect_ignore = [] if importlib.util.find_spec("torch") else ["failures"]

# A loaded machine fails no test, and equal code has equal results: the same examples are drawn in
# each run. ``make fuzz`` draws others, and more of them.
# A folder of a test may be written over by each of its examples.
_SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
_ANY = {"deadline": None, "suppress_health_check": _SLOW}
settings.register_profile("repeatable", derandomize=True, max_examples=25, **_ANY)
settings.register_profile("fuzz", **_ANY)
settings.load_profile("fuzz" if os.environ.get("FUZZ") else "repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but some cases of each sweep, drawn by the commit's day; ``WIDE=1``: none.

    A sweep is of the cases of one function, or of all tests that give its name.

    A mend is checked by the cases which failed. On other days others are drawn, and every case is
    run before long.
    Sweeps are the longest of the slow tests: they come first, so that no process waits for another
    in the end.
    """
    items.sort(key=_is_no_slow_sweep)
    if WIDE:
        return
    when = started(*"git log -1 --format=%cd --date=format-local:%F".split(), env=_IN_UTC)
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not _is_no_slow_sweep(item):
            marker = item.get_closest_marker("sweep")
            of = "".join(marker.args[1:]) or item.nodeid.partition("[")[0]
            cases.setdefault(of, []).append(item)
    left_out: set[pytest.Item] = set()
    for function, of_it in cases.items():
        marker = of_it[0].get_closest_marker("sweep")
        random.Random(when.out + function).shuffle(of_it)
        left_out.update(of_it[marker.args[0] :])
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])


def _is_no_slow_sweep(item: pytest.Item) -> bool:
    return not (item.get_closest_marker("sweep") and item.get_closest_marker("slow"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say who judges shipped suites in this test."""
    library = item.get_closest_marker("great_expectations")
    os.environ[shipped_judge.NAME] = "" if library else "1"
    shipped_judge.install()


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder of all processes of this run of the tests."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory, shared) -> Path:
    """``XDG_CACHE_HOME`` of this test process: all rebuild a tokenizer once."""
    home = tmp_path_factory.mktemp("cache")
    own_cache(home / "posttrain-pipeline", shared / "rebuilt")
    return home


@pytest.fixture(scope="session")
def cache_dir(cache_home) -> Path:
    """What ``--cache-dir`` would be."""
    return cache_home / "posttrain-pipeline"


@pytest.fixture
def cache(tmp_path, cache_dir) -> Path:
    """A cache without parts."""
    return own_cache(tmp_path / "cache", cache_dir)


@pytest.fixture(scope="session")
def s3(tmp_path_factory) -> Iterator[S3Stub]:
    """A store on the loopback, for all tests of the session."""
    with serve_s3(tmp_path_factory.mktemp("s3")) as stub:
        yield stub


@pytest.fixture
def in_s3(s3, monkeypatch) -> S3Stub:
    """The same, and this process finds it."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()  # those of another server
    return s3


@pytest.fixture(scope="session")
def tokenizer_json(cache_dir) -> bytes:
    """The real Qwen2 ``tokenizer.json``."""
    profile = profiles.all_profiles()[NAME]
    assert profile.ranks is not None
    return builtin.tokenizer_json(profile, profile.ranks, cache_dir)


@pytest.fixture(scope="session")
def model(tokenizer_json) -> profile.TargetModel:
    """Qwen2 as SFT and RM builds see it."""
    return probes.bind(profiles.all_profiles()[NAME], tokenizer_json, with_steps=False)


@pytest.fixture(scope="session")
def step_model(tokenizer_json) -> profile.TargetModel:
    """Qwen2 with the step tokens of PRM builds."""
    return probes.bind(profiles.all_profiles()[NAME], tokenizer_json, with_steps=True)


@pytest.fixture(scope="session")
def reference(model) -> encoders.Encoder:
    """The Hugging Face tokenizer."""
    return encoders.load("tokenizers", model.tokenizer_json)


@pytest.fixture(scope="session")
def fast(model) -> encoders.Encoder:
    """The fast encoder for the same tokenizer."""
    return encoders.load("fastokens", model.tokenizer_json)


@pytest.fixture(scope="session")
def commands(shared) -> Iterator[Server]:
    """Runs commands in forks of a process that has imported everything."""
    server = Server(shared / "commands")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def followed() -> set[str]:
    """Refusals whose printed commands were run."""
    return set()


@pytest.fixture
def pipeline(commands, cache_home, tmp_path, followed, request) -> Callable[..., Ran]:
    """Run the command line as a user would, in ``tmp_path``.

    Given variables that libraries or Python read while they start, it is a process of its own;
    else code can be given that its process runs ``before``. With slow tests, the commands that a
    refusal prints are run, too.
    """

    with_slow = request.config.option.markexpr != "not slow"

    def run(
        *arguments: object, before: str = "", follows: bool = with_slow, **environment: str
    ) -> Ran:
        words = [*map(str, arguments)]
        variables = {
            **os.environ,
            "XDG_CACHE_HOME": str(cache_home),
            "HF_HUB_OFFLINE": "1",
            **environment,
        }
        if any(name.startswith(READ_AT_START) for name in environment):
            command = [str(Path(sys.executable).parent / "pipeline"), *words]
            return started(*command, folder=tmp_path, env=variables)
        status = commands(words, tmp_path, variables, before)
        out, err = (path.read_text("utf-8") for path in outputs(tmp_path))
        ran = Ran(status, out, err)
        if follows and status in (2, 3) and err not in followed and not before:
            followed.add(err)
            follow(functools.partial(run, follows=False, **environment), ran)
        return ran

    return run


@pytest.fixture(scope="session")
def built(commands, cache_home, shared, tmp_path_factory) -> Callable[..., Path]:
    """A build by the command line, made once for equal arguments: tests look at it, no more.

    ``built(task, data, *options)`` returns the folder of ``pipeline run task data ...``.
    """
    here, folders = tmp_path_factory.mktemp("built"), shared / "builds"
    folders.mkdir(exist_ok=True)

    def run(task: str, data: object, *options: object) -> Path:
        variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}
        words = [task, *map(str, (data, *options))]
        folder = folders / hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                model = () if "--model" in words else ("--model", NAME)
                command = ["run", *words, *model, "--workers", "1", "--output", str(folder)]
                assert commands(command, here, variables) == 0, outputs(here)[1].read_text("utf-8")
                for path in folder.rglob("*"):
                    path.chmod(0o555 if path.is_dir() else 0o444)
        return folder

    return run


@pytest.fixture
def make(tmp_path, cache_dir) -> Callable[..., Path]:
    """Build in this process, where everything is loaded already; the folder of the build."""
    from pipeline.options.config import Config
    from pipeline.run_build import build

    def run(task: str, data: Path, output: str = "out", **options: Any) -> Path:
        given = {"model": NAME, "workers": 1, "max_reject": 1.0, **options}
        config = Config.of(
            task=task, data=(str(data),), output=tmp_path / output, cache_dir=cache_dir, **given
        )
        build(config, lambda what, done, total: None)
        return tmp_path / output

    return run


@pytest.fixture(scope="session")
def cases() -> Path:
    """Real input files, kept beside the project; tests that need them are skipped elsewhere."""
    folder = os.environ.get("POSTTRAIN_CASES")
    if not folder or not Path(folder).is_dir():
        pytest.skip("POSTTRAIN_CASES is not set")
    return Path(folder)
