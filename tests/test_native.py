"""The native module does what Python does beside it, and leaves to Python what it is not sure of.

``make test-native`` builds it and runs these tests; without it they are skipped, unless
``POSTTRAIN_NATIVE=1`` says that it must be there.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import read_manifest

from pipeline.tasks import kind_of
from stages import columns, formats, native
from stages.contract import FormatOptions, Record, Row
from stages.errors import RowError
from stages.files import strict_json
from stages.files.line_block import LineBlock
from stages.normalize import native_rows, plain
from stages.normalize.stage import Normalize
from stages.normalize.turns import SPELLED
from stages.tokens.folded_labels import folded_ids, unfolded
from stages.tokens.outline_tokens import put_together

if os.environ.get("POSTTRAIN_NATIVE") != "1" and native.module() is None:
    pytest.skip(native.described(), allow_module_level=True)

KIND = kind_of("sft")
FORMATS = ("query_response", "prompt_completion", "alpaca", "openai", "sharegpt")
FEW = settings(deadline=None, max_examples=60)


@pytest.fixture
def module() -> native.Native:
    """The module itself."""
    found = native.module()
    assert found is not None, native.described()
    return found


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Call something while the module is not used."""

    def call(function: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(native, "module", lambda: None)
            return function()

    return call


# Lines

TEXTS = [
    *("", " ", "a", "What is 2+2?", "#### 72", "a\nb\tc", 'say "x": y', "back\\slash", "a/b"),
    *("é", "中文句子。", "😀", "\u2028", "\x00", "\x7f", "\u00a0", "ends </s>", "<think>\nx"),
    *("a" * 31, "b" * 32, "c" * 33, "ü" * 40, "<|im_start|>user\nq<|im_end|>\n", '":', '\\":'),
]
BESIDE: list[Any] = [
    "",
    "x",
    None,
    True,
    False,
    0,
    -1,
    12,
    10**14,
    10**15,
    1.5,
    [],
    {},
    [1],
    {"a": 1},
]
TOKENS = [
    *(b'"', b"\\", b",", b":", b"{", b"}", b"[", b"]", b" ", b"\t", b"\r", b"\x0b", b"\x00"),
    *(b'\\"', b"\\\\", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\\udc00", b"\\u12", b"\\x"),
    *(
        b"\xc3\xa9",
        b"\xc3",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"\xf4\x90\x80\x80",
    ),
    *(b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf", b"null", b"true", b"-0", b"01", b"1e5", b"1.0", b"-"),
    *(b'"role"', b'"content"', b'"question":"q"', b',"answer":"z"', b"9" * 19, b"[" * 70, b"{}"),
]


def _answer(draw: random.Random) -> Any:
    return draw.choice(TEXTS) if draw.random() < 0.97 else draw.choice(BESIDE)


def _turns(draw: random.Random, names: tuple[str, str]) -> Any:
    roles = [*SPELLED, "tool"]
    count = draw.choice([0, 1, 2, 2, 2, 3, 4])
    plain_ones = ["user", "assistant"] * 2 if draw.random() < 0.8 else draw.sample(roles, 4)
    turns = [{names[0]: who, names[1]: _answer(draw)} for who in plain_ones[:count]]
    if turns and draw.random() < 0.05:
        draw.choice(turns)["weight"] = 1
    return [dict(reversed(turn.items())) if draw.random() < 0.2 else turn for turn in turns]


def _row(draw: random.Random, name: str) -> Row:
    if name in ("openai", "sharegpt"):
        names = ("role", "content") if name == "openai" else ("from", "value")
        row = {"messages" if name == "openai" else "conversations": _turns(draw, names)}
    else:
        keys = {
            "query_response": ("question", "answer"),
            "prompt_completion": ("prompt", "completion"),
            "alpaca": ("instruction", "input", "output"),
        }
        row = {key: _answer(draw) for key in keys[name]}
    return row


def _line(draw: random.Random, name: str, beside: tuple[str, ...]) -> bytes:
    row = _row(draw, name) | {key: draw.choice(BESIDE) for key in beside}
    items = list(row.items())
    if draw.random() < 0.2:
        draw.shuffle(items)
    ascii_only, spaced = draw.random() < 0.5, draw.random() < 0.7
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(dict(items), ensure_ascii=ascii_only, separators=separators)
    return text.encode()


def _mutated(draw: random.Random, line: bytes) -> bytes:
    for _ in range(draw.choice([1, 1, 2])):
        at = draw.randrange(len(line) + 1)
        how = draw.randrange(5)
        if how == 0:
            line = line[:at] + draw.choice(TOKENS) + line[at:]
        elif how == 1:
            line = line[:at] + line[at + draw.choice([1, 1, 2, 5]) :]
        elif how == 2:
            line = line[:at] + bytes([draw.randrange(256)]) + line[at + 1 :]
        elif how == 3:
            other = draw.randrange(len(line) + 1)
            line = line[: min(at, other)] + line[max(at, other) :]
        else:
            line = line[:at] + line[at : at + 20] + line[at:]
    return line.replace(b"\n", b"")


def _lines(seed: int, count: int) -> Iterator[tuple[str, list[bytes]]]:
    """Blocks of valid and damaged lines, each with the format of its rows."""
    draw = random.Random(seed)
    for number in range(count // 50):
        name = FORMATS[number % len(FORMATS)]
        beside = tuple(draw.sample(["id", "source", "n", "é", "system"], draw.choice([0, 0, 1, 2])))
        lines = [_line(draw, name, beside) for _ in range(50)]
        changed = [_mutated(draw, one) if draw.random() < 0.5 else one for one in lines[1:]]
        yield name, [lines[0], *changed]


def _strict(line: bytes) -> Row | None:
    try:
        return strict_json.parse(line)
    except RowError:
        return None


def _texts(row: Row, how: plain.Reading) -> list[Any]:
    if len(how.columns) > 1:
        return [row[name] for name in how.columns]
    return [value for turn in row[how.columns[0]] for key, value in turn.items() if key in said]


said = {keys[1] for keys in plain.SAID}


def require_equal(name: str, lines: list[bytes], module: native.Native) -> int:
    """Each line that the module takes is what the strict parser makes of it; how many it takes."""
    block = LineBlock(b"\n".join(lines), 0, 0, at_start=False, longest=1 << 20)
    first = _strict(lines[0])
    how = first and plain.reading_of(tuple(first), formats.load(name), KIND)
    if not first or how is None or not all(map(native_rows._is_plainly_spelled, first)):
        return 0
    read = native_rows._read(module, block, first, how)
    texts, others = read.texts.to_pylist(), list(read.others)
    read.texts.validate(full=True)
    at = beside = 0
    for place, size in zip(read.lines.tolist(), read.sizes.tolist(), strict=True):
        row = _strict(lines[place])
        assert row is not None, lines[place]
        assert row.keys() == first.keys(), lines[place]
        assert texts[at : at + size] == _texts(row, how), lines[place]
        if len(how.columns) == 1:
            turns = row[how.columns[0]]
            roles = [SPELLED[turn.get("role", turn.get("from"))] for turn in turns]
            assert all(len(turn) == 2 for turn in turns)
            assert read.roles[at : at + size].tolist() == roles, lines[place]
        values = [row[key] for key in how.unread]
        assert repr(others[beside : beside + len(values)]) == repr(values), lines[place]
        at, beside = at + size, beside + len(values)
    assert at == len(texts)
    assert beside == len(others)
    return len(read.lines)


@pytest.mark.parametrize("seed", range(4))
def test_lines_are_taken_as_the_strict_parser_reads_them(seed: int, module: native.Native) -> None:
    taken = sum(require_equal(*block, module) for block in _lines(seed, 2000))
    assert taken > 600  # and it does take most of those that are whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_lines_are_taken_as_the_strict_parser_reads_them(
    seed: int, module: native.Native
) -> None:
    assert sum(require_equal(*block, module) for block in _lines(seed, 20_000)) > 6000


WHOLE = b'{"question": "q", "answer": "a"}'


@FEW
@given(st.lists(st.binary(max_size=40) | st.text(max_size=30).map(str.encode), max_size=12))
def test_arbitrary_bytes_are_left_alone(found: list[bytes]) -> None:
    module = native.module()
    assert module is not None
    lines = [WHOLE, *(line.replace(b"\n", b"") for line in found)]
    require_equal("query_response", lines, module)


@FEW
@given(st.lists(st.text(st.characters(exclude_categories=("Cs",))), max_size=8), st.booleans())
def test_any_text_is_read(texts: list[str], ascii_only: bool) -> None:
    module = native.module()
    assert module is not None
    rows = [{"question": text, "answer": text[::-1]} for text in texts]
    lines = [json.dumps(row, ensure_ascii=ascii_only).encode() for row in rows]
    assert require_equal("query_response", [WHOLE, *lines], module) == 1 + len(lines)


REFUSED = [
    *(b'{"question":"q","question":"q","answer":"a"}', b'{"question":"q","answer":"a"} x'),
    *(b'{"question":"q","answer":"a",}', b'{"question":"q" "answer":"a"}', b'{"question":"q"}'),
    *(b'{"question":"\xed\xa0\x80","answer":"a"}', b'{"question":"\\ud800","answer":"a"}'),
    *(b'{"question":"\\ud800\\u0041","answer":"a"}', b'{"question":"\x01","answer":"a"}'),
    *(b'{"question":"\xc0\x80","answer":"a"}', b'{"question":"\\v","answer":"a"}', b"", b" "),
    *(b'{"question":"\\u00g0","answer":"a"}', b'{"question":"q","answer":"a"', b"\x0b" + WHOLE),
    *(
        b'\xef\xbb\xbf{"question":"q","answer":"a"}',
        b'{"question":"q","answer":"a\\"}',
        WHOLE + b"\r",
    ),
    *(
        b'{"question":"q","answer":1}',
        b'{"question":"q","answer":"a","more":1}',
        b"[" + WHOLE + b"]",
    ),
]


@pytest.mark.parametrize("line", REFUSED)
def test_a_line_that_is_not_surely_a_plain_row_is_left(line: bytes, module: native.Native) -> None:
    assert require_equal("query_response", [WHOLE, line, WHOLE], module) == 2


def test_a_long_line_is_left(module: native.Native) -> None:
    block = LineBlock(WHOLE + b"\n" + WHOLE + b" ", 0, 0, at_start=False, longest=len(WHOLE))
    row = strict_json.parse(WHOLE)
    how = plain.reading_of(tuple(row), formats.load("query_response"), KIND)
    assert how is not None
    assert native_rows._read(module, block, row, how).lines.tolist() == [0]


# Normalize


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("train_on", ["assistant", "last"])
def test_blocks_become_the_same_columns(
    name: str, train_on: str, without: Callable[[Callable[[], Any]], Any]
) -> None:
    blocks = [lines for found, lines in _lines(7, 1500) if found == name]
    blocks += [[b"\xef\xbb\xbf" + WHOLE, WHOLE], [WHOLE + b"\r", WHOLE], [b"", WHOLE, b" "]]

    def made(lines: list[bytes]) -> Any:
        block = LineBlock(b"\n".join(lines), 5, 0, at_start=True, longest=400)
        normalize = Normalize(KIND, formats.load(name), FormatOptions(), train_on)
        batch = normalize(block)
        batch.validate(full=True)
        records: list[Record] = [*block]
        assert list(block.by_line.items()) == [(one.line, one) for one in records]
        return batch, normalize.tally, records

    for lines in blocks:
        assert made(lines) == without(functools.partial(made, lines))


# Ids

numbers = st.lists(st.integers(0, (1 << 31) - 1), max_size=6).map(lambda x: np.array(x, np.int32))


@FEW
@given(
    st.lists(numbers, min_size=1, max_size=4),
    st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=5),
    st.data(),
)
def test_rows_are_put_together_alike(fixed: Any, own: Any, data: st.DataObject) -> None:
    places = np.array(
        data.draw(st.lists(st.integers(0, len(fixed) + len(own) - 1), max_size=9)), np.int64
    )
    ids = np.concatenate([run for run, _ in own])
    starts = columns.offsets_of(np.array([len(run) for run, _ in own]))
    trained = np.array([flag for _, flag in own])

    def made() -> Any:
        folded, bounds = put_together(fixed, (ids, starts), trained=trained, places=places)
        return folded.tolist(), bounds.tolist()

    with pytest.MonkeyPatch.context() as patch:
        quick = made()
        patch.setattr(native, "module", lambda: None)
        assert quick == made()


@FEW
@given(st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.booleans())))
def test_labels_are_unfolded_alike(found: list[tuple[int, bool]]) -> None:
    ids = np.array([one for one, _ in found], np.int32)
    labels = np.where(np.array([flag for _, flag in found], bool), ids, columns.IGNORED)
    folded = folded_ids(ids, labels.astype(np.int32))
    with pytest.MonkeyPatch.context() as patch:
        quick = [one.tolist() for one in unfolded(folded)]
        assert quick == [ids.tolist(), labels.tolist()]
        patch.setattr(native, "module", lambda: None)
        assert quick == [one.tolist() for one in unfolded(folded)]


# Wrong arguments are exceptions, never memory that is not ours.

ids32, ids64 = np.arange(4, dtype=np.int32), np.array([0, 2, 4], np.int64)
WRONG: list[tuple[str, tuple[Any, ...]]] = [
    ("unfold", (ids32, -100, ids32[:3].copy(), ids32.copy())),
    ("unfold", (b"12345", -100, ids32.copy(), ids32.copy())),
    ("unfold", (ids32, -100, bytes(16), ids32.copy())),
    ("unfold", (ids32[::2], -100, ids32[:2].copy(), ids32[:2].copy())),
    *(
        ("assemble", (ids32, bounds, ids32, own, flags, places, ids32[:2].copy(), room))
        for bounds, own, flags, places, room in [
            (ids64, ids64, np.zeros(2, bool), np.array([4]), np.zeros(2, np.int64)),
            (ids64, ids64, np.zeros(2, bool), np.array([-1]), np.zeros(2, np.int64)),
            (ids64, ids64, np.zeros(2, bool), np.array([0, 1]), np.zeros(3, np.int64)),
            (ids64 + 1, ids64, np.zeros(2, bool), np.array([0]), np.zeros(2, np.int64)),
            (ids64, ids64[::-1].copy(), np.zeros(2, bool), np.array([0]), np.zeros(2, np.int64)),
            (ids64, ids64, np.zeros(1, bool), np.array([0]), np.zeros(2, np.int64)),
            (ids64, ids64, np.zeros(2, bool), np.array([0]), np.zeros(1, np.int64)),
        ]
    ),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_wrong_arguments_are_refused(
    name: str, arguments: tuple[Any, ...], module: native.Native
) -> None:
    with pytest.raises((ValueError, TypeError, BufferError)):
        getattr(module, name)(*arguments)


def test_reading_needs_lines_within_the_content(module: native.Native) -> None:
    def read(starts: list[int], count: int = 1, columns: int = 1, room: int = 64) -> Any:
        names = (b"a",) * columns
        written = (np.zeros(count, np.uint8), np.zeros(room, np.uint8), np.zeros(room, np.int32))
        more = (np.zeros(0, np.int8), np.zeros(count, np.int64), np.zeros(0, np.uint8))
        lines = np.array(starts, np.int64)
        kinds = (0,) * columns
        keys = (b"role", b"content")
        return module.read_rows(
            b'{"a":"x"}', lines, names, kinds, keys, (), (), 99, *written, *more
        )

    assert read([0, 10]) == (1, 1, 1, 0)
    assert read([0, 10], room=0) == (0, 0, 0, 0)  # no room: the line is left
    for wrong in ([0, 11], [-1, 9], [5, 5], [9, 3], [0], []):
        with pytest.raises(ValueError, match="line"):
            read(wrong)
    for count, columns_ in ((2, 1), (1, 33), (1, 0)):
        with pytest.raises(ValueError, match=r"line|columns"):
            read([0, 10], count=count, columns=columns_)


# Whether it is used


def test_a_module_of_another_interface_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.SWITCH, raising=False)
    other = SimpleNamespace(INTERFACE=native.INTERFACE + 1, __version__="9")
    monkeypatch.setitem(sys.modules, "posttrain_pipeline_native", other)
    found, why = native._found.__wrapped__()
    assert found is None
    assert f"interface {native.INTERFACE + 1}" in why
    assert "posttrain-pipeline[native]" in why


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.SWITCH, "0")
    assert native._found.__wrapped__() == (
        None,
        "The native module is turned off by POSTTRAIN_NATIVE=0.",
    )


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


def test_a_build_reads_its_lines_with_it(
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of a build asks for rows before they could become columns."""
    data, taken = tmp_path / "data.jsonl", []
    data.write_bytes(b"\n".join([WHOLE] * 30))
    read = native_rows._read

    def counted(*arguments: Any) -> Any:
        found = read(*arguments)
        taken.append(len(found.lines))
        return found

    monkeypatch.setattr(native_rows, "_read", counted)
    make("sft", data)
    assert sum(taken) == 30


@pytest.mark.parametrize("name", ["query_response", "sharegpt"])
def test_builds_have_the_same_bytes_with_and_without_it(
    name: str, tmp_path: Path, cache_home: Path
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes(
        b"\n".join(line for found, some in _lines(3, 600) if found == name for line in some)
    )
    made = []
    for switch in ("1", "0"):
        folder, cache = tmp_path / switch, tmp_path / f"cache{switch}"
        command = [str(Path(sys.executable).parent / "pipeline"), "run", "sft", str(data)]
        command += ["--model", "qwen2-1.5b", "-o", str(folder), "--max-reject", "1", "--quiet"]
        command += ["--format", name, "--cache-dir", str(cache), "--workers", "1"]
        command += ["--already-templated"] if name == "query_response" else []
        variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), native.SWITCH: switch}
        subprocess.run(command, check=True, env=variables, cwd=tmp_path)
        made.append(_files(folder))
        used = json.loads((folder / "run.json").read_text("utf-8"))["native"]
        assert (used is None) == (switch == "0")
        assert read_manifest(folder)["rows"]["used"] > 0
    assert made[0].keys() == made[1].keys()
    assert made[0] == made[1]
