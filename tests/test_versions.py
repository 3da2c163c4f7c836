"""Versions under a link: a reader always finds one, what is held stays, and old ones go."""

import hashlib
import itertools
import json
import os
import signal
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from preloaded import outputs
from support import SAMPLES, raised, table, write_rows

from pipeline.builds import build, folder_versions, lease, limits
from pipeline.builds.build import Build
from pipeline.builds.folder_versions import FolderVersions
from pipeline.builds.place import Place
from pipeline.manifest import dataset_files
from stages.errors import PipelineError, UsageError

MODEL = ("--model", "qwen2-1.5b")


def id_of(name: object) -> str:
    """An id as builds have them."""
    return hashlib.sha256(str(name).encode()).hexdigest()


def publish(place: Place, build_id: str) -> tuple[str, ...]:
    """A build without data, published as builds are, with its line in the history."""
    with place.staging() as folder:
        (folder / "data.arrow").write_text(build_id)
        (folder / "manifest.json").write_text(
            json.dumps({"build_id": build_id, "files": {"data.arrow": ""}})
        )
        removed, _ = place.publish(folder, build_id)
    if place.versions is not None:
        place.versions.record({"status": "built", "build_id": build_id})
    return removed


def ids(folder: Path) -> set[str]:
    """The versions that are there."""
    return {one.build_id for one in FolderVersions(folder).all()}


def strangers(folder: Path) -> list[str]:
    """Whatever lies in a folder of versions and is none of theirs."""
    known = {lease.HISTORY, "current", folder_versions.HOLDS, *ids(folder)}
    return sorted(path.name for path in folder.iterdir() if path.name not in known)


def test_the_newest_stay_and_the_link_names_the_last(tmp_path):
    """Of five with two to keep, the last two; the link is relative, so the folder may be moved."""
    place = Place.of(tmp_path / "r", 2)
    gone = [publish(place, id_of(n)) for n in range(5)]
    assert gone == [(), (), (id_of(0),), (id_of(1),), (id_of(2),)]
    assert ids(place.real) == {id_of(3), id_of(4)}
    assert os.readlink(place.real / "current") == id_of(4)
    assert (place.real / "current" / "data.arrow").read_text() == id_of(4)
    assert strangers(place.real) == []
    moved = place.real.rename(tmp_path / "elsewhere")
    assert (moved / "current" / "data.arrow").read_text() == id_of(4)


def test_what_is_held_stays_until_it_is_released(tmp_path):
    """By every name that holds it."""
    place = Place.of(tmp_path / "r", 1)
    publish(place, id_of(0))
    FolderVersions(place.real).hold(id_of(0), "train-1")
    FolderVersions(place.real).hold(id_of(0), "train-2")
    assert publish(place, id_of(1)) == ()
    assert FolderVersions(place.real).release(id_of(0), "train-1")
    assert not FolderVersions(place.real).release(id_of(0), "train-1")
    assert publish(place, id_of(2)) == (id_of(1),)
    assert FolderVersions(place.real).release(id_of(0), "train-2")
    assert publish(place, id_of(3)) == (id_of(2), id_of(0))
    assert not (place.real / "holds").exists()
    raised(UsageError, FolderVersions(place.real).hold, id_of(0), "late", says="was just removed")
    assert not (place.real / "holds").exists()
    for name in ("", "a/b", "../up", ".hidden"):
        with pytest.raises(UsageError, match="cannot name a hold"):
            FolderVersions(place.real).hold(id_of(3), name)


def test_a_version_with_somebody_s_files_stays(tmp_path):
    """Caches of other programs go with it; notes do not, and are named."""
    place = Place.of(tmp_path / "r", 1)
    publish(place, id_of(0))
    (place.real / id_of(0) / "notes.txt").write_text("mine")
    publish(place, id_of(1))
    (place.real / id_of(1) / "cache-1.arrow").write_text("")
    with place.staging() as folder:
        (folder / "manifest.json").write_text(json.dumps({"build_id": id_of(2), "files": {}}))
        removed, notes = place.publish(folder, id_of(2))
    assert removed == (id_of(1),)
    assert notes == (f"version {id_of(0)[:12]} stays: it has files of yours: notes.txt",)
    assert ids(place.real) == {id_of(0), id_of(2)}


def test_a_rollback_goes_back_and_the_bad_version_stays_back(tmp_path):
    """Again and again to the one before; one by name; and what was left is not taken for good."""
    place = Place.of(tmp_path / "r", 7)
    for n in range(3):
        publish(place, id_of(n))

    def back(name: str | None = None) -> str:
        _, now = FolderVersions(place.real).rollback(name)
        assert FolderVersions(place.real).current() == now.build_id
        return now.build_id

    assert back() == id_of(1)
    assert place.withdrawn(id_of(2))
    assert back() == id_of(0)
    raised(UsageError, back, says="no earlier version to go back to")
    assert back(id_of(2)[:10]) == id_of(2)
    assert not place.withdrawn(id_of(2))
    assert place.withdrawn(id_of(0))
    publish(place, id_of(3))
    assert back() == id_of(2)
    raised(UsageError, back, "xyz", says="no version begins with 'xyz'")
    assert strangers(place.real) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "again", "rollback", "hold", "release", "forget", "kill"]),
        st.integers(0, 9),
    ),
    max_size=25,
)


@given(st.integers(1, 4), STEPS)
def test_whatever_happens_the_link_names_a_version(keep, steps):
    """And what is held stays, no more than allowed are there, and nothing else is left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "r"
        new, held = itertools.count(), set[str]()
        for step, which in steps:
            place = Place.of(folder, keep)
            known = sorted(ids(folder)) if folder.exists() else []
            one = known[which % len(known)] if known else None
            if step == "publish" or one is None:
                one = id_of(next(new))
                publish(place, one)
            elif step == "again":
                place.turn_to(one)
                FolderVersions(folder).record({"status": "unchanged", "build_id": one})
            elif step == "rollback":
                _, now = FolderVersions(folder).rollback(one)
                one = now.build_id
            elif step == "hold":
                FolderVersions(folder).hold(one, "me")
                held.add(one)
            elif step == "release":
                FolderVersions(folder).release(one, "me")
                held.discard(one)
            elif step == "forget":
                (folder / lease.HISTORY).write_text("")
            else:
                with (folder / lease.HISTORY).open("a") as lines:
                    lines.write('{"status": "bui')  # cut short
            there = ids(folder)
            assert held <= there
            assert FolderVersions(folder).current() in there
            if step in ("publish", "again", "rollback"):
                assert FolderVersions(folder).current() == one
            if step == "publish":
                assert len(there - held) <= keep
            assert strangers(folder) == []


def test_a_hold_and_a_removal_at_the_same_time(tmp_path):
    """If a hold succeeds, the version stays; however the two are interleaved."""
    place = Place.of(tmp_path / "r", 1)
    publish(place, id_of("first"))
    stop, wrong, kept = threading.Event(), list[str](), 0

    def remover() -> None:
        for n in range(60):
            publish(place, id_of(n))
        stop.set()

    thread = threading.Thread(target=remover)
    thread.start()
    while not stop.is_set():
        try:
            found = FolderVersions(place.real).find("current")
            FolderVersions(place.real).hold(found.build_id, "me")
        except (PipelineError, OSError):
            continue
        kept += 1
        for _ in range(20):
            if not (found.folder / "data.arrow").exists():
                wrong.append(found.build_id)
        FolderVersions(place.real).release(found.build_id, "me")
    thread.join()
    assert kept > 0
    assert wrong == []


DIES: str = table("programs.toml")["version_that_is_killed"]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_every_step_of_publication(commands, tmp_path, every):
    """Before, between and after the two renames, and while an old version is removed: the link
    names a whole version, and the next run leaves nothing behind."""
    seen: Counter[str] = Counter()
    for at in itertools.count(1, every):
        (tmp_path / f"{at}").mkdir()
        place = Place.of(tmp_path / f"{at}" / "r", 1)
        publish(place, id_of("old"))
        code = DIES.format(at=at, new=id_of("new"))
        status = commands([], tmp_path / f"{at}", {**os.environ}, code)
        if status == 0:  # it has fewer steps
            break
        assert status == -signal.SIGKILL, outputs(tmp_path / f"{at}")[1].read_text("utf-8")
        now = FolderVersions(place.real).current()
        assert (place.real / "current" / "data.arrow").read_text() == now
        FolderVersions(place.real).record_killed()
        (*_, line) = lease.read(place.real)
        assert "was killed" in line["message"]
        assert line["current"] == now
        assert strangers(place.real) == []
        publish(place, id_of("next"))
        assert strangers(place.real) == []
        assert ids(place.real) == {id_of("next")}
        seen[now] += 1
    assert seen.keys() == {id_of("old"), id_of("new")}
    assert min(seen.values()) > 1, seen


@pytest.mark.parametrize(("inside", "keep", "says"), table("folders_of_versions.jsonl"))
def test_a_folder_of_versions_is_told_from_others(tmp_path, inside, keep, says):
    """Neither is a build turned into a version, nor a folder of versions replaced by a build."""
    folder = tmp_path / "r"
    for name in inside:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    if says:
        raised(UsageError, Place.of, folder, keep, says=says)
    else:
        publish(Place.of(folder, keep), id_of(1))
        assert all((folder / name).exists() for name in inside)


@pytest.mark.parametrize("kept", [0, 3])
@pytest.mark.parametrize("name", ["r/current", "elsewhere", "r/{id}", "r/{new}", "r/{id}/train"])
def test_no_build_is_made_in_place_of_a_version_or_inside_it(tmp_path, name, kept):
    """By whatever path it is reached: what has been resolved once stays what it was."""
    place = Place.of(tmp_path / "r", 3)
    publish(place, id_of(1))
    (tmp_path / "elsewhere").symlink_to("r/current")
    output = tmp_path / name.format(id=id_of(1), new=id_of(2))
    refused = raised(UsageError, Place.of, output, kept)
    if not name.endswith("train"):
        assert f"-o {tmp_path / 'r'} --keep N" in refused.remedy
    assert ids(place.real) == {id_of(1)}
    assert Place.of(tmp_path / "r", 3) == place


def test_damaged_versions_are_named_and_listed_like_any_other(pipeline, tmp_path):
    """One that is another, one whose manifest cannot be read, and one without, which the link names
    and somebody holds: readers come upon it."""
    place = Place.of(tmp_path / "r", 4)
    for n in (1, 2, 3):
        publish(place, id_of(n))
    FolderVersions(place.real).hold(id_of(3), "train-1")
    other, unreadable, without = (place.build(id_of(n)) / "manifest.json" for n in (1, 2, 3))
    other.write_text(other.read_text().replace(id_of(1), id_of(9)))
    unreadable.write_text("[")
    without.unlink()
    assert ids(place.real) == set()
    every = {id_of(n) for n in (1, 2, 3)}
    assert {one.build_id for one in FolderVersions(place.real).found() if one.fault} == every
    listed = pipeline("versions", "r", COLUMNS="200").out
    why = "it has no manifest.json that can be read"
    for line in (
        f"{id_of(1)[:12]}  damaged: it holds the build {id_of(9)[:12]}\n",
        f"{id_of(2)[:12]}  damaged: {why}\n",
        f"{id_of(3)[:12]}  damaged: {why}; current; held by train-1\n",
    ):
        assert line in listed
    told = json.loads(pipeline("versions", "r", "--json").out)
    assert {one["build_id"] for one in told["versions"]} == every
    known = {"build_id", "path", "current", "withdrawn", "holds"}
    assert all(known <= one.keys() for one in told["versions"])
    (current,) = (one for one in told["versions"] if one["current"])
    assert (current["build_id"], current["holds"]) == (id_of(3), ["train-1"])
    assert told["current"] == id_of(3)


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path):
    """Nor does one that is no object."""
    lease.append(tmp_path, {"n": 1})
    with (tmp_path / lease.HISTORY).open("a") as lines:
        lines.write('[1]\n{"n": 2')
    lease.append(tmp_path, {"n": 3})
    assert [line["n"] for line in lease.read(tmp_path)] == [1, 3]


def _rows(path: Path, count: int, first: int = 0) -> Path:
    asked = range(first, first + count)
    return write_rows(
        path, ({"question": f"What is {n} plus {n}?", "answer": f"It is {2 * n}."} for n in asked)
    )


def test_a_build_that_is_open_stays_what_it_was(make, tmp_path):
    """The link is followed once; a later build does not mix into what is read. A damaged version is
    built again in its place, by an exchange."""
    data = _rows(tmp_path / "rows.jsonl", 20)
    folder = make("sft", data, "r", keep=2)
    build = Build.open(folder / "current")
    make("sft", _rows(data, 25, first=100), "r", keep=2)
    assert sum(map(len, (t.column("row_ids")[0] for t in build.splits["train"].tables()))) == 20
    build.require_intact()
    assert Build.open(folder / "current").manifest.rows.used == 25
    shard = next((folder / "current" / "train").glob("*.arrow"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-8])
    make("sft", data, "r", keep=2)
    assert shard.read_bytes() == whole
    assert [line["status"] for line in lease.read(folder)] == ["built"] * 3
    assert strangers(folder) == []


# What a build may take the place of, and where it is one of several versions.

GOOD = SAMPLES / "sft" / "word_problems.jsonl"


@pytest.fixture(scope="module")
def small(built) -> build.Build:
    """A small build."""
    return build.Build.open(built("sft", GOOD))


def _like(build: Any, used: int, trained: int) -> Any:
    manifest = build.manifest
    rows_ = replace(manifest.rows, used=used)
    tokens = replace(manifest.tokens, trained=trained)
    return replace(build, manifest=replace(manifest, rows=rows_, tokens=tokens))


@given(
    st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 9000), st.integers(0, 9000),
    st.floats(0, 2),
)  # fmt: skip
def test_limits_are_what_they_say(small, old, new, before, after, limit):
    """A number is refused when it changed by more than the limit, relative to the build before."""
    pair = (_like(small, old, before), _like(small, new, after))
    over = limits.exceeded(*pair, {"rows": limit, "trained_tokens": limit})
    for name, one, other in (("rows", old, new), ("trained_tokens", before, after)):
        changed = abs(other - one) / one if one else (float("inf") if other else 0.0)
        assert (name in over) == (changed > limit) or abs(changed - limit) < 1e-9
    flags = limits.allowing(over, {"rows": limit, "trained_tokens": limit})
    if flags:  # those that a message offers are enough
        offered = dict(flag.split("=") for flag in flags.replace("--drift", "").split())
        assert not limits.exceeded(*pair, {name: float(one) for name, one in offered.items()})
    else:
        assert (old == 0 < new) or (before == 0 < after)
    lost = old - new >= 100 and new < old * 0.5
    assert ("rows" in limits.exceeded(*pair, {})) == lost


def test_which_files_are_nobody_s():
    """By their names; anything else is somebody's."""
    nobodys = """train/cache-1f2e.arrow train/cache-1f_00000_of_00002.arrow train/tmpab12_x9z a/._b
        .DS_Store report.html~ .manifest.json.swp x/.ipynb_checkpoints/a.ipynb .nfs000a""".split()
    mine = "notes.txt train/data-1.arrow tmp/thesis.tex cache/x.arrow manifest.json tmpfile.txt"
    assert [name for name in nobodys + mine.split() if dataset_files.is_one(name)] == nobodys
