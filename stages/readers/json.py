"""A JSON file: an array of objects, or objects one after the other (pretty-printed or not)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from stages import strict_json
from stages.contract import Lines, Record, Split
from stages.errors import ContainerError, RowError
from stages.readers import _bytes, jsonl

BATCH_ROWS = 4096
_BLANK = " \t\r\n"


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _items(path: str, text: str) -> Iterator[tuple[int, int]]:
    """Where each item starts and stops, in characters."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    in_array = text[at : at + 1] == "["
    at = _skip(text, at + 1) if in_array else at
    while at < len(text) and not (in_array and text[at] == "]"):
        try:
            stop = decoder.raw_decode(text, at)[1]
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "no value here"
            where = error.pos if isinstance(error, json.JSONDecodeError) else at
            line = text.count("\n", 0, where) + 1
            raise ContainerError(
                f"{path}:{line} is not JSON: {reason}.",
                "A damaged array cannot be read past the damage; repair it, or give JSON lines.",
            ) from error
        yield at, stop
        at = _skip(text, stop)
        if in_array and at < len(text) and text[at] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "]":
                line = text.count("\n", 0, at) + 1
                raise ContainerError(f"{path}:{line} is not JSON: a comma before ].", "Remove it.")
        elif in_array and text[at : at + 1] != "]":
            line = text.count("\n", 0, at) + 1
            raise ContainerError(
                f"{path}:{line} is not JSON: the array is not closed.", "Fetch it again."
            )
    if in_array and at >= len(text):
        raise ContainerError(f"{path}: the array is not closed.", "Fetch it again.")
    if in_array and _skip(text, at + 1) != len(text):
        line = text.count("\n", 0, at) + 1
        raise ContainerError(f"{path}:{line}: text after the end of the array.", "Remove it.")


def _is_lines(path: str) -> bool:
    """Whether the first line is a whole object: JSON lines under another name."""
    with _bytes.opened(path) as file:
        first = file.readline(jsonl.MAX_LINE).strip()
    try:
        strict_json.parse(first.removeprefix(b"\xef\xbb\xbf"))
    except RowError:
        return False
    return True


class _Json:
    name = "json"
    suffixes = (".json", ".json.gz", ".json.zst")

    def splits(self, path: str) -> list[Split]:
        if _is_lines(path):
            return jsonl.READER.splits(path)
        return [Split(path, 0, 0, _bytes.sha256_of(path), self.name)]

    def read(self, split: Split) -> Iterator[Lines]:
        if _bytes.sha256_of(split.path) != split.sha256:
            raise _bytes.changed(split.path)
        with _bytes.opened(split.path) as file:
            content = file.read()
        if b"\0" in content[:4096]:
            raise ContainerError(f"{split.path} is binary, not JSON.", "Give a JSON file.")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ContainerError(
                f"{split.path} is not UTF-8 at byte {error.start}.", "Convert it to UTF-8."
            ) from error
        batch: list[Record] = []
        offset = len(content) - len(text.encode())  # the byte-order mark, if any
        end = 0
        for number, (start, stop) in enumerate(_items(split.path, text)):
            offset += len(text[end:start].encode())
            raw = text[start:stop].encode()
            try:
                record = Record(number, offset, raw, strict_json.parse(raw))
            except RowError as error:
                record = Record(number, offset, raw, None, (error.code, error.detail))
            batch.append(record)
            offset, end = offset + len(raw), stop
            if len(batch) >= BATCH_ROWS:
                yield Lines(batch, len(batch))
                batch = []
        if batch:
            yield Lines(batch, len(batch))


READER = _Json()
