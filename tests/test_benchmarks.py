"""The benchmarks measure what they say: rows, processes, figures, and the page made of them."""

import importlib
import itertools
import json
import operator
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page, plan_growth, process, sampled
from benchmarks.figures import Figures
from benchmarks.programs import OURS
from benchmarks.workplace import ROOT

SPENDS = (
    "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
)


def test_time_of_what_a_command_starts_is_counted(tmp_path):
    """Its children, and what it leaves behind."""
    child = [sys.executable, "-c", SPENDS.format(seconds=0.4)]
    waited = f"import subprocess\nsubprocess.run({child!r})\n"
    left = f"import subprocess\nsubprocess.Popen({child!r}, start_new_session=True)\n"
    for program in (SPENDS.format(seconds=0.4), waited, left):
        cost = process.run([sys.executable, "-c", program], tmp_path)
        assert 0.4 <= cost.cpu < 2
    assert process.run([sys.executable, "-c", "0"], tmp_path).cpu < 0.35


def test_memory_of_all_processes_is_watched(tmp_path):
    """Two processes with 40 MB each are 80 MB together."""
    holds = "import time\nkept = b'x' * 40_000_000\ntime.sleep(1)\n"
    both = f"import subprocess, sys\nother = subprocess.Popen([sys.executable, '-c', {holds!r}])\n"
    cost = process.run([sys.executable, "-c", f"{both}{holds}other.wait()"], tmp_path, memory=True)
    assert cost.tree > 80_000_000
    assert 40_000_000 < cost.largest_process < 80_000_000


def _cell(folder: Path, name: str, measured: dict[str, Any], **settings: Any) -> None:
    around = {"code": "c" * 64, "python": "3", "packages": {}, "processor": "p", "memory": 1}
    content = {"settings": settings, "surroundings": around, "day": "d", "measured": measured}
    (folder / f"{name}.json").write_text(json.dumps(content))


def _runs(*seconds: float) -> dict[str, Any]:
    cost = {"wall": 1.0, "largest_process": 1, "tree": 0}
    return {"cold": [{**cost, "cpu": one} for one in seconds], "warm": []}


def test_figures_are_those_of_the_files(tmp_path):
    """Medians, a row's cost from two sizes, ratios of whole processes."""
    _cell(tmp_path, "compare-sft-english-1000", {OURS: _runs(3, 1, 2), "trl": _runs(10)})
    _cell(tmp_path, "compare-sft-english-3000", {OURS: _runs(4), "trl": _runs(30)})
    figures = Figures(tmp_path)
    assert str(figures.spread(OURS, "sft", "english", 1000)) == "2.0 (1.0 to 3.0)"
    assert f"{figures.ratio('trl', 'sft', 'english', 1000):.2f}" == "5.00 (3.33 to 10.00)"
    assert figures.each(OURS) == pytest.approx(1000)
    assert figures.each("trl") == pytest.approx(10_000)
    assert figures.each("datasets") is None
    text = page.text(tmp_path)
    assert "| one more row, against TRL | 10.0 (6.7 to 20.0) times |" in text
    assert "| whole process at 3,000 rows, against TRL | 7.5 times |" in text


def test_the_sampler_charges_a_net_with_its_time(monkeypatch):
    """Whatever it does, within a few looks; what is no net's is charged to none."""

    def spend() -> None:
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            sum(itertools.repeat(1, 1000))

    place = f"{Path(__file__)}:{spend.__code__.co_qualname}"
    monkeypatch.setitem(sampled._NET_OF, place.removeprefix(sampled.ROOT), "a net")
    sampler = sampled.Sampler()
    sampler.start()
    spend()
    sampler.stop.set()
    sampler.join()
    assert dict(sampler.nets) == {"a net": pytest.approx(0.2, abs=0.05)}


def test_every_net_begins_somewhere():
    """Each name of the table is one of docs/reliability.md, and each place is a function."""
    page_text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    for net, places in sampled.NETS.items():
        assert f"| {net} |" in page_text
        for place in places:
            path, _, name = place.partition(":")
            module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
            assert operator.attrgetter(name)(module).__code__.co_qualname == name


def test_made_up_parts_are_planned_as_those_of_a_build(tmp_path, cache_dir):
    """They have every column that a plan reads."""
    works, reports = plan_growth.parts(tmp_path / "parts", 3_000, of_part=1_000)
    build = plan_growth.prepared(tmp_path, cache_dir, works, {"test_size": 0.1})
    made = plan_growth.measured(build, works, reports)
    assert made["examples"] == made["kept"] == 3_000
    assert made["parts"] == 3
