"""Sentences about a manifest, for the summary of a build."""

from pathlib import Path
from typing import Any

from pipeline.lines import templates


def lines(about: str, *values: Any) -> list[str]:
    """What ``words.jinja`` says about one thing: ``margins``, ``sides``, ``choice``, ``overlaps``,
    ``sources`` or ``inference``."""
    words: Any = templates(Path(__file__).parent).get_template("words.jinja").module
    text: str = getattr(words, about)(*values)
    return text.split("\n")[:-1]
