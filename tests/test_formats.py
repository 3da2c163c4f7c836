"""Record formats: what each kind of row says, and why a row is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import READ, REFUSED, UNUSABLE, WHOLE, turns, unfolded
from support import (
    SAMPLES,
    Run,
    check_reading,
    detected_as,
    raised,
    read_manifest,
    records_of,
    rows_to,
    table,
)

from pipeline.tasks import kind_of
from stages import catalog, contract, errors, formats, readers
from stages.files.line_block import parse
from stages.format import Format
from stages.normalize import evidence, stage
from stages.rows import loss_mask


@pytest.mark.parametrize("name", READ)
def test_a_row_says_what_it_says(name: str) -> None:
    """Detected among all formats of its task, and turned into exactly these examples."""
    one = READ[name]
    assert formats.choose(one.reading, kind_of(one.task)).matches(one.row)
    detected_as([one.row] * 3, one.task, one.reading, "3 of 3")
    check_reading(one.reading, one.task, one.row, one.examples)


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_says_nothing_clear_is_refused(name: str) -> None:
    """Each fault has its code, and a reason that names it; nobody guesses what was meant."""
    one = REFUSED[name]
    caught = raised(errors.RowError, unfolded, one.reading, one.row, contract.FormatOptions())
    assert caught.code == one.code
    assert caught.detail
    assert one.words in caught.detail


@pytest.mark.parametrize("name", UNUSABLE)
def test_data_for_another_kind_of_training_is_refused_by_its_name(name: str) -> None:
    """Detection says what the rows are for and what to give instead; no option has them read."""
    one = UNUSABLE[name]
    refused = raised(errors.DataError, evidence.detect, [one.row] * 3, kind_of(one.task), "x.jsonl")
    assert one.words in refused.what
    assert refused.remedy
    if one.reading:
        found = formats.load(one.reading)
        assert found.matches(one.row)
        raised(errors.RowError, found.read, one.row, contract.FormatOptions())


@pytest.mark.slow
@pytest.mark.parametrize("task", ["prm", "rm", "sft"])
def test_rows_are_planned_and_built(pipeline: Run, tmp_path: Path, task: str) -> None:
    """One file a row, all in one build: plan and run see the same readings and examples."""
    cases = {name: one for name, one in READ.items() if (one.built, one.task) == (True, task)}
    files = [rows_to(tmp_path / f"{name}.jsonl", case.row).name for name, case in cases.items()]
    # a template with a place for tools and for reasoning, where rows have them
    command = (*files, "--model", "qwen2-1.5b" if task == "prm" else "qwen3-0.6b")
    planned = pipeline("plan", *command, "--task", task, "--json").ended().told
    pipeline("run", task, *command, "-o", "out", "--max-reject", 1).ended()
    manifest = read_manifest(tmp_path / "out")
    wanted = [example for case in cases.values() for example in case.examples]
    refused = Counter(example.code for example in wanted if isinstance(example, contract.Refused))
    assert manifest["rows"]["used"] == len(cases)
    assert manifest["examples"]["kept"] >= len(wanted) - refused.total()
    assert manifest["examples"]["rejected_by_code"] == refused
    readings = [case.reading for case in cases.values()]
    assert [one["format"] for one in planned["inputs"]] == readings
    assert [one["format"] for one in manifest["inputs"]] == readings


def test_every_format_is_tested() -> None:
    """No format is without an example here."""
    known = [one for task in ("sft", "rm", "prm") for one in formats.for_kind(kind_of(task))]
    read = {one.reading.partition("/")[0] for one in READ.values()} | {"pretokenized"}
    unusable = {one.reading for one in UNUSABLE.values() if one.reading}
    assert {one.name for one in known if one.usable} <= read
    assert {one.name for one in known if not one.usable} <= unusable
    whole = {one.reading.partition("/")[0] for one in WHOLE.values()}
    assert not whole & unusable
    assert whole | unusable == set(catalog.names("stages.formats"))
    variants = [(name, one) for name in whole for one in formats.load(name).variants]
    assert all(formats.load(f"{name}/{one}").name == name for name, one in variants)


Q, A = ("user", "q"), ("assistant", "a")


@settings(max_examples=50)
@given(st.data())
def test_every_completion_is_in_an_example_or_refused_by_name(data: st.DataObject) -> None:
    """Whatever was chosen, rated or written, each completion's text ends a chain or has a code."""
    steps: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(1, 4))):
        ratings = data.draw(st.lists(st.sampled_from([-1, 0, 1, None]), max_size=3))
        made = [{"text": f"{number}.{i}", "rating": r} for i, r in enumerate(ratings)]
        chosen = data.draw(st.one_of(st.none(), st.integers(0, len(made) - 1))) if made else None
        human = data.draw(st.sampled_from([None, {"text": f"{number}.h"}]))
        steps.append(
            {"completions": made or None, "chosen_completion": chosen, "human_completion": human}
        )
    row = {"question": {"problem": "P"}, "label": {"steps": steps}}
    found = formats.load("prm800k").read(row, contract.FormatOptions())
    chains = [one for one in found if isinstance(one, contract.StepChain)]
    used = {text for chain in chains for text in chain.steps}
    written = sum(len(step["completions"] or []) for step in steps)
    written += sum(step["human_completion"] is not None for step in steps)
    assert len(used) + sum(isinstance(one, contract.Refused) for one in found) == written


KEYS = (
    "messages conversations prompt completion completions chosen rejected text input output "
    "instruction label labels value question answer steps problem system tools margin "
    "score_chosen score_rejected role content from rating chosen_completion human_completion "
    "weight train loss tool_calls name type instances history response_chosen response_rejected "
    "output_1 output_2 winner ranked responses scores rank error_steps first_error prefixes "
    "input_ids loss_mask attention_mask message_thinking message_content reasoning function_call "
    "arguments better_response_id context"
).split()
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "user", "gpt", "tool", "function_call", "+", "[]", "{", "null"])
    | st.sampled_from(["P Step 1: a ки", "P Step 1: a +", '{"name": "f"}', "text"])
)
SHAPES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=120)
@given(row=st.dictionaries(st.sampled_from(KEYS), SHAPES, max_size=6), raw=st.booleans())
def test_no_row_crashes_the_door(row: contract.Row, raw: bool) -> None:
    """Any object comes out of any format's door once or refused; nothing else is raised."""
    for task in ("sft", "rm", "prm"):
        for base in formats.for_kind(kind_of(task)):
            for found in (base, *base.variants.values()):
                door = stage.Normalize(
                    kind_of(task), found, contract.FormatOptions(), raw=raw, reasoning=None
                )
                batch = door([contract.Record(0, 0, b"", row)])
                assert batch.num_rows == 1 or found.fans_out
                assert found.matches(row) is None or isinstance(found.matches(row), str)


@settings(max_examples=40)
@given(rows=st.lists(st.dictionaries(st.sampled_from(KEYS), SHAPES, max_size=6), max_size=4))
def test_no_rows_crash_detection(rows: list[contract.Row]) -> None:
    """Any sample has one reading or is refused with a sentence; nothing else is raised."""
    for task in ("sft", "rm", "prm"):
        try:
            found = evidence.detect(rows, kind_of(task), "x.jsonl")
        except errors.DataError as error:
            said = str(error)
        else:
            said = found.evidence
            assert kind_of(task).name in found.format.kinds
        assert "\n" not in said


@pytest.mark.parametrize("task", ["sft", "rm", "prm"])
def test_undetectable_rows_are_refused_with_their_columns(task: str) -> None:
    """The message names the columns that were found and the formats that read rows."""
    with pytest.raises(errors.DataError, match=r"beta \(number\), alpha \(number\)") as caught:
        evidence.detect([{"beta": 1, "alpha": 2}], kind_of(task), "x.jsonl")
    names = {found.name for found in formats.usable_for(kind_of(task))}
    assert all(name in caught.value.remedy for name in names)
    refused = {found.name for found in formats.for_kind(kind_of(task))} - names
    assert not any(name in caught.value.remedy for name in refused)


def test_a_format_of_another_task_is_a_usage_error() -> None:
    """A format that cannot feed the task is refused, and so is one that does not exist."""
    with pytest.raises(errors.UsageError, match="gives conversations, not preference pairs"):
        formats.choose("alpaca", kind_of("rm"))
    caught = raised(errors.UsageError, formats.choose, "alpacca", kind_of("sft"), says="alpacca")
    assert "alpaca" in caught.remedy


# file under sample_data: format, rows, codes of the refused ones
SAMPLE_FILES: dict[str, tuple[str, int, list[str]]] = dict(table("sample_files.jsonl"))


def test_sample_files_are_recognised_and_read() -> None:
    """Each has the format it shows, only the rows meant to be refused are, and none is left out;
    the same solutions, stored in three formats, give the same examples line by line."""
    there = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.json*")}
    assert there == set(SAMPLE_FILES)
    made = []
    for name, (reading, count, codes) in SAMPLE_FILES.items():
        reader = readers.load(readers.suffixes()[f".{name.partition('.')[2]}"])
        found = records_of(*reader.splits(str(SAMPLES / name)))
        task = name.partition("/")[0] if "/" in name else "sft"
        rows = [record.data for record in found if record.data is not None]
        detected, _ = detected_as(rows, task, reading)
        assert (detected.name, len(found)) == (reading.partition("/")[0], count), name
        batch = stage.Normalize(kind_of(task), detected, contract.FormatOptions())(found)
        assert sorted(batch["reject_code"].drop_null().to_pylist()) == codes, name
        assert set(batch["line"].to_pylist()) == {record.line for record in found}
        if reading in ("math_shepherd", "openrlhf_prm") or name == "prm/stepwise.jsonl":
            made.append(batch.select(["problem", "steps", "step_labels"]).to_pylist()[:14])
    assert made[0] == made[1] == made[2]
    assert all(row["problem"] for row in made[0])


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> contract.Row:
    """Messages whose texts are all different, answered by turns."""
    count = [0]

    def grow(role: str, left: int) -> contract.Row:
        count[0] += 1
        text = f"t{count[0]}"
        number = draw(st.integers(0, 3)) if left else 0
        other = "assistant" if role == "prompter" else "prompter"
        replies = [grow(other, left - 1) for _ in range(number)]
        ranks = draw(st.permutations(range(number)))
        for reply, rank in zip(replies, ranks, strict=True):
            if other == "assistant":
                reply["rank"] = draw(st.sampled_from([rank, rank, None]))
        return {"role": role, "text": text, "replies": replies}

    return {"prompt": grow("prompter", depth)}


def answers_of(found: contract.Row) -> list[str]:
    """The texts of all answers of a tree."""
    own = [found["text"]] if found["role"] == "assistant" else []
    return own + [text for reply in found["replies"] for text in answers_of(reply)]


@settings(max_examples=40)
@given(trees())
def test_every_answer_of_a_tree_is_trained_once_or_counted(tree: contract.Row) -> None:
    """All paths together train each answer exactly once."""
    found = formats.choose("message_paths/all", kind_of("sft")).read(tree, contract.FormatOptions())
    made = [one for one in found if isinstance(one, contract.Conversation)]
    ready = [loss_mask.conversation(one, "assistant") for one in made]
    trained = [m.content for one in ready for m in one.messages if m.trained]
    assert sorted(map(str, trained)) == sorted(answers_of(tree["prompt"]))


@settings(max_examples=40)
@given(trees())
def test_every_answer_of_a_ranked_tree_is_in_a_pair_or_counted(tree: contract.Row) -> None:
    """Those in no pair are refused by name, and the better one has the lower rank."""
    if not tree["prompt"]["replies"]:
        return
    found = formats.choose("message_tree/all", kind_of("rm")).read(tree, contract.FormatOptions())
    pairs = [one for one in found if isinstance(one, contract.Pair)]
    used = {m.content for p in pairs for m in (*p.prompt, *p.chosen, *p.rejected)}
    lost = [text for text in answers_of(tree["prompt"]) if text not in used]
    refused = " ".join(one.detail for one in found if isinstance(one, contract.Refused))
    single = [text for text in lost if f"'{text}'" not in refused]
    assert not single


NEEDED = {
    "name": "toy",
    "kinds": ("conversation",),
    "columns": {"text": ("text",)},
    "matches": lambda self, row: None,
    "read": lambda self, row, options: [],
}
MISSPELT = {"promts": "prompts", "fan_out": "fans_out", "setle": "settle", "useable": "usable"}


def test_an_attribute_that_nothing_reads_is_refused_with_the_nearest_name() -> None:
    """In the class, announced only, in a class that is mixed in, and in an instance."""
    toy = type("Toy", (Format,), NEEDED)()
    for name, meant in MISSPELT.items():
        with pytest.raises(TypeError, match=f"Toy gives '{name}'.* Did you mean {meant}\\?"):
            type("Toy", (Format,), {**NEEDED, name: True})
        with pytest.raises(TypeError, match=meant):
            type("Toy", (Format,), {**NEEDED, "__annotations__": {name: "bool"}})
        with pytest.raises(TypeError, match=meant):
            type("Toy", (type("Mixin", (), {name: True}), Format), NEEDED)
        raised(TypeError, setattr, toy, name, True, says=meant)
    known = r"'qqq', which nothing reads\. Known: columns, doubt, fans_out, "
    raised(TypeError, type, "Toy", (Format,), {**NEEDED, "qqq": 1}, says=known)


def test_a_format_that_lacks_what_every_format_has_is_refused() -> None:
    """Where it is written, not where its first row is read."""
    for name in NEEDED:
        rest = {key: value for key, value in NEEDED.items() if key != name}
        raised(TypeError, type, "Toy", (Format,), rest, says=f"Toy does not give {name}")


def test_what_is_no_format_is_refused_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package's object under a format's name, with the fix."""
    for toy, message in (
        (Path(), "Format toy is a PosixPath, not an instance of a subclass of Format"),
        (type("Toy", (Format,), {**NEEDED, "name": "other"})(), "its name is other"),
    ):
        monkeypatch.setattr(catalog, "load", lambda *_, toy=toy: toy)
        raised(errors.UsageError, formats.load, "toy", says=message)


def test_a_list_of_turns_without_a_name_says_what_it_must_be() -> None:
    """Other lists have no such remedy."""
    refused = raised(errors.RowError, parse, json.dumps(turns(Q, A)).encode())
    assert refused.detail.endswith('{"messages": [...]}')
    refused = raised(errors.RowError, parse, b"[1]")
    assert "messages" not in refused.detail
