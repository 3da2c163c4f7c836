"""A JSON file: an array of objects, or objects one after the other (pretty-printed or not)."""

from __future__ import annotations

from collections.abc import Iterator

from stages.contract import Lines, Split
from stages.files import content
from stages.readers import _values, jsonl


class _Json(jsonl.Jsonl):
    name = "json"
    suffixes = (".json", ".json.gz", ".json.zst")
    lines = False

    def read(self, split: Split) -> Iterator[Lines]:
        return content.rows_unsplit(split, lambda file, name: _values.records(file, path=name))


READER = _Json()
