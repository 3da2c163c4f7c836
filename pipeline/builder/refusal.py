"""A refused build: what it leaves in ``DIR.failed``, and the error that names it."""

from __future__ import annotations

from pathlib import Path

from pipeline.builds import failed
from pipeline.manifest.dataset_files import json_text
from pipeline.messages.result import of_error
from pipeline.options.config import Config
from stages.errors import DataError


def kept(error: DataError, config: Config, staged: Path | None = None) -> DataError:
    """The same error, which names what was left in ``DIR.failed``.

    Args:
        staged: the staging directory, if the build came that far.
    """
    from pipeline.report import refused  # builds and plans that are not refused start without it

    output = config.run.place
    result = of_error(error, {"output": config.run.shown})
    page = refused.render(result, staged)
    files = {failed.REASONS: json_text(result.without_manifest()), failed.PAGE: page}
    folder = failed.keep(output, staged, files)
    if folder is None:
        return error
    paths = failed.paths_of(output)
    some = "rejects" in paths and Path(paths["rejects"]).stat().st_size
    rejects = f"Every refused row is in {paths['rejects']}; why" if some else "Why"
    where = f"{rejects} the build was refused is in {paths['report']}."
    return type(error)(error.what, f"{error.remedy} {where}".lstrip(), error.figures)
