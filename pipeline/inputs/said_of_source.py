"""What an error about an input says where the input belongs to a ``[[source]]`` of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.options.config import Source
from stages.errors import PipelineError


@contextmanager
def said_of_source(source: Source) -> Iterator[None]:
    """Errors that offer an option also say which of the sources it is for, since an option of the
    command would be for all of them."""
    try:
        yield
    except PipelineError as error:
        if source.name and "--" in error.remedy:
            error.remedy = (
                f"{error.remedy} In the recipe, options of these rows are keys of the [[source]] "
                f"{source.name}."
            ).lstrip()
            error.args = (error.what, error.remedy)
        raise
