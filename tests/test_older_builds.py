"""A build of every version that was released is opened, judged and exported by this one."""

import tarfile

import datasets
import pytest
from recorded_builds import ARCHIVES, BUILDS

import posttrain_pipeline as pp
from pipeline import __version__

VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("*.tar.xz"))


def test_this_version_is_recorded():
    """``make release`` has written its builds."""
    assert __version__ in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_build_of_a_version_is_opened_judged_and_exported(version, pipeline, tmp_path):
    """Every row is read, nothing is found, its inputs are read again, and a trainer's columns are
    made of it."""
    with tarfile.open(ARCHIVES / f"{version}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for task, (data, layout, trainer) in BUILDS.items():
        build = pp.open(tmp_path / task)
        m = build.manifest
        assert (m.version, m.task, m.layout, m.inputs[0].path) == (version, task, layout, data)
        rows = sum(table.num_rows for table in build.splits["train"].tables())
        stored = datasets.load_from_disk(str(tmp_path / task))["train"]
        assert rows == stored.num_rows == m.splits["train"].rows > 0
        assert len(list(build.rejects())) == m.rows.rejected > 0
        said = pipeline("check", task, "--json").ended().told
        assert said["passed"], said
        pipeline("show", task, "--random", "1").ended()
        pipeline("export", trainer, task, "-o", f"{task}-export").ended()
        assert pp.open(tmp_path / f"{task}-export").manifest.examples.kept == m.examples.kept
