"""How rows are read, from a build's options: what formats are told, and what is left out."""

from __future__ import annotations

from pipeline.config import Config
from stages.contract import FormatOptions
from stages.selection import Selection, condition


def format_options(config: Config) -> FormatOptions:
    """What formats are told."""
    return FormatOptions(
        dict(config.source.map),
        config.source.neutral,
        config.source.prompt_separator,
        config.source.step_tag,
        config.source.already_templated,
        config.source.reasoning_in,
        config.source.system,
        config.source.null_fields,
    )


def selection_of(config: Config) -> Selection:
    """Which rows and columns are read."""
    return Selection(tuple(map(condition, config.source.where)), config.source.ignore)
