"""Tables of texts: every cell as it was written, every row at its place, and nothing guessed."""

import csv
import gzip
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from support import raised, table

from stages import readers
from stages.contract import Record
from stages.errors import ContainerError, UsageError
from stages.files import content, printed
from stages.readers import _cells

BOM = b"\xef\xbb\xbf"
SAME = settings(max_examples=40)
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
}


def spelled(delimiter: str = ",", quoting: str = "rfc4180", **cells: str) -> str:
    """A reader's name."""
    base = readers.load("csv")
    return base.having(delimiter, quoting, cells).name


def read(path: Path, name: str, salvage: bool = False) -> tuple[list[Record], int, str | None]:
    """The records of a file, its lines, and its damage."""
    (split,) = readers.load(name).splits(str(path))
    split = replace(split, salvage=salvage)
    found = list(readers.load(split.reader).read(split))
    records = [record for lines in found for record in lines.records]
    lines = sum(part.lines for part in found)
    return records, lines, next((part.damage for part in found if part.damage), None)


def quoted(cell: str, delimiter: str, always: bool) -> str:
    """A cell as RFC 4180 writes it."""
    if always or any(char in cell for char in f'"\r\n{delimiter}'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


CELL = st.text(st.sampled_from('ab",;\t\r\n é\u2028😀'), max_size=8)


@SAME
@given(
    rows=st.lists(st.tuples(CELL, CELL, CELL), max_size=9),
    delimiter=st.sampled_from(",;\t|"),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\n\n", "\r\n\n"]), min_size=10, max_size=10),
    always=st.booleans(),
    closed=st.booleans(),
    bom=st.booleans(),
    kind=st.sampled_from(sorted(PACKED)),
    window=st.integers(1, 40),
)
def test_cells_come_back_and_rows_know_their_places(
    tmp_path, rows, delimiter, ends, always, closed, bom, kind, window
):
    """Whatever is quoted, wherever a window ends, with blank lines, marks and both line ends."""
    table = [("one", "two, 2", "three"), *rows]
    texts = [delimiter.join(quoted(c, delimiter, always) for c in row) for row in table]
    written = "".join(text + end for text, end in zip(texts, ends, strict=False))
    if not closed and texts[-1]:
        written = written[: -len(ends[len(table) - 1])]
    plain = BOM * bom + written.encode()
    path = tmp_path / f"rows.csv{kind}"
    path.write_bytes(PACKED[kind](plain))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_cells, "WINDOW", window)
        patch.setattr(content, "CHUNK", max(window, 4))
        found, lines, _ = read(path, spelled(delimiter))
    assert [tuple((record.data or {}).values()) for record in found] == rows
    assert all(list(record.data or ()) == ["one", "two, 2", "three"] for record in found)
    for record in found:
        assert plain[record.offset :].startswith(record.raw)
        assert plain[: record.offset].count(b"\n") == record.line
    assert lines == len(plain.removeprefix(BOM).split(b"\n")) - plain.endswith(b"\n")


@SAME
@given(text=st.text(st.sampled_from('ab" ,\r\n'), max_size=24), window=st.integers(1, 30))
def test_any_text_is_read_as_the_standard_library_reads_it_or_refused(tmp_path, text, window):
    """A row is what ``csv`` has, or is refused, alone or with the file."""
    path = tmp_path / "any.csv"
    path.write_text(f"h,i\n{text}", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_cells, "WINDOW", window)
        try:
            found, _, _ = read(path, spelled())
        except ContainerError:
            return
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    assert len(found) == len(rows)
    for record, row in zip(found, rows, strict=True):
        if record.data is not None:
            assert list(record.data.values()) == row
        else:
            assert (record.error[0] == "row_width") == (len(row) != 2) or '"' in "".join(row)


# What a file may be, and what is said of its second row, or of the file.
ODD: dict[str, tuple[bytes, str]] = {
    name: (text.encode("latin-1"), says) for name, text, says in table("odd_csv.jsonl")
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_odd_is_refused_by_row_or_by_file(tmp_path, odd):
    """A row, where it is known where it ends; else the file, with the line."""
    written, says = ODD[odd]
    path = tmp_path / "odd.csv"
    path.write_bytes(written)
    if says.isidentifier():
        (record, *others), _, _ = read(path, "csv")
        assert (record.error[0], record.data) == (says, None)
        assert (record.line, record.offset) == (1, 4)
        assert record.raw == written.split(b"\n")[1]
        assert list((others[0].data or {}).values()) == ["4", "5"]
        return
    caught = raised(ContainerError, readers.load("csv").glimpse, str(path), 10)
    assert says in f"{caught.what} {caught.remedy}"
    assert str(path) in caught.what


def test_a_file_without_rows_is_empty(tmp_path):
    """A header alone is no row."""
    path = tmp_path / "empty.csv"
    for written in (b"", BOM, b"a,b\n", b"a,b", b"\r\n\na,b\r\n\n"):
        path.write_bytes(written)
        assert read(path, "csv")[0] == [], written
        glimpse = readers.load("csv").glimpse(str(path), 10)
        assert (glimpse.records, glimpse.rows, glimpse.exact) == ([], 0, True), written


def test_names_and_quotes_that_a_header_or_the_user_leaves_out(tmp_path):
    """A column without a name is named by its place; ``--quoting none`` has one row per line, and
    nothing else than delimiters."""
    path = tmp_path / "rows.csv"
    path.write_text(",question,\n0,q,a\n")
    (record,), _, _ = read(path, "csv")
    assert record.data == {"column_1": "0", "question": "q", "column_3": "a"}
    path.write_bytes(b'a\tb\n"1\t2"\n5" x\t"\n')
    found, _, _ = read(path, spelled("\t", "none"))
    assert [list((one.data or {}).values()) for one in found] == [['"1', '2"'], ['5" x', '"']]


def test_json_is_read_where_it_is_said(tmp_path):
    """Strictly, and one value: what is none refuses its row; an empty cell is null."""
    path = tmp_path / "rows.csv"
    cells = ['[{"k": 1.0}]', "", "7", "true", '"x"', '1,"":2', "1}{", '{"k":1,"k":2}', "nope"]
    lines = [quoted(cell, ",", always=True) + ',"[1]"' for cell in cells]
    path.write_text("\n".join(["a,b", *lines]))
    found, _, _ = read(path, spelled(a="json", b="text"))
    values = [one.data["a"] if one.data else (one.error or ("",))[0] for one in found]
    assert values[:5] == [[{"k": 1.0}], None, 7, True, "x"]
    assert values[5:] == ["duplicate_key", "bad_json", "duplicate_key", "bad_json"]
    assert {one.data["b"] for one in found if one.data} == {"[1]"}
    raised(UsageError, read, path, spelled(c="json"), says="no such column")


def test_a_wide_cell_and_a_row_that_is_too_long(tmp_path, monkeypatch):
    """Megabytes with quotes and line ends come back; beyond the limit the file is refused."""
    text = 'say "hello",\r\n' * 150_000
    path = tmp_path / "wide.csv"
    path.write_bytes(f"a,b\r\n{quoted(text, ',', True)},x\r\n1,2".encode())
    first, second = read(path, "csv")[0]
    assert first.data == {"a": text, "b": "x"}
    assert (second.line, second.data) == (150_002, {"a": "1", "b": "2"})
    monkeypatch.setattr(_cells, "LONGEST", 1 << 20)
    raised(ContainerError, read, path, "csv", says=r"wide\.csv:2: a row of more than 1048576 bytes")


def test_salvage_keeps_the_rows_before_a_damage_and_not_the_row_that_it_cuts(tmp_path):
    """A row that a damage cuts can look whole: it is refused."""
    rows = "a,b\n" + "".join(f"{n},{n * 7919 % 10007} words\n" for n in range(5000))
    packed = gzip.compress(rows.encode())
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    raised(ContainerError, read, path, "csv", says="is damaged")
    found, _, damage = read(path, "csv", salvage=True)
    assert damage == "it is cut off"
    *whole, last = found
    assert [tuple((one.data or {}).values()) for one in whole] == [
        tuple(line.split(",")) for line in rows.splitlines()[1 : len(whole) + 1]
    ]
    assert last.error == ("cut_off", "the file breaks off in this row")
    path = tmp_path / "quote.csv"
    path.write_text('a,b\n1,2\n3,"4\n5,6\n')
    found, _, damage = read(path, "csv", salvage=True)
    assert [one.data for one in found] == [{"a": "1", "b": "2"}]
    assert damage == "The file:3: the quote that opens there is never closed."


_TEXTS = st.text(max_size=20)
_ITEMS = st.one_of(
    _TEXTS,
    st.dictionaries(_TEXTS, _TEXTS, min_size=1, max_size=3),
    st.dictionaries(_TEXTS, st.lists(_TEXTS, min_size=1, max_size=3), min_size=1, max_size=3),
)


@given(st.lists(_ITEMS, min_size=1, max_size=4))
def test_what_python_and_numpy_print_is_what_they_had(values):
    """Lists, objects and texts in them, with commas and without; arrays inside of objects too."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    assert printed.value_of(str(values)) == values
    assert printed.value_of(str(array)) == values
    for one in (one for one in values if list in map(type, getattr(one, "values", list)())):
        assert printed.value_of(repr({k: np.array(v) for k, v in one.items()})) == one


@pytest.mark.parametrize("numbers", [[1, -1, 0], [0.5, -1.25], [True, False]])
def test_numbers_that_numpy_prints_are_numbers(numbers):
    assert printed.value_of(str(np.array(numbers))) == numbers
    assert printed.value_of("{'x': array([], shape=(0, 3), dtype=float64)}") == {"x": []}


@pytest.mark.parametrize("text", table("no_printed_values.jsonl"))
def test_any_other_text_is_a_text(text):
    """Sums, calls, keys that are given twice, lists that were cut short, links and times."""
    assert printed.value_of(text) is None
