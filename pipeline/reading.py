"""How rows are read: the options for formats, and which rows and columns are left out."""

from __future__ import annotations

from pipeline.config import Config
from stages.contract import FormatOptions
from stages.selection import Selection, condition


def format_options(config: Config) -> FormatOptions:
    """The options that formats take."""
    return FormatOptions(
        columns=dict(config.map),
        neutral=config.neutral,
        prompt_separator=config.prompt_separator,
        step_tag=config.step_tag,
        already_templated=config.already_templated,
        reasoning_in=config.reasoning_in,
        system=config.system,
        null_fields=config.null_fields,
    )


def selection_of(config: Config) -> Selection:
    """Which rows and columns are read."""
    return Selection(tuple(map(condition, config.where)), config.ignore)
