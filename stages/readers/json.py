"""A JSON file: an array of objects, or objects one after the other (pretty-printed or not)."""

from __future__ import annotations

from collections.abc import Iterator

from stages.contract import Glimpse, Lines, Split
from stages.files import content, cutting
from stages.files.content import Source
from stages.files.file_version import FileVersion
from stages.readers import _shape, _values, jsonl


class _Json:
    name = "json"
    suffixes = (".json", ".json.gz", ".json.zst")

    def splits(self, path: str) -> list[Split]:
        return cutting.hashed(self, path)

    def cut(self, version: FileVersion) -> list[Split]:
        if _shape.is_lines(version, default=False, limit=jsonl.MAX_LINE):
            return jsonl.READER.line_splits(version)
        return [cutting.whole(version, self.name)]

    def read(self, split: Split) -> Iterator[Lines]:
        return content.rows_unsplit(split, lambda file, name: _values.records(file, path=name))

    def glimpse(self, source: Source, rows: int, salvage: bool = False) -> Glimpse:
        if _shape.is_lines(source, default=False, limit=jsonl.MAX_LINE):
            return jsonl.READER.glimpse(source, rows, salvage)
        return jsonl.glimpse_values(source, rows, salvage)


READER = _Json()
