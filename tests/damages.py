"""Damages of rows, and the laws that they break: ``damages.toml``.

A change is a line or two of Python. Its names are the columns of the row, and ``row``, ``rows``,
``at`` (its place among them), ``start`` (where its tokens begin, behind padding), ``trained`` (the
places of its trained labels), ``model``, ``IGNORED``, and ``kept``, which stays from one table to
the next.
"""

import copy
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.columns import IGNORED
from stages.profile import TargetModel

Rows = list[dict[str, Any]]
FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Damage:
    """One change of a row.

    Attributes:
        options, data, bos: of the build whose shard is damaged.
        renames: the row's own name is what is changed.
    """

    does: str
    breaks: list[str]
    change: str
    tasks: list[str] = field(default_factory=lambda: ["sft"])
    layouts: list[str] = field(default_factory=lambda: ["ragged"])
    options: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    bos: str = ""
    renames: bool = False
    kept: dict[str, Any] = field(default_factory=dict)

    def do(self, rows: Rows, at: int, model: TargetModel) -> None:
        """Change the row at a place."""
        row = rows[at]
        labels = row.get("labels", ())
        helpers = {
            "copy": copy,
            "IGNORED": IGNORED,
            "row": row,
            "rows": rows,
            "at": at,
            "model": model,
            "kept": self.kept,
            "start": row["attention_mask"].index(1) if "attention_mask" in row else 0,
            "trained": [i for i, label in enumerate(labels) if label != IGNORED],
        }
        columns = {name: value for name, value in row.items() if name not in helpers}
        names = columns | helpers
        exec(self.change, names)
        row.update({n: names[n] for n, value in columns.items() if names[n] is not value})


def damages(of: str, **defaults: list[str]) -> list[Damage]:
    """Those of a ``table`` or of a ``shard``."""
    found = tomllib.loads(FILE.read_text("utf-8"))[of]
    return [Damage(**{**defaults, **one}) for one in found]
