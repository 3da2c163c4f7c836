"""How rows are read: the options for formats, and which rows and columns are left out."""

from __future__ import annotations

from pipeline.options.config import Config
from stages.contract import FormatOptions
from stages.rows.selection import Selection, condition


def format_options(config: Config) -> FormatOptions:
    """The options that formats take."""
    return FormatOptions(
        columns=dict(config.source.map),
        neutral=config.source.neutral,
        prompt_separator=config.source.prompt_separator,
        step_tag=config.source.step_tag,
        already_templated=config.source.already_templated,
        reasoning_in=config.source.reasoning_in,
        system=config.source.system,
        null_fields=config.source.null_fields,
    )


def selection_of(config: Config) -> Selection:
    """Which rows and columns are read."""
    source = config.source
    filtered: tuple[str, ...] = ()
    if source.filter:
        from stages.rows.expressions import parse  # few builds have a filter

        filtered = tuple(path for text in source.filter for path in parse(text).columns)
    return Selection(tuple(map(condition, source.where)), source.ignore, filtered)
