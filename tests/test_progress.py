"""What a build shows while it works: counts of workers, what may be said of them, and where."""

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Terminal, run_python, table

from pipeline import executors, processes
from pipeline.executors import NOTHING, Amount, Job
from pipeline.messages import lines, progress, screen, session
from pipeline.messages.progress import ENCODE, Follower, Phase, Whole

DATA = SAMPLES / "sft" / "word_problems.jsonl"
CONTROL = "\x1b"
SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"  # what a terminal is told of its cursor


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time that it is, for tests that let it pass."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def _encoding(sizes: list[int], kept: list[Amount] | None = None, at_once: int = 1) -> Follower:
    found = Follower()
    pieces = len(sizes) + len(kept or [])
    found.begin(ENCODE, Whole(pieces, sizes, kept or [], in_bytes=True, at_once=at_once))
    return found


def test_what_is_partly_done_counts_once(clock):
    """A piece's last word replaces what was told of it; what a lost worker did is not counted."""
    told = _encoding([1000, 1000, 2000])
    (phase,) = told.phases
    told.partly(0, Amount(rows=10, tokens=100, size=400))
    told.partly(1, Amount(rows=5, tokens=50, refused=1, size=200))
    assert phase.so_far == Amount(rows=15, tokens=150, refused=1, size=600)
    assert phase.share == 0.15
    told.partly(1, NOTHING)
    told.piece(0, Amount(rows=25, tokens=250))
    assert phase.so_far == Amount(rows=25, tokens=250, size=1000)
    clock[0] += 5
    assert (phase.rows_per_second, phase.tokens_per_second) == (5, 50)


def test_what_was_there_before_is_done_and_makes_no_rate(clock):
    """Parts that are known before the phase, and parts that workers find."""
    told = _encoding([100, 100], kept=[Amount(rows=40, tokens=400, refused=2, size=200)])
    (phase,) = told.phases
    assert (phase.done, phase.total, phase.share) == (1, 3, 0.5)
    clock[0] += 4
    told.piece(0, Amount(rows=20), kept=True)
    assert (phase.share, phase.rows_per_second, phase.left) == (0.75, 0, None)
    told.piece(1, Amount(rows=20))
    assert (phase.so_far.rows, phase.rows_per_second, phase.share) == (80, 5, 1.0)
    assert lines.kept_in_words(phase) == "2 of 3 parts were there before"
    told.begin(ENCODE, Whole(1, [], [Amount(rows=9, size=3)]))
    assert lines.kept_in_words(phase) == "all 1 parts were there before"
    assert (phase.so_far.rows, phase.share) == (9, 1.0)


def test_time_left_is_said_where_there_is_a_base(clock):
    """Of what was made since workers began to tell; not of the start, nor of what was kept."""
    told = _encoding([1000, 1000], kept=[Amount(size=8000)])
    (phase,) = told.phases
    clock[0] += 60  # workers start
    told.partly(0, Amount(size=100))
    assert phase.left is None
    clock[0] += 2
    told.partly(0, Amount(size=500))
    assert phase.left is None  # too short a time
    clock[0] += 2
    told.partly(0, Amount(size=900))
    assert phase.left == pytest.approx(1100 / (800 / 4))
    told.piece(0, NOTHING)
    told.piece(1, NOTHING)
    assert phase.left is None


def test_time_left_waits_for_rounds_where_only_whole_pieces_are_told(clock):
    """Four workers that have made one of forty pieces have begun four."""
    told = _encoding([10] * 40, at_once=4)
    (phase,) = told.phases
    for piece in range(8):
        assert phase.left is None
        clock[0] += 10
        told.piece(piece, NOTHING)
    assert phase.left == pytest.approx(320)


def test_a_share_is_said_where_the_whole_is_known():
    """Not of rounds of which there are more, nor of a compressed file that is being read."""
    told = Follower()
    told.begin("plan", Whole(8, one_round=True))
    told.piece(0, NOTHING)
    assert (told.phases[0].share, told.phases[0].left) == (None, None)
    assert screen.cells(told.phases[0], 0)[0] == "1 of 8"
    told = _encoding([1000])
    told.partly(0, Amount(rows=7))
    assert told.phases[0].share in (None, 0)
    told.partly(0, Amount(rows=7, size=1001))  # the last line has no end
    assert executors.percent(told.phases[0].share or 0) == "99%"


def _told(folder: str | None, item: int) -> int:
    """Tells of itself; in a folder, the worker of item 2 dies once after that."""
    executors.tell(Amount(rows=item))
    if folder and item == 2 and not (mark := Path(folder) / "2").exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_tell_while_they_work(workers, tmp_path, monkeypatch):
    """In this process and in others, by the number of the item; what a lost worker told is taken
    back, and its item is made again from nothing."""
    monkeypatch.setattr(
        executors, "EVERY", 0
    )  # inherited by copies only: spawned workers tell once
    told: list[tuple[int, Amount]] = []
    job = Job(partly=lambda number, amount: told.append((number, amount)))
    shared, items = (str(tmp_path), [1, 2]) if workers == 2 else (None, [1, 2, 3])
    assert dict(processes.pmap(_told, shared, items, workers, job)) == dict(enumerate(items))
    assert (0, Amount(rows=1)) in told
    assert (1, Amount(rows=2)) in told
    assert ((1, NOTHING) in told) == (workers == 2)


def test_no_phase_is_wider_than_the_terminal():
    """What is shortest last is left out first; large figures, too."""
    begun = time.monotonic() - 4000
    whole = Whole(400, [10**9] * 400, in_bytes=True)
    large = Phase(ENCODE, whole=whole, total=400, began=begun, heard=(begun, 0))
    large.partly[0] = Amount(rows=123_456_789, tokens=98_765_432_100, refused=1234, size=40 * 10**9)
    phases = [Phase("start"), large, Phase("publish")]
    for width in (46, 58, 60, 78, 80, 118, 200):
        shown = screen.table(phases, width)
        assert max(map(len, shown)) <= width
        assert "10%" in shown[1]
        assert shown[1].endswith("left")
    wide = screen.table(phases, 200)[1]
    assert "123,456,789 rows" in wide
    assert "10% of 400 GB" in wide
    for word in ("rows/s", "tokens/s", "1,234 refused", "left"):
        assert word in screen.table(phases, 92)[1]


def test_lines_say_what_goes_on(clock, capsys, monkeypatch):
    """Text every ten seconds, and the end of what was told of; nothing of what is short."""
    told = lines.Lines()
    told("start", 0, 1)
    clock[0] += 12
    told.beat()
    told("start", 1, 1)
    told.begin(ENCODE, Whole(3, [1000, 1000, 2000], in_bytes=True))
    clock[0] += 10
    told.partly(0, Amount(rows=1500, tokens=30_000, refused=3, size=500))
    told.beat()
    told.piece(0, Amount(rows=3000, tokens=60_000, refused=6))
    told.piece(1, Amount(rows=3000, tokens=60_000))
    told.piece(2, Amount(rows=6000, tokens=120_000))
    told("check", 0, 1)
    told("check", 1, 1)
    assert capsys.readouterr().err.splitlines() == [
        "start     12 s",
        "start     done in 12 s",
        "encode    10 s, 12% of 4.0 kB, 1,500 rows, 150 rows/s, 3,000 tokens/s, 3 refused",
        "encode    done in 10 s, 12,000 rows, 1,200 rows/s, 24,000 tokens/s, 6 refused",
    ]


def test_a_log_says_what_is_known(clock, capsys):
    """Rows, tokens, refusals and shares by name; nothing of a phase without them."""
    log = lines.Log()
    log.begin(ENCODE, Whole(2, [500, 1500], in_bytes=True))
    clock[0] += 4
    log.partly(1, Amount(rows=500, tokens=5000, refused=1, size=1000))
    log.beat()
    log("check", 0, 1)
    log("check", 1, 1)
    first, last = map(json.loads, capsys.readouterr().err.splitlines())
    names = {"level": "info", "event": "phase", "phase": ENCODE, "done": 0, "total": 2}
    counts = {"rows": 500, "tokens": 5000, "refused": 1, "share": 0.5, "seconds": 4.0}
    rates = {"rows_per_second": 125, "tokens_per_second": 1250}
    assert first | {"time": ""} == {"time": "", **names, **counts, **rates}
    assert "rows" not in last


def test_times_in_words():
    """Clocks for columns, spans for sentences."""
    assert [executors.clock(one) for one in (7, 754, 3723)] == ["0:07", "12:34", "1:02:03"]
    spans = [executors.span(one) for one in (0.44, 27.4, 59.7, 200, 7500)]
    assert spans == ["0.4 s", "27 s", "1 min", "3 min 20 s", "2 h 5 min"]


def _on_terminal(folder: Path, cache_dir: Path, *more: str, **variables: str) -> Terminal:
    """A build that shows its progress on a terminal."""
    words = ("run", "sft", str(DATA), "--model", "qwen2-1.5b", "-o", str(folder / "out"))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **variables}
    return Terminal([*words, "--cache-dir", str(cache_dir), *more], environment, "stderr")


@pytest.mark.slow
def test_a_terminal_sees_every_phase(tmp_path, cache_dir):
    """And has its cursor back; a build that is there shows no phase, ``--quiet`` nothing. Colours
    are codes 30 to 37; a terminal that cannot move its cursor gets no codes at all."""

    def shown(*more: str, **variables: str) -> str:
        terminal = _on_terminal(tmp_path, cache_dir, *more, **variables)
        assert terminal.end() == 0
        return terminal.shown

    colour = "\x1b\\[[0-9;]*3[0-7]m"
    first = shown()
    last = first.rpartition("\x1b[1A")[2]  # the last frame, and what is below it
    assert "built: " in last
    for phase in ("start", "encode", "plan", "write", "check", "report", "publish"):
        assert re.search(rf"✓\S* \S*{phase}", last), phase
    assert first.rindex(SHOWN) > first.rindex(HIDDEN)
    assert re.search(colour, first)
    again = shown()
    assert HIDDEN not in again
    assert "✓" not in again
    assert shown("--quiet", "--seed", "5") == ""
    assert not re.search(colour, shown("--seed", "6", NO_COLOR="1"))
    assert CONTROL not in shown("--seed", "7", TERM="dumb")


@pytest.mark.slow
def test_ctrl_c_gives_the_terminal_back(tmp_path, cache_dir):
    """While phases are drawn: the cursor is shown again, and nothing is left of the build."""
    running = _on_terminal(tmp_path, cache_dir, "--seed", "8")
    for shown in running.reads():
        if HIDDEN in shown:
            running.process.send_signal(signal.SIGINT)
            break
    assert running.end() == 130
    assert running.shown.rindex(SHOWN) > running.shown.rindex(HIDDEN)
    assert running.shown.replace("\r", "").endswith("interrupted; nothing was published\n")
    assert list(tmp_path.iterdir()) == []


def test_what_is_open_takes_what_is_said_beside_it(capsys):
    """A warning is a line of its own, whoever shows progress; nothing stays open."""
    with session.following(session.Session(), quiet=True) as report:
        assert progress.open_now == [report]
        progress.aside("warning: one was lost")
    assert progress.open_now == []
    assert capsys.readouterr().err == "warning: one was lost\n"


def test_the_first_phase_imports_nothing(tmp_path):
    """Most commands of a schedule end in it: what draws the others is imported for these."""
    run_python(table("scripts.toml")["first_phase"], tmp_path).ended()


@pytest.mark.slow
def test_a_resumed_build_says_what_it_kept(pipeline, tmp_path):
    """From the log: all parts were there, and their rows count."""
    more = ("--cache-dir", "cache", "--log-format", "json", "--model", "qwen2-1.5b")
    found: list[dict[str, Any]] = []
    for output in ("one", "two"):
        told = map(json.loads, pipeline("run", "sft", DATA, "-o", output, *more).err.splitlines())
        found.append(next(line for line in told if line.get("phase") == ENCODE))
    first, second = found
    assert "kept" not in first
    assert first["tokens"] > first["rows"] > 0
    assert second["kept"] == second["total"]
    assert second["rows"] == first["rows"]
    assert "rows_per_second" not in second
