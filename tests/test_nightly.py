"""A recipe that is built every night: what is there in the morning, whatever the night was like."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import WIDE, Run, read_rows, started, write_rows
from test_versions import strangers

from pipeline.builds import lease, versions

ROWS = 15  # of a day
RECIPE = """
task = "sft"
model = "qwen2-1.5b"
data = ["days/*.jsonl"]
output = "releases"
keep = {keep}
max-length = 512
drift = {{ rows = 10.0 }}

[notify]
command = "cat >> told.jsonl"
"""

# What a process does with files raises events; from the publication on they are counted, and the
# process is killed by the one with the wanted number.
DIES = """
import os, signal, sys
from pipeline.builds import place
counted, last, watched = [], int(sys.argv.pop(1)), []
def hook(event, _):
    if watched and os.getpid() == watched[0] and event.split(".")[0] in ("os", "open", "shutil"):
        counted.append(event)
        if len(counted) == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
publish = place.Place.publish
def watch(*arguments):
    watched.append(os.getpid())
    try:
        return publish(*arguments)
    finally:
        watched.clear()
        with open("events.txt", "w") as file:
            print(len(counted), file=file)
place.Place.publish = watch
from pipeline.cli import main
main()
"""


def day(folder: Path, number: int, count: int = ROWS, answer: str = "It is {}.") -> Path:
    """The rows of one day."""
    rows = [
        {"question": f"What is {n} plus {number}?", "answer": answer.format(n + number)}
        for n in range(count)
    ]
    return write_rows(folder / "days" / f"day-{number:03}.jsonl", rows)


class Nights:
    """A folder with a recipe, and what became of its nights so far."""

    def __init__(self, folder: Path, pipeline: Run, cache_home: Path, keep: int) -> None:
        self.folder, self.pipeline, self.keep = folder, pipeline, keep
        self.releases = folder / "releases"
        self.statuses: list[str] = []
        self.told = 0
        self.rows = 0
        self._variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}
        (folder / "nightly.toml").write_text(RECIPE.format(keep=keep))

    def build(self, status: str, *more: str) -> dict[str, Any]:
        """A night, by the command that a scheduler would run; its one object."""
        ran = self.pipeline("build", "nightly.toml", "--trust", "--json", "--quiet", *more)
        (line,) = ran.out.splitlines()
        found: dict[str, Any] = json.loads(line)
        assert (found["status"], found["code"]) == (status, ran.status), ran.err
        self.statuses.append(status)
        self.told += 1
        assert self.objects()[-1] == found
        return found

    def objects(self) -> list[dict[str, Any]]:
        """What the command of ``[notify]`` was given."""
        found = read_rows(self.folder / "told.jsonl")
        assert len(found) == self.told
        return found

    def current(self) -> dict[str, Any]:
        """The manifest behind the link."""
        read: dict[str, Any] = json.loads((self.releases / "current/manifest.json").read_text())
        assert (self.releases / "current").resolve().name == read["build_id"]
        return read

    def run(self, dies: int) -> int:
        """A night in a process that dies at one of the steps of publication; its status."""
        words = ("-c", DIES, dies, "build", "nightly.toml", "--trust", "--quiet")
        return started(sys.executable, *words, folder=self.folder, env=self._variables).status

    def good(self, number: int) -> None:
        """More data; a new version."""
        day(self.folder, number)
        self.rows += ROWS
        found = self.build("built")
        assert found["paths"]["build"] == f"releases/{found['build_id']}"
        assert self.current()["rows"]["in"] == self.current()["rows"]["used"] == self.rows
        assert not (self.folder / "releases.failed").exists()

    def bad(self, number: int) -> None:
        """Empty and overlong answers: refused, with reasons and the options that would help."""
        before = self.current()["build_id"]
        extra = day(self.folder, number, 40, "")
        long = "".join(
            json.dumps({"question": f"Say {n}.", "answer": "word " * 700}) + "\n" for n in range(30)
        )
        extra.write_text(extra.read_text() + long)
        found = self.build("refused")
        codes = {code: one["rows"] for code, one in found["figures"]["by_code"].items()}
        assert codes == {"empty_answer": 40, "too_long": 30}
        assert found["figures"]["too_long"]["fit"] == {"1024": 30}
        assert "all fit --max-length 1024" in found["remedy"]
        share = found["figures"]["passes_with_max_reject"]
        assert f"--max-reject {share:g}" in found["remedy"]
        left = self.folder / "releases.failed"
        assert found["paths"]["failed"] == "releases.failed"
        names = {path.name for path in left.iterdir()}
        assert names >= {"reasons.json", "report.html", "rejects.jsonl"}
        assert json.loads((left / "reasons.json").read_text())["figures"] == found["figures"]
        assert len((left / "rejects.jsonl").read_text().splitlines()) == 70
        assert "empty_answer" in (left / "report.html").read_text()
        assert self.current()["build_id"] == before
        extra.unlink()

    def quiet(self) -> None:
        """No new data: no new version."""
        there = sorted(path.name for path in self.releases.iterdir())
        before = self.current()["build_id"]
        found = self.build("unchanged")
        assert found["build_id"] == before
        assert sorted(path.name for path in self.releases.iterdir()) == there

    def crash(self, number: int, chosen: random.Random) -> None:
        """Killed at some step of publication; the next run finishes the work, and says so."""
        before = self.current()["build_id"]
        day(self.folder, number)
        self.rows += ROWS
        steps = int((self.folder / "events.txt").read_text())
        at = chosen.randrange(1, steps)
        assert self.run(at) == -signal.SIGKILL, f"step {at} of {steps}"
        self.statuses.append("failed")
        now = self.current()
        assert now["build_id"] == before or now["rows"]["used"] == self.rows, f"step {at}"
        ran = self.pipeline("build", "nightly.toml", "--trust", "--json", "--quiet")
        self.told += 1
        found = json.loads(ran.out)
        # Where the version was there already, only the link is exchanged.
        assert found["status"] in ("built", "unchanged"), f"step {at}: {ran.err}"
        self.statuses.append(found["status"])
        assert self.current()["rows"]["used"] == self.rows, f"step {at}"
        assert strangers(self.releases) == [], f"step {at}"

    def rollback(self) -> None:
        """The version before is current, and stays when the same data is built again."""
        bad = self.current()["build_id"]
        ran = self.pipeline("rollback", "releases", "--json").ended()
        self.statuses.append(lease.ROLLED_BACK)
        found = json.loads(ran.out)
        assert found["rolled_back_from"] == bad
        assert self.current()["build_id"] == found["build_id"] != bad
        again = self.build("unchanged")
        assert again["build_id"] == found["build_id"]
        assert "was rolled back" in again["figures"]["notes"][0]
        assert self.current()["build_id"] == found["build_id"]

    def end(self) -> None:
        """The link, the counts, the history, the files; and nothing else."""
        lines = lease.read(self.releases)
        assert [line["status"] for line in lines] == self.statuses
        assert lines[-1]["current"] == self.current()["build_id"]
        there = versions.versions(self.releases)
        assert len(there) == self.keep
        assert there[0].build_id == self.current()["build_id"]
        newest = [line["current"] for line in reversed(lines)]
        assert [one.build_id for one in there] == list(dict.fromkeys(newest))[: self.keep]
        assert self.current()["rows"]["in"] == self.rows
        assert strangers(self.releases) == []
        left = {path.name for path in self.folder.iterdir()} - {"events.txt", "out.txt", "err.txt"}
        assert {name for name in left if "releases" in name} == {"releases"}
        for one in there:
            files = json.loads((one.folder / "manifest.json").read_text())["files"]
            for name, sha256 in files.items():
                assert hashlib.sha256((one.folder / name).read_bytes()).hexdigest() == sha256
        told = Counter(one["status"] for one in self.objects())
        silent = [self.statuses.count(one) for one in ("failed", lease.ROLLED_BACK)]
        assert told.total() == len(self.statuses) - sum(silent)  # a killed run notifies nobody
        self.pipeline("check", "releases/current").ended()


def _start(nights: Nights) -> None:
    """The first night; it counts the steps of a publication."""
    day(nights.folder, 0)
    nights.rows += ROWS
    assert nights.run(-1) == 0
    nights.statuses.append("built")
    nights.told += 1


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_nights(pipeline: Run, tmp_path: Path, cache_home: Path, seed: int) -> None:
    """Eleven nights: one bad, one killed, one taken back; five versions stay."""
    chosen = random.Random(seed)
    bad, killed, rolled = sorted(chosen.sample(range(3, 11), 3))
    nights = Nights(tmp_path, pipeline, cache_home, keep=5)
    _start(nights)
    for night in range(1, 12):
        if night == bad:
            nights.bad(night)
        elif night == killed:
            nights.crash(night, chosen)
        else:
            nights.good(night)
        if night == rolled:
            nights.rollback()
        if night % 7 == 0 and night != rolled:
            nights.quiet()
    nights.end()


@pytest.mark.slow
def test_a_kill_at_every_step(pipeline: Run, tmp_path: Path, cache_home: Path) -> None:
    """Of a publication: the next run leaves what one that was not killed leaves."""
    nights = Nights(tmp_path, pipeline, cache_home, keep=1)
    _start(nights)
    steps = int((tmp_path / "events.txt").read_text())
    for step in range(1, steps, 3 if WIDE else 8):
        chosen = random.Random()
        chosen.randrange = lambda *_, step=step: step  # type: ignore[method-assign]
        nights.crash(step, chosen)
    nights.end()
