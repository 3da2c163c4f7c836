"""The difference of two builds as a page: no script, nothing from the network."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from pipeline.report import template
from pipeline.report.drawing import visible
from pipeline.report.words import by_source, relative


def _value(value: object) -> str:
    return visible(json.dumps(value, ensure_ascii=False))


@functools.cache
def _template() -> jinja2.Template:
    environment = template.environment()
    environment.filters.update(visible=visible, value=_value)
    environment.globals.update(relative=relative, by_source=by_source)
    text = Path(__file__).with_name("diff_page.jinja").read_text("utf-8")
    return environment.from_string(text)


def render(found: Mapping[str, Any]) -> str:
    """The page of what ``difference`` gives."""
    return _template().render(d=found)
