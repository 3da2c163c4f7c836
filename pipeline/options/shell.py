"""Values that run: commands of the shell, and clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.options.values import Value, plain
from stages.errors import UsageError


@dataclass(eq=False, repr=False)
class Running(Value):
    """What runs, or has the build run it: the address of a cluster, whose answers are unpickled."""

    def runs(self, value: Any) -> bool:
        return True


@dataclass(eq=False, repr=False)
class Command(Running):
    """A command: in a recipe also a table with the one key ``command``."""

    @property
    def words(self) -> str:
        return "a command of the shell"

    def loosened(self, value: Any) -> Any:
        if isinstance(value, Mapping) and set(value) == {"command"}:
            value = value["command"]
        return plain(value)

    def settled(self, value: Any) -> Any:
        if not value.strip():
            raise UsageError("--notify is empty.", "Give a command, or leave it out.")
        return value
