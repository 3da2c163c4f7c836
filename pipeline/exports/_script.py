"""Renders the scripts and configurations that exports write from the templates of ``scripts/``.

A template is called like the file that it becomes, with ``.jinja`` behind.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

    from pipeline.exports import ExportFacts

_RATE = "2e-5"  # default learning rate of reward models on small sets


@functools.cache
def _environment() -> jinja2.Environment:
    """The engine, made once per process; it escapes nothing: a filter quotes a value for its
    language, ``sh``, ``json`` (YAML too) or ``py``."""
    import jinja2

    made = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("scripts")),
    )
    made.filters.update(
        sh=shlex.quote, json=functools.partial(json.dumps, ensure_ascii=False), py=repr
    )
    return made


def render(file: str, **values: Any) -> str:
    """The text of a file, from its template."""
    return _environment().get_template(f"{file}.jinja").render(file=file, rate=_RATE, **values)


def script(file: str, **more: Callable[[ExportFacts], Any]) -> Callable[[ExportFacts], str]:
    """What writes a file for a build, whose facts the template knows as ``facts``, and as ``batch``
    the default number of pairs in a batch of one GPU.

    Args:
        file: its name under ``launch/``.
        more: what else the template needs to know of the facts.
    """

    def written(facts: ExportFacts) -> str:
        known = {name: value(facts) for name, value in more.items()}
        return render(file, facts=facts, batch=max(1, min(4, facts.rows)), **known)

    return written


def scripts(
    *files: str, **more: Callable[[ExportFacts], Any]
) -> Callable[[ExportFacts], Mapping[str, str]]:
    """What writes several, by name."""
    return lambda facts: {file: script(file, **more)(facts) for file in files}
