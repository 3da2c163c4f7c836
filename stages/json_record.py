"""What a record of a build's JSON files is: the class that every one of them starts from.

``pipeline.manifest.json_records`` reads and writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPTIONAL = {"optional": True}  # metadata of a key that older builds lack; they get its default
SPARSE = {"optional": True, "sparse": True}  # of one that is left out where it has its default


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRecord:
    """One JSON object.

    Attributes:
        unknown: keys that this version does not know, with their values.
        order: the keys as they were read; empty for a record that was made here.
    """

    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    order: tuple[str, ...] = field(default=(), repr=False)
