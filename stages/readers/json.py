"""A JSON file: an array of objects, or objects one after the other (pretty-printed or not)."""

from __future__ import annotations

from collections.abc import Iterator

from stages.contract import Glimpse, Lines, Split
from stages.errors import ContainerError
from stages.readers import _bytes, _shape, _values, jsonl


class _Json:
    name = "json"
    suffixes = (".json", ".json.gz", ".json.zst")

    def splits(self, path: str) -> list[Split]:
        if _shape.is_lines(path, unless_told=False, limit=jsonl.MAX_LINE):
            return jsonl.READER.line_splits(path)
        return [Split(path, 0, 0, _bytes.sha256_of(path), self.name)]

    def read(self, split: Split) -> Iterator[Lines]:
        if _bytes.sha256_of(split.path) != split.sha256:
            raise _bytes.changed(split.path)
        with _bytes.opened(split.path, split.salvage) as file:
            try:
                yield from _values.records(file, path=_bytes.told(split))
            except ContainerError as error:
                if not split.salvage:
                    raise
                yield Lines([], 0, _bytes.damage_of(file) or error.what)
                return
            if damage := _bytes.damage_of(file):
                yield Lines([], 0, damage)

    def glimpse(self, path: str, rows: int) -> Glimpse:
        if _shape.is_lines(path, unless_told=False, limit=jsonl.MAX_LINE):
            return jsonl.READER.glimpse(path, rows)
        return jsonl.glimpse_values(path, rows)


READER = _Json()
