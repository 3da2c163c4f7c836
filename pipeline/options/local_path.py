"""Paths that are written to: on this machine, since a build appears there in one step."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from stages.errors import UsageError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # of two letters or more; pathlib drops a slash


class LocalPath(click.Path):
    """A path that is no address.

    Raises:
        UsageError: it is one, ``s3://bucket/path`` for instance: as a path, that would be a folder
            called ``s3:``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fspath(value)
        if isinstance(text, str) and _ADDRESS.match(text):
            flag = param.opts[0] if param else "the path"
            remedy = "Give a path of this machine."
            if flag == "-o":
                remedy = f"Write to a folder, and then: pipeline publish DIR {text}"
            raise UsageError(f"{flag} {text} is an address, not a path of this machine.", remedy)
        return super().convert(value, param, ctx)
