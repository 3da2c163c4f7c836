"""A refused build says what would let it pass; each refused row and sequence is recorded."""

from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import NAME
from hypothesis import given
from hypothesis import strategies as st
from support import few, read_manifest, read_rows, table, write_rows

from pipeline.builder import max_reject, rejects, stagewise
from pipeline.builder.max_reject import Limit, error_of, exceeding, shares
from pipeline.manifest.json_records import load, one_line
from pipeline.manifest.records import Reject
from pipeline.options.build_options import OPTIONS as OPTIONS_OF
from pipeline.options.config import Config
from pipeline.shards.chain import Losses, Refusal
from posttrain_pipeline.commands import cli
from stages.readers import jsonl

limits = st.sampled_from([OPTIONS_OF["max_reject"].default, 0.0, 0.001, 0.1, 0.29, 0.5, 1.0])


@st.composite
def lost(draw: st.DrawFn) -> Losses:
    """Counts of rows, examples and turns that go together."""
    rows = draw(st.integers(1, 2000))
    hit = draw(st.integers(0, min(rows, 40)))
    refused = draw(st.integers(0, hit))
    examples = draw(st.integers(rows - refused, 3 * rows))
    gone = draw(st.integers(hit - refused, examples - rows + hit)) if hit else 0
    more = draw(st.integers(0, 500))
    turns = draw(st.integers(0, min(more, 5 * gone)))
    return Losses(rows, refused, hit, examples, gone, examples + more, gone + turns)


@given(lost(), limits)
def test_the_limit_holds_for_rows_examples_and_trained_turns(losses, limit):
    """No more than the share of each; four rows may go, but never with a fifth of anything."""
    over = exceeding(losses, limit)
    each = [(one.noun, Fraction(one.refused, one.total)) for one in shares(losses) if one.total]
    allowed = Fraction(str(limit))
    wanted = [
        noun
        for noun, share in each
        if share > allowed and not (limit and losses.rows_hit <= 4 and 5 * share < 1)
    ]
    assert (over and over.noun) == (wanted[0] if wanted else None)
    if over is None and limit < 0.2:
        assert all(5 * share < 1 for _, share in each)
    if limit == 0:
        assert (over is None) == (not losses.rows_refused + losses.examples_refused)
    if over is not None:
        told = Limit(limit, (0,)).sentence(over, losses)
        assert f"{over.refused:,} of {over.total:,} {over.noun}" in told


@given(
    st.lists(
        st.tuples(st.lists(st.integers(600, 90_000), max_size=3), st.integers(0, 2), st.booleans()),
        max_size=40,
    ).filter(lambda rows: any(long for long, _, _ in rows)),
    st.integers(0, 500),
    limits,
)
def test_the_offered_lengths_keep_their_word(rows, good, limit):
    """Counts are exact, all fit the longest, and the least one passes where the one below fails.

    Each row has examples that are too long, others that are refused, and one that stays or not.
    """
    ledger = rejects.Ledger()

    def counted(length: int) -> Losses:
        """What is lost under a length, counted anew."""
        found = Losses(rows=good, examples=good, turns=2 * good)
        for long, others, kept in rows:
            gone = sum(n > length for n in long) + others
            made = len(long) + others + kept
            whole = gone == made and made > 0
            found += Losses(1, int(whole), int(gone > 0), made, gone, 2 * made, 2 * gone)
        return found

    for long, others, kept in rows:
        why = [("too_long", f"{n} tokens") for n in long] + [("control_text", "")] * others
        gone = [Refusal(0, 0, "encode", *one, turns=2) for one in why]
        if gone:
            ledger.count([("r", one) for one in gone], kept=kept)
    every = [n for long, _, _ in rows for n in long]
    fits = max_reject.fitting(every)
    assert all(count == sum(n <= length for n in every) for length, count in fits.items())
    assert fits[max(fits)] == len(every)
    config = Config.of("sft", ("x",), "m", Path("o"), max_reject=limit)
    (of_all,) = max_reject.limits(config)
    for length in (0, *fits):
        assert max_reject.fitted(counted(0), ledger.long, length) == counted(length)
    error = error_of(ledger, counted(0), None, config=config, limit=of_all)
    at = error.figures["too_long"]["passes_at"]

    def passes(length: int) -> bool:
        return exceeding(counted(length), limit) is None

    if at is None:
        assert not passes(max(every)) or "out of the file" in error.remedy  # few and far longer
    else:
        assert passes(at)
        assert at == 1024 or not passes(at - 1024) or at - 1024 < min(every)
    assert "--max-reject" not in error.remedy or at is None


def test_the_counts_of_parts_add_up(tmp_path, make, monkeypatch):
    """Of one part and of many, in one window and in several."""
    said = [("user", "q"), ("assistant", "a"), ("user", "more"), ("assistant", "word " * 300)]
    turns = [{"role": role, "content": text} for role, text in said]
    rows = [
        {"messages": turns if n % 3 else turns[:2]} if n % 7 else {"messages": []}
        for n in range(60)
    ]
    data = write_rows(tmp_path / "d.jsonl", rows)
    found = []
    for name, size in (("one", jsonl.SPLIT_BYTES), ("many", 3000)):
        monkeypatch.setattr(jsonl, "SPLIT_BYTES", size)
        manifest = read_manifest(make("sft", data, name, model="qwen3-8b", max_length=256))
        found.append([manifest["rows"], manifest["examples"]])
    assert found[0] == found[1]
    wanted = sum(bool(n % 7 and n % 3) for n in range(60))
    assert found[0][0]["used_in_part"] == wanted
    assert found[0][1]["rejected_in_part"] == {"too_long": wanted}


KEYS = ["id", "source", "line", "offset", "stage", "code", "detail", "raw"]


# Rows that normalize refuses, that a later stage refuses, and that stay; a blank line, CRLF and
# bytes that are no UTF-8 among them.
BAD: dict[str, list[str]] = {}
for task, line in table("mixed_rows.jsonl"):
    BAD.setdefault(task, []).append(line.replace("LONG", "word " * 90))
OPTIONS = ("--model", NAME, "--max-length", "64", "--too-long", "reject", "--max-reject", "1")


@pytest.fixture
def here(tmp_path, cache_home, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


def _run(*words: object) -> None:
    """A command in this process."""
    ran = CliRunner().invoke(cli, list(map(str, words)))
    assert ran.exit_code == 0, ran.output


def written(task: str, folder: Path) -> Path:
    path = folder / "rows.jsonl"
    text = "".join(f"{row}\n" for row in BAD[task])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize("task", few(BAD, 1))
@pytest.mark.usefixtures("here")
def test_a_stage_writes_the_rejects_that_the_build_writes(task, tmp_path):
    """``_run``, ``_run --until`` and ``stage`` by ``stage``: the same lines, keys and order."""
    source = written(task, tmp_path)
    stages = [name for kind, name, *_ in stagewise.stage_table() if kind == task]
    stages = stages[1 : stages.index("validate") + 1]
    options = ("--format", {"sft": "openai", "rm": "preference", "prm": "stepwise"}[task], *OPTIONS)
    _run("run", task, source, *options, "-o", "out")
    _run("run", task, source, *options, "-o", "until.arrow", "--until", "validate")
    _run("stage", "normalize", source, "--task", task, *options, "-o", "0.arrow")
    for number, stage in enumerate(stages):
        _run("stage", stage, f"{number}.arrow", "-o", f"{number + 1}.arrow")
    of_run = (tmp_path / "out" / "rejects.jsonl").read_bytes()
    assert (tmp_path / "until.arrow.rejects.jsonl").read_bytes() == of_run
    paths = [tmp_path / f"{number}.arrow.rejects.jsonl" for number in range(len(stages) + 1)]
    alone = [row for path in paths for row in read_rows(path)]
    wanted = read_rows(tmp_path / "out" / "rejects.jsonl")
    assert sorted(alone, key=lambda one: one["line"]) == wanted
    assert [list(one) for one in (*alone, *wanted)] == [KEYS] * len(wanted) * 2
    assert len({one["stage"] for one in wanted}) > 1


@pytest.mark.usefixtures("here")
def test_where_a_row_stands_does_not_depend_on_how_its_file_was_cut(tmp_path, monkeypatch):
    """Lines and offsets count from the file's start, and what stands there is the row."""
    source = written("sft", tmp_path)
    content = source.read_bytes()
    target = ("-o", "out.arrow", "--until", "validate", "--format", "openai")
    seen = []
    for size, splits in ((jsonl.SPLIT_BYTES, 1), (100, 5)):
        monkeypatch.setattr(jsonl, "SPLIT_BYTES", size)
        assert len(jsonl.READER.splits(str(source))) == splits
        _run("run", "sft", source, *OPTIONS, *target)
        seen.append((tmp_path / "out.arrow.rejects.jsonl").read_bytes())
    assert seen[0] == seen[1]
    lines = seen[0].splitlines()
    assert [one_line(load(Reject, line)).encode() for line in lines] == lines
    for reject in (load(Reject, line) for line in lines):
        assert reject.id == f"rows.jsonl:{reject.line}"
        row = content[reject.offset :].splitlines()[0]
        assert row == content.splitlines()[reject.line - 1]
        assert row.decode("utf-8", "backslashreplace") == reject.raw
