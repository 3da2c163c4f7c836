"""Paths of commands that are written to: on this machine, where a build appears in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.options.path_values import require_local, require_output
from pipeline.stores import is_address


class LocalPath(click.Path):
    """A path that is no address.

    Args:
        build: whether a build goes there.

    Raises:
        UsageError: it is one, ``s3://bucket/path`` for instance.
    """

    def __init__(self, *, build: bool = False, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)
        self._build = build

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        require_local(value, param.opts[0] if param else "the path", build=self._build)
        return super().convert(value, param, ctx)


class OutputPath(LocalPath):
    """A path of this machine, or an address in a store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        require_output(value, param.opts[0] if param else "the path", build=self._build)
        return click.Path.convert(self, value, param, ctx)


class BuildPath(click.Path):
    """A folder that is there, or an address in a store, which is asked when it is read."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Path(value) if is_address(value) else super().convert(value, param, ctx)
