"""Nothing that others wrote takes for ever: inputs, templates, models, profiles and recipes.

Each is refused by a count that its message names, or read in the time that its size takes. Seconds
are those of this process; the machine may be busy with something else.
"""

import contextlib
import gzip
import itertools
import json
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from click.testing import CliRunner
from small_tokenizers import byte_level
from support import SAMPLES, few, raised, repeated, started, sweep, table, table_bytes

from pipeline.inputs.readings import glimpses, recognise_all
from pipeline.inputs.scan import expand, scan
from pipeline.options.config import Config
from posttrain_pipeline.commands import cli
from stages import errors, files, readers
from stages.chat_template.template import LONGEST, Template
from stages.errors import ModelError, RowError
from stages.tokenizers.profiles import all_profiles
from stages.tokenizers.resolve import Overrides, resolve

PLENTY = 20.0  # seconds
GOOD = b'{"question": "q", "answer": "a"}\n'
MANY = 1 << 20


def _within(action: Callable[[], object], *kinds: type[errors.PipelineError]) -> str:
    """What an action was refused with; "" when it was not."""
    began = time.process_time()
    said = ""
    try:
        action()
    except kinds as error:
        said = str(error)
    assert time.process_time() - began < PLENTY
    return said


def _zst(content: bytes, times: int) -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join(packer.compress(content) for _ in range(times)) + packer.flush()


def _table(kind: str, column: Any) -> bytes:
    return table_bytes(pa.table({"question": column}), kind, 1 << 31)


def _zstd(column: Any) -> bytes:
    """A stream whose buffers are compressed."""
    sink = pa.BufferOutputStream()
    table = pa.table({"question": column})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _lying(content: bytes) -> bytes:
    """An Arrow stream whose first compressed buffer says that it becomes a terabyte."""
    at = content.index(b"\x28\xb5\x2f\xfd") - 8
    return content[:at] + struct.pack("<q", 1 << 40) + content[at + 8 :]


def _repeated(rows: int) -> Any:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["q"])


def _run(rows: int, text: str) -> Any:
    return pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), [text])


ROWS = "one for each byte"  # what the message names
CROWDED: dict[str, Callable[[], bytes]] = {
    "blank.jsonl.gz": lambda: gzip.compress(b"\n" * (100 << 20), 1),
    "blank_behind_a_row.jsonl.gz": lambda: gzip.compress(GOOD + b"\n" * MANY + GOOD, 1),
    "blanks.jsonl.zst": lambda: _zst(b" \t\r\n" * MANY, 3),
    "objects.jsonl.gz": lambda: gzip.compress(GOOD + b"{}\n" * MANY, 1),
    "blank.csv.gz": lambda: gzip.compress(b"question,answer\n" + b"\n" * MANY, 1),
    "numbers.json.gz": lambda: gzip.compress(b"[" + GOOD + b",1" * MANY + b"]", 1),
    "nulls.arrow": lambda: _table("file", pa.nulls(2**31 - 1)),
    "runs.arrow": lambda: _table("file", _run(2**31 - 1, "x")),
    "one_value.parquet": lambda: _table("parquet", _repeated(MANY)),
}
_ZEROS = np.zeros(50_000, np.int32)
_LONG = pa.DictionaryArray.from_arrays(_ZEROS, ["x" * 60_000])
_FLAT = pa.ListArray.from_arrays([0, len(_LONG)], _LONG)
_VIEWS = pa.ListViewArray.from_arrays(_ZEROS, _ZEROS + 5000, pa.array(["q"] * 5000))
_STRUCT = pa.StructArray.from_arrays([_LONG], ["content"])
_NULLS = pa.ListArray.from_arrays([0, 1 << 25], pa.nulls(1 << 25))
SWOLLEN: dict[str, Callable[[], bytes]] = {
    "dictionary.parquet": lambda: _table("parquet", _FLAT),
    "nulls.parquet": lambda: _table("parquet", _NULLS),
    "rows.parquet": lambda: _table("parquet", _STRUCT),
    "dictionary.arrow": lambda: _table("file", _LONG),
    "stream.arrow": lambda: _table("stream", _LONG),
    "list.arrow": lambda: _table("file", _FLAT),
    "views.arrow": lambda: _table("file", _VIEWS),
    "runs.arrow": lambda: _table("file", _run(50_000, "x" * 60_000)),
    "zstd.arrow": lambda: _zstd(pa.array(["x" * (30 << 20)] * 40)),
    "lying.arrow": lambda: _lying(_zstd(pa.array(["x" * 1000]))),
    "frames.jsonl.zst": lambda: zstandard.compress(GOOD[:-1] + b" " * (17 << 20) + b"\n") * 80,
}
ENOUGH = ("objects.jsonl.gz", "numbers.json.gz")  # rows at their head; a plan reads no further
LARGE: dict[str, Callable[[], bytes]] = {
    "digits.jsonl": lambda: GOOD.replace(b'"a"', b"9" * MANY) + GOOD,
    "deep.jsonl": lambda: GOOD + b"[" * MANY + b"\n" + b'{"a":' * MANY + b"\n",
    "deep.json": lambda: b"[" * MANY,
    "quotes.jsonl": lambda: GOOD.replace(b'"a"', b'"' + b'\\" ' * MANY + b'"'),
    "spaces.jsonl": lambda: GOOD.replace(b":", b" " * MANY + b":", 1),
    "keys.jsonl": lambda: GOOD[:-2] + b"".join(b',"%d":1' % i for i in range(MANY >> 4)) + b"}\n",
    "one_key.jsonl": lambda: GOOD[:-2] + b',"a":1' * (MANY >> 3) + b"}\n",
    "lists.jsonl": lambda: GOOD[:-2] + b',"a":[' + b"[]," * (MANY >> 4) + b"[]]}\n",
    "line.jsonl.zst": lambda: _zst(b"x" * MANY, 100),
    "spaces.json.gz": lambda: gzip.compress(b"[" + b" " * (64 << 20) + b"]", 1),
}


def _read(path: Path, plan: bool) -> None:
    config = Config.of("sft", (str(path),), "qwen2-1.5b", Path("out"), cache_dir=path.parent)
    if plan:
        glimpses(expand(config.source.data, config.run.cache_dir))
        return
    for source in scan(config):
        with contextlib.suppress(errors.DataError):
            recognise_all([source], config)
        for split in source.splits:
            for _ in readers.load(split.reader).read(split):
                pass


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "plan"), few(itertools.product(CROWDED, (True, False)), 3))
def test_a_file_has_not_many_more_rows_than_bytes(tmp_path, name, plan):
    """Blank lines, empty rows, repeated values: the count stops them, and the message says so."""
    path = tmp_path / name
    path.write_bytes(CROWDED[name]())
    said = _within(lambda: _read(path, plan), errors.ContainerError)
    assert ROWS in said or (plan and name in ENOUGH)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", few(LARGE, 3))
def test_strange_values_take_the_time_of_their_size(tmp_path, name):
    """Long numbers, deep nesting, blanks and quotes without end."""
    path = tmp_path / name
    path.write_bytes(LARGE[name]())
    for plan in (True, False):
        _within(lambda p=plan: _read(path, p), errors.DataError)


def test_an_archive_expands_no_more_than_text(tmp_path, monkeypatch):
    """Beyond what is free; and --salvage keeps what came before."""
    monkeypatch.setattr(files, "FREE_TEXT", 1 << 20)
    path = tmp_path / "bomb.jsonl.zst"
    path.write_bytes(_zst(GOOD, 1) + _zst(b"x" * (1 << 20), 100))
    said = _within(lambda: _read(path, False), errors.ContainerError)
    assert f"expands more than {files.EXPANSION} times" in said
    assert files.EXPANSION > 1032  # what gzip comes to at most


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", few(SWOLLEN, 3))
def test_a_table_is_refused_before_it_swells(tmp_path, name):
    """What names a value once and means it a million times is counted before it is decoded."""
    path = tmp_path / name
    path.write_bytes(SWOLLEN[name]())
    before = pa.total_allocated_bytes()
    said = _within(lambda: _read(path, False), errors.ContainerError)
    assert f"expands more than {files.EXPANSION} times" in said
    assert pa.total_allocated_bytes() - before < files.FREE_TEXT


def test_categories_are_no_bomb(tmp_path):
    """Five values over many rows, one of them long; nor are a hundred thousand equal rows."""
    categories = pa.array(["a", "b", "c" * 2000, "", None])
    column = categories.take(pa.array([0, 1, 2, 3, 4] * 2000))
    for kind, suffix in (("parquet", "parquet"), ("file", "arrow"), ("stream", "arrow")):
        path = tmp_path / f"{kind}.{suffix}"
        path.write_bytes(_table(kind, column))
        _read(path, False)
    path = tmp_path / "equal.jsonl.zst"
    path.write_bytes(zstandard.compress(GOOD * 100_000))
    _read(path, False)


def _parts(count: int, text: str) -> str:
    return text * (count // len(text))


WIDE = {
    "digits": "{{ " + "9" * 1_000_000 + " }}",
    "few digits": "{{ " + "9" * 5000 + " }}",
    "wide tuple": "{{ (" + "1," * 1_000_000 + ") }}",
    "sets": "".join(f"{{% set a{i} = 1 %}}" for i in range(LONGEST // 20)),
    "nested": "{{ " + "[" * 30_000 + "]" * 30_000 + " }}",
    "braces": "{" * LONGEST,
    "comments": _parts(LONGEST, "{#"),
    "blanks": _parts(LONGEST - 20, "\n") + "{%- if x %}{% endif %}",
}
SLOW = {
    "tuple": "{{ (" + _parts(LONGEST - 20, "1,") + ") }}",
    "dict": "{{ {" + _parts(LONGEST - 20, "1:1,") + "} }}",
    "concat": "{{ x" + _parts(LONGEST - 20, "~x") + " }}",
    "compare": "{{ x" + _parts(LONGEST - 20, "<x") + " }}",
    "filters": "{{ x" + _parts(LONGEST - 20, "|e") + " }}",
    "loops": _parts(LONGEST, "{% for x in x %}{% endfor %}"),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", [*WIDE, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_a_template_compiles_soon_or_not_at_all(name):
    """By its length; whatever else is wrong with it is told as a fault of the template."""
    source = (WIDE | SLOW)[name]
    said = _within(lambda: Template(source, "2024-07-26"), errors.ModelError)
    assert (f"the limit is {LONGEST}" in said) == (len(source) > LONGEST)
    assert said or "digits" not in name


CONFIG: dict[str, Any] = {
    "chat_template": "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
}
MODELS: dict[str, list[str]] = table("bounds.toml")["models"]


@pytest.fixture
def sound(tmp_path) -> str:
    """The address of a sound model."""
    tokenizer = byte_level(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CONFIG), "utf-8")
    (tmp_path / "config.json").write_text('{"vocab_size": 1000}', "utf-8")
    resolve(f"{tmp_path}/", tmp_path, Overrides())
    return f"{tmp_path}/"


@pytest.mark.parametrize("name", MODELS)
def test_a_models_files_may_hold_anything(sound, tmp_path, name):
    """What they must not hold is a fault of the model, and never one of ours."""
    file, content = MODELS[name]
    (tmp_path / file).write_text(repeated(content), "utf-8")
    assert _within(lambda: resolve(sound, tmp_path, Overrides()), errors.ModelError)


def test_our_faults_are_ours(sound, tmp_path, monkeypatch):
    """What reads a model's files may break: that is told as it is."""

    def broken(*_: object, **more: object) -> None:
        raise TypeError("a fault of ours")

    monkeypatch.setattr("stages.tokenizers.claims.repairs", broken)
    raised(TypeError, resolve, sound, tmp_path, Overrides(), says="a fault of ours")


TOML: dict[str, str] = {
    **table("bounds.toml")["toml"],
    "tables in tables": "a = " + "{a = " * 3000,
    "many tables": "".join(f"[a.b{i}]\n" for i in range(20_000)),
}


@pytest.mark.parametrize("name", TOML)
def test_profiles_and_recipes_may_hold_anything(tmp_path, name):
    """The same for what is written in TOML."""
    path = tmp_path / "odd.toml"
    text = repeated(TOML[name])
    path.write_text(text, "utf-8")
    assert _within(lambda: resolve(str(path), tmp_path, Overrides()), errors.ModelError)
    head = 'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "rows.jsonl"\n'
    path.write_text(head + text, "utf-8")

    def build() -> None:
        ran = CliRunner().invoke(cli, ["build", str(path)])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception

    assert _within(build, errors.UsageError)


# The sandbox: a hostile chat template reaches nothing and ends soon, by counting.

DATE = "2024-07-26"
SOON = 3.0  # seconds of this process, on a busy machine; alone it is a tenth of that

TABLES = table("hostile_templates.toml")
REACHING = TABLES["reaching"]
LOOPING = TABLES["looping"] | {
    "callblock": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + 40 * "{% call f() %}"
    + "x"
    + 40 * "{% endcall %}"
}
GROWING = TABLES["growing"] | {
    "setblock": "{% set a %}aaaaaaaaaa{% endset %}"
    + 30 * ("{% set a %}" + 10 * "{{ a }}" + "{% endset %}")
}
SOURCE = TABLES["source"] | {
    "brackets": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "blocks": "{% if true %}" * 200 + "{% endif %}" * 200,
    "nested_loops": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "signs": "{{ " + "-" * 100_000 + "1 }}",
}
ENDLESS = LOOPING | GROWING | TABLES["slow"]


def refused(source: str) -> RowError:
    """What a template is refused with when it renders."""
    return raised(RowError, Template(source, DATE).render, [{"role": "user", "content": "x"}])


def test_nothing_is_reached():
    """Attributes of Python objects, in every spelling, end the rendering at once."""
    for name, source in REACHING.items():
        error = refused(source)
        assert error.code == "template_error", name
        assert "refused" in error.detail, name


@pytest.mark.parametrize("name", few(ENDLESS, 24))
def test_nothing_goes_on_for_ever(name):
    """Loops, recursion, growth and slow operations in loops end, in one way on every machine."""
    began = time.process_time()
    first = refused(ENDLESS[name])
    assert time.process_time() - began < SOON
    assert len(first.detail) < 500


def test_the_verdict_is_the_same_each_time():
    """The budget starts anew with every rendering, and a good row after a bad one renders."""
    turn = {"role": "user", "content": "x"}
    for name in ("loops", "double", "recursive"):
        bomb = ENDLESS[name]
        template = Template("{% if messages|length > 1 %}" + bomb + "{% endif %}fine", DATE)
        details = set()
        for _ in range(2):
            assert template.render([turn]) == "fine"
            details.add(raised(RowError, template.render, [turn, turn]).detail)
        assert len(details) == 1, name


def test_what_cannot_be_compiled_is_a_fault_of_the_recipe():
    """Other files, randomness, and source that would exhaust the compiler."""
    for source in SOURCE.values():
        assert raised(ModelError, Template, source, DATE, says="chat template").exit_code == 2


def test_ordinary_work_is_far_from_the_limits():
    """A thousand turns, a megabyte of content and a hundred tools render with every template."""
    turns = [
        {"role": ("user", "assistant")[i % 2], "content": f"turn {i} " * 120} for i in range(1000)
    ]
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "parameters": {}}} for i in range(100)
    ]
    for source in {profile.chat_template for profile in all_profiles().values()}:
        template = Template(source, DATE, bos_token="<s>", eos_token="</s>")
        assert len(template.render(turns)) > 1_000_000
        assert len(template.render(turns[:3], tools)) > 2000


def test_what_is_within_the_limits_is_printed():
    """Numbers that pad nothing may be as large as they are; sums and macros work."""
    for text, source in TABLES["printed"].items():
        assert Template(source, DATE).render([]) == text


HOSTILE = [REACHING["globals"], SOURCE["include"], LOOPING["loops"]]


@pytest.mark.parametrize("source", few(HOSTILE, 2), ids=("reaching", "including", "looping"))
def test_a_hostile_template_ends_the_command_with_one_error(source, pipeline, tmp_path):
    """Status 2, one error, no traceback, nothing executed."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    (tmp_path / "evil.jinja").write_text(source)
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", "--chat-template", "evil.jinja")
    ran.refused(2, "refused")
    assert ran.err.count("Error:") == 1
    assert "Traceback" not in ran.err
    assert {path.name for path in tmp_path.iterdir()} == {"evil.jinja"}


@sweep(1)
@pytest.mark.parametrize("seed", range(1, 9))
def test_no_work_with_any_value_goes_on_for_ever(seed):
    """Methods, filters, tests, globals and operators with each type of value, every other in loops.

    Some are drawn from 80,000 templates; ``python tests/sandbox_sweep.py 1 0`` tries them all.
    """
    tried = started(sys.executable, Path(__file__).parent / "sandbox_sweep.py", seed, 60).ended()
    *broken, last = tried.out.splitlines()
    assert not broken
    assert json.loads(last)["tried"] == 60
