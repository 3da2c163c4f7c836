"""The same rows in any container give the same examples, or the difference is asked about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rows_to, table_bytes

from pipeline.tasks import kind_of
from stages import formats, readers
from stages.contract import FormatOptions, Row
from stages.errors import AskError
from stages.normalize.stage import Normalize
from stages.rows import column_names

WORDS = st.text("abc ", min_size=1, max_size=5).filter(str.strip)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["city", "unit", "days"]), WORDS, min_size=1, max_size=3
)


def chat(arguments: Row, answer: str) -> Row:
    """A question, a call, its result and an answer."""
    told = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    call = {"role": "assistant", "content": None, "tool_calls": [told]}
    turns: list[Row] = [{"role": "user", "content": "q"}, call]
    turns += [{"role": "tool", "content": "r"}, {"role": "assistant", "content": answer}]
    return {"messages": turns}


def written(folder: Path, rows: list[Row]) -> dict[str, Path]:
    """The same rows as lines, as Parquet and as Arrow."""
    paths = {name: folder / f"rows.{name}" for name in ("jsonl", "parquet", "arrow")}
    rows_to(paths["jsonl"], *rows)
    table = pa.Table.from_struct_array(pa.array(rows))  # the keys of all rows
    for name, kind in (("parquet", "parquet"), ("arrow", "file")):
        paths[name].write_bytes(table_bytes(table, kind, 9))
    return paths


def normalized(path: Path, reading: str, choice: str | None) -> tuple[list[Any], set[Any]]:
    """The turns of every row that is used, and the codes of the others."""
    reader = readers.load(path.suffix[1:])
    options = FormatOptions(null_fields=choice)
    stage = Normalize(kind_of("sft"), formats.load(reading), options)
    turns, codes = [], set()
    for split in reader.splits(str(path)):
        for lines in reader.read(split):
            batch = stage(lines.records)
            codes |= set(batch.column("reject_code").to_pylist()) - {None}
            turns += batch.column("messages").to_pylist()
    return turns, codes


def objects(value: Any) -> Any:
    """Turns with their fields as objects: a table's keys stand in one order for all rows."""
    return [[{**t, "fields": json.loads(t["fields"] or "{}")} for t in turns] for turns in value]


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.tuples(ARGUMENTS, WORDS), min_size=1, max_size=4))
def test_every_container_gives_the_same_examples_or_asks(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Row, str]]
) -> None:
    """Arguments that differ between rows are nulls in a table: dropped when told, never printed."""
    folder = tmp_path_factory.mktemp("rows")
    paths = written(folder, [chat(*row) for row in rows])
    wanted, codes = normalized(paths["jsonl"], "openai", None)
    assert codes == set()
    differ = len({tuple(sorted(arguments)) for arguments, _ in rows}) > 1
    for name in ("parquet", "arrow"):
        _, asked = normalized(paths[name], "openai", None)
        assert asked == ({"null_fields"} if differ else set())
        told, codes = normalized(paths[name], "openai", "drop")
        assert codes == set()
        assert objects(told) == objects(wanted)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"question": WORDS, "answer": WORDS},
            optional={"system": WORDS, "id": st.integers(0, 5)},
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_null_column_is_a_column_that_the_row_lacks(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    """Columns that only some rows have are null in the others, and mean nothing there."""
    paths = written(tmp_path_factory.mktemp("rows"), rows)
    wanted = normalized(paths["jsonl"], "query_response", None)
    for name in ("parquet", "arrow"):
        assert normalized(paths[name], "query_response", None) == wanted


def test_nothing_but_what_a_template_prints_whole_is_asked_about() -> None:
    """Null in a turn's own keys is the same as no key."""
    row = {"messages": [{"role": "user", "content": "q", "tool_calls": None}], "tools": None}
    assert column_names.settled(row, None) == row
    row["tools"] = [{"name": "f", "parameters": None}]
    assert column_names.settled(row, "keep") == row
    assert column_names.settled(row, "drop")["tools"] == [{"name": "f"}]
    with pytest.raises(AskError, match="tools holds nulls"):
        column_names.settled(row, None)
