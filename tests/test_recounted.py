"""Every figure and every word of a manifest is counted again, or is said to be stated only.

``tests/tables/stated.jsonl`` is exact: a row for each key of which a change is found out by nothing
beside the shards, with the reason. Places in lists, and keys that are names, are ``*`` there. What
is chosen once more by loops is what the build chooses by columns.
"""

import functools
import itertools
import operator
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import template_folder
from support import SAMPLES, read_manifest, read_rows, silent, table, write_rows

from pipeline import exports, run_build
from pipeline.builder import chosen_again, judge, launch_gate, origin, second_choice, side_files
from pipeline.builder.evidence import Evidence
from pipeline.builds.build import Build
from pipeline.builds.build import read_manifest as parsed
from pipeline.exports import ExportFacts
from pipeline.manifest.manifest import UnreadColumn
from pipeline.options.recipe import builds_of
from pipeline.serving import serving
from pipeline.shards import answers
from stages import catalog
from stages.errors import DataError, ModelError, OwnLawError, UsageError
from stages.tokenizers import profiles
from stages.tokenizers.profiles import all_profiles
from stages.tokens import inference, packed

Place: TypeAlias = tuple[str | int, ...]
TOLD = table("recounted.toml")
SENTENCES = ("note", "serve", "why", "_type", "length")
# Keys that are names are those below these.
NAMED = {"probes", "trainers", "rendered", "encoded", "audits", "splits", "files"}


def _rows(task: str, name: str) -> list[dict[str, Any]]:
    """Rows of every fate, where a task has them: stored, equal, refused, too long, left out."""
    if task == "rm":
        rows = read_rows(SAMPLES / "rm" / "pairs_margin.jsonl") * 2
        return [{**row, "skip": i % 3} for i, row in enumerate(rows)]
    if task == "prm":
        return read_rows(SAMPLES / "prm" / "stepwise_soft.jsonl") * 2
    said = [[f"{role} {n + more} {name} é" for more in (0, 1) for role in "qa"] for n in range(24)]
    said[5], said[7] = said[4], ["only asked é"]
    said[9] = [f"{text} {'word ' * 3}" for text in said[9]]
    roles = ("user", "assistant") * 2
    talks = [[{"role": r, "content": t} for r, t in zip(roles, own, strict=False)] for own in said]
    return [{"messages": talk, "meta": n} for n, talk in enumerate(talks)]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The folder of a small model."""
    folder = tmp_path_factory.mktemp("of") / "model"
    template_folder(folder, all_profiles()["qwen2-1.5b"].chat_template)
    return folder


def _judged(
    here: Path, model: Path, task: str, options: str, rows: list[Any], asked: Sequence[str]
) -> Evidence:
    """What the side files of a build of several sources were judged by."""
    text = TOLD["recipe"].format(task=task, model=model, here=here, options=options)
    for name, own, budget in zip("ab", rows, asked, strict=False):
        write_rows(here / f"{name}.jsonl", own)
        text += TOLD["source"].format(here=here, name=name, budget=budget)
    (here / "recipe.toml").write_text(text, "utf-8")
    (config,) = builds_of(here / "recipe.toml")
    heard: list[Evidence] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "_has_own_process", lambda config: False)
        patch.setattr(side_files, "require", heard.append)
        run_build.build(config, silent)
    return replace(heard[-1], build=Build.open(here / "out"))


@pytest.fixture(scope="module")
def judged(tmp_path_factory, model) -> dict[str, Evidence]:
    """The same of each build."""
    found = {}
    for build, of in TOLD["build"].items():
        here, rows = tmp_path_factory.mktemp(build), [_rows(of["task"], name) for name in "ab"]
        found[build] = _judged(here, model, of["task"], of["options"], rows, of["budgets"])
    return found


def _leaves(value: Any, at: Place = ()) -> Iterator[Place]:
    """The places of all numbers, texts and truths."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, (*at, name))
    elif value is not None:
        yield at


def _starred(at: Place) -> str:
    above = ("", *at)
    names = [isinstance(n, int) or above[i] in NAMED for i, n in enumerate(at)]
    return ".".join("*" if one else str(n) for n, one in zip(at, names, strict=True))


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return f"{value}x" if isinstance(value, str) else value + 1


def _at(told: Any, at: Place, change: Callable[[Any], Any]) -> Any:
    """A copy of a value in which what is at a place has changed."""
    if not at:
        return change(told)
    inner = told.copy()
    inner[at[0]] = _at(told[at[0]], at[1:], change)
    return inner


def _is_found(evidence: Evidence, told: dict[str, Any]) -> bool:
    """Whether a manifest that says something else of a build is refused."""
    try:
        build = replace(evidence.build, manifest=parsed(orjson.dumps(told)))
        other = replace(evidence, build=build)
        vars(other).update(examples=evidence.examples, ids=evidence.ids)  # read once
        vars(other).update(rows=evidence.rows)
        side_files.require(other)
    except (OwnLawError, UsageError, KeyError):  # of a shard that is not there
        return True
    return False


@pytest.mark.parametrize("most", [1, pytest.param(1000, marks=pytest.mark.slow)])
def test_what_a_manifest_says_is_counted_again_or_said_to_be_stated(judged, most):
    """Each leaf of each build is changed alone; the first of those that stand in one list."""
    stated = {one["key"]: one["why"] for one in table("stated.jsonl")}
    assert all(stated.values())
    passed = set()
    for evidence in judged.values():
        told = read_manifest(evidence.build.here)
        assert not _is_found(evidence, told)
        alike: dict[str, list[Place]] = {}
        for at in _leaves(told):
            alike.setdefault(_starred(at), []).append(at)
        leaves = [at for key in alike.keys() - passed for at in alike[key][:most]]
        passed |= {_starred(at) for at in leaves if not _is_found(evidence, _at(told, at, _other))}
    assert (passed - stated.keys(), stated.keys() - passed) == (set(), set())


def _problems(evidence: Evidence, folder: Path, name: str, text: bytes) -> list[tuple[str, str]]:
    """What is said of a build in which a file has other bytes."""
    here = folder / "changed"
    shutil.copytree(evidence.build.here, here, copy_function=os.link)
    (here / name).unlink()
    (here / name).write_bytes(text)
    other = replace(evidence, build=replace(evidence.build, folder=here))
    vars(other).update(examples=evidence.examples, ids=evidence.ids)
    found = side_files.problems(other)
    shutil.rmtree(here)
    return found


def test_what_servers_are_told_and_datasets_reads_is_derived_again(judged, tmp_path):
    """Stops, ids, switches and limits, of each engine, too, and the columns that are declared;
    notes and commands are sentences. What several builds say alike is changed in the first."""
    tried = set()
    for evidence in judged.values():
        for name, keys in (
            ("serving.json", None),
            ("tokenizer/tokenizer_config.json", None),
            ("train/dataset_info.json", {"features"}),
            ("train/state.json", {"_split", "_data_files"}),
        ):
            told = orjson.loads((evidence.build.here / name).read_bytes())
            for at in _leaves(told):
                said = (name, at, functools.reduce(operator.getitem, at, told))
                if (keys and at[0] not in keys) or said in tried:
                    continue
                tried.add(said)
                changed = orjson.dumps(_at(told, at, _other))
                named = {*SENTENCES}.isdisjoint(map(str, at))
                found = _problems(evidence, tmp_path, name, changed)
                assert bool(found) == named, (name, at, found)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("raw", lambda raw: raw.replace("asked", "askew")),
        ("raw", lambda raw: raw.replace("\\u00e9", "\\u00e8")),
        ("detail", lambda detail: ""),
        ("detail", lambda detail: "no_answer"),
        ("code", _other),
        ("line", _other),
        ("id", _other),
        ("source", _other),
    ],
)
def test_a_refused_row_that_is_not_that_of_its_input_is_named(key, change, judged, tmp_path):
    """Its text, its place, and its reason."""
    evidence = judged["packed"]
    first, *others = evidence.lines("rejects.jsonl")
    assert change(first[key]) != first[key]
    for lines in ([first, *others], [{**first, key: change(first[key])}, *others]):
        text = b"\n".join(map(orjson.dumps, lines))
        found = _problems(evidence, tmp_path, "rejects.jsonl", text)
        assert bool(found) == (lines[0] != first)


def test_ids_of_an_input_have_a_number_or_have_none(judged, tmp_path):
    evidence = judged["packed"]
    first, *others = evidence.lines("rejects.jsonl")
    text = b"\n".join(map(orjson.dumps, [{**first, "id": f"{first['id']}#0"}, *others]))
    found = _problems(evidence, tmp_path, "rejects.jsonl", text)
    assert [what for _, what in found if "number behind" in what]


@given(st.lists(st.text("aä€\n", min_size=1), min_size=1))
def test_a_row_of_an_array_begins_at_its_byte(tmp_path_factory, rows):
    file = tmp_path_factory.mktemp("array") / "a.json"
    texts = [orjson.dumps({"q": one}).decode() for one in rows]
    file.write_text("[" + ",\n".join(texts) + "]", "utf-8")
    offsets = [1 + sum(len(one.encode()) + 2 for one in texts[:n]) for n in range(len(texts))]
    entries = [
        ("a.json", at, n, one) for n, (at, one) in enumerate(zip(offsets, texts, strict=True))
    ]
    assert [*origin._displaced(file, entries)] == []
    moved = [(name, at + 1, n, one) for name, at, n, one in entries]
    assert len([*origin._displaced(file, moved)]) == len(rows)


@given(st.dictionaries(st.sampled_from(["thinking", "no_thinking", "other"]), st.integers(0, 2)))
def test_the_arguments_of_servers_are_those_of_the_only_prompt(judged, turns):
    known = tuple(
        inference.Prompt(name, {"think": on}, ())
        for name, on in (("thinking", True), ("no_thinking", False))
    )
    told = answers.described(answers.Answers(prompts=Counter(turns)), known)
    assert told is not None
    for arguments in ({"think": True}, {"think": False}, None):
        one = replace(told, arguments=arguments)
        said = serving._template(one)
        evidence = judged["packed"]
        build = replace(evidence.build, manifest=replace(evidence.manifest, inference=one))
        found = [*side_files._modes(replace(evidence, build=build), said)]
        assert bool(found) == (arguments != told.arguments), found


def test_what_a_build_has_of_its_model_is_the_models(judged, tmp_path):
    """Its tokens with their flags, the other parts of its tokenizer, its stops and its sizes."""
    evidence = judged["prm"]
    case = evidence.case or {}
    model = case["origin"]

    def found(tokenizer: dict[str, Any] | None = None, **changed: Any) -> list[Any]:
        other = replace(evidence, case={**case, "origin": {**model, **changed}})
        told = tokenizer or evidence.tokenizer
        ids = {one["content"]: one["id"] for one in told["added_tokens"]}
        vars(other).update(tokenizer=told, ids=evidence.ids | ids)
        return [*origin.problems(other)]

    assert found() == []
    told = evidence.tokenizer
    for at in _leaves(told["added_tokens"], ("added_tokens",)):
        if told["added_tokens"][at[1]]["content"] not in model["steps"]:
            assert found(_at(told, at, _other)), at
    for part in told.keys() - {"added_tokens"}:
        assert found({**told, part: "x"}), part
    shutil.copytree(model["folder"], tmp_path, dirs_exist_ok=True)
    spare = [one["id"] for one in told["added_tokens"] if one["content"] not in model["steps"]]
    for file, said in (
        ("generation_config.json", {"eos_token_id": spare}),
        ("config.json", {"vocab_size": 1 << 20}),
        ("tokenizer_config.json", {"bos_token": "x"}),
    ):
        before = (tmp_path / file).read_bytes() if (tmp_path / file).is_file() else b"{}"
        (tmp_path / file).write_bytes(orjson.dumps(said))
        assert found(folder=str(tmp_path)), file
        (tmp_path / file).write_bytes(before)
    known = all_profiles()["qwen2-1.5b"]
    names = (*origin.FACTS, "bos_token", "unk_token", "tokenizer_class", "context_length")
    declared = {name: getattr(known, name) for name in names} | {
        "generation_eos": ("x",),
        "chat_template": "",
    }
    told_of = {what.partition(" is ")[0] for _, what in found(declared=declared)}
    assert {"name", "embedding_size", "eos_token_id"} <= told_of


def test_a_declaration_that_is_not_what_it_was_is_named(tmp_path, monkeypatch):
    """Each file of the built-in models is known; where a change of one was meant, write its sha256
    into pipeline/builder/declared.toml."""
    folder = profiles.FOLDER
    files = {
        one.relative_to(folder) for end in ("toml", "jinja") for one in folder.rglob(f"*.{end}")
    }
    assert [*origin.changed()] == []
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(profiles, "FOLDER", tmp_path)
    for name in files:
        text = (tmp_path / name).read_text("utf-8")
        (tmp_path / name).write_text(f"{text} ", "utf-8")
        assert [file for file, _ in origin.changed()] == [f"profiles/{name.as_posix()}"]
        (tmp_path / name).write_text(text, "utf-8")


def test_the_option_of_a_source_is_what_was_said_of_it_last(judged):
    """By a later table or by an answer; each option of a source is another one where another table
    says it."""
    evidence = judged["packed"]
    assert evidence.said is not None
    assert [*chosen_again.problems(evidence)] == []
    said = evidence.said
    other = {"system": "x", "train_on": "all", "map": {"x": "y"}, "where": ("a=1",)}
    other["salvage"] = True
    for name, value in other.items():
        key = name.replace("_", "-")
        for changed, of in (
            (replace(said, own=({**said.own[0], name: value}, *said.own[1:])), ["a"]),
            (replace(said, after={**said.after, name: value}), ["a", "b"]),
            (replace(said, common=({name: value}, *said.common)), ["a", "b"]),
        ):
            found = [*chosen_again.problems(replace(evidence, said=changed))]
            starts = [f"source {one}: {key} is" for one in of]
            assert [one.startswith(start) for one, start in zip(found, starts, strict=True)]


def test_files_of_a_model_that_contradict_each_other_are_no_bug_of_ours(make, tmp_path):
    """Its tokenizer is loaded by a class that has another normalizer than its file."""
    template_folder(tmp_path / "model", all_profiles()["qwen2-1.5b"].chat_template)
    for name, changed in (
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
        ("tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer"}),
    ):
        said = orjson.loads((tmp_path / "model" / name).read_bytes())
        (tmp_path / "model" / name).write_bytes(orjson.dumps(said | changed))
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "Who ARE you?", "completion": "ME"}] * 3)
    with pytest.raises(ModelError, match="normalizer"):
        make("sft", tmp_path / "rows.jsonl", model=str(tmp_path / "model"))


def _built_for() -> Iterator[tuple[str, ExportFacts]]:
    """Every trainer, with the facts of each build that it can train from."""
    both, rates = (("train",), ("train", "test")), (5, 1000)
    tokens: Any = SimpleNamespace(
        **{f"{name}_token": f"<{name}'é >" for name in ("pad", "eos", "step", "good", "bad")}
    )
    tokens.pair = None
    for name in catalog.own(exports.__name__):
        export = exports.load(name.replace("_", "-"))
        for task, layout, splits, rows, margin in itertools.product(
            ("sft", "rm", "prm"), exports.PREFERENCE, both, rates, ("", "margin")
        ):
            for recurrent in ("", *export.apart[:1]):
                facts = ExportFacts(task, layout, 1009, tokens, (margin,), splits, rows)
                absent = 3 if margin and rows == 5 else 0
                facts = replace(facts, without_margin=absent, recurrent=recurrent)
                if (task == "rm" or not margin) and export.reason(facts) is None:
                    yield export.name, facts


def test_which_builds_a_trainer_takes_is_said_twice():
    """Of every trainer, task and layout, with weights, soft and missing ratings, and encoders."""
    names = [name.replace("_", "-") for name in catalog.own(exports.__name__)]
    each = (True, False)
    for task, layout, weights, soft, unlabelled, pair, types in itertools.product(
        ("sft", "rm", "prm"), (*exports.PREFERENCE, "indexed"), each, each, each, each, each
    ):
        bound: Any = SimpleNamespace(pair=SimpleNamespace(token_types=types) if pair else None)
        columns = ("loss_weights",) if weights else ()
        facts = ExportFacts(task, layout, 1009, bound, columns)
        if task == "prm":
            facts = replace(facts, soft=soft, unlabelled=unlabelled)
        for name in names:
            takes = exports.load(name).reason(facts) is None
            assert launch_gate.trains(name, facts) == takes, (name, facts)


def test_whatever_a_launch_script_sets_follows_from_the_manifest():
    """Of every trainer, task, layout and split: it sets what ``launch.toml`` says for these facts;
    each of its values, when it is another one, is named."""
    seen = set()
    for name, facts in _built_for():
        export = exports.load(name)
        files = {f"{name}.sh": export.launch(facts), **export.files(facts)}
        for file, text in files.items():
            read, must = (
                launch_gate.READERS[Path(file).suffix],
                launch_gate.wanted(name, file, facts),
            )
            assert must is not None
            assert [*launch_gate.differences(read(text), must)] == [], (name, file, facts)
            for values in () if (name, file, facts.task) in seen else must.values():
                for value in values:
                    other = text.replace(value, f"{value}x" if value[-1:].isalnum() else "x")
                    if other != text and not value.startswith(("for ", "sed ", "ln ")):
                        with suppress(SyntaxError):
                            assert [*launch_gate.differences(read(other), must)], (name, value)
            seen.add((name, file, facts.task))
    assert {name for name, *_ in seen} == {
        one.replace("_", "-") for one in catalog.own(exports.__name__)
    }


def test_a_default_that_is_not_what_it_was_is_named(monkeypatch):
    """Where a change was meant, write the default into pipeline/builder/declared.toml."""
    known = origin.defaults()
    for name in known:
        monkeypatch.setattr(origin, "defaults", lambda name=name: {**known, name: '"other"'})
        ((file, what),) = origin.changed()
        assert file == "manifest.json"
        assert what.startswith(f'{name} is "other" by default')


ROOM = 40


@given(st.lists(st.integers(1, ROOM), max_size=120))
def test_packs_are_those_of_the_layout(lengths):
    found = second_choice.packs(lengths, ROOM)
    pack_of = packed.plan(np.array(lengths, np.int64), ROOM)
    wanted = [np.flatnonzero(pack_of == n).tolist() for n in range(len(found))]
    assert sorted(map(sorted, found)) == wanted


def _chosen(evidence: Evidence, rows: dict[str, list[list[str]]]) -> list[str]:
    """What is said of a build in which other examples are where they are."""
    other = replace(evidence)
    vars(other).update(rows=rows)
    return [*second_choice.problems(other)]


def test_another_choice_is_named(judged):
    """Another order, one that is missing, one that is there twice, another in its place, and a pack
    that ends behind another one."""
    changes: tuple[Callable[[Any], Any], ...] = (
        lambda rows: [*rows[:-2], rows[-1], rows[-2]],
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[0]],
        lambda rows: [["b.jsonl:999"], *rows[1:]],
        lambda rows: [[*rows[0], *rows[1][:1]], rows[1][1:], *rows[2:]],
    )
    for evidence in judged.values():
        assert _chosen(evidence, evidence.rows) == []
        for (name, own), change in itertools.product(evidence.rows.items(), changes):
            if len(own) > 1 and change(own) != own:
                assert _chosen(evidence, {**evidence.rows, name: change(own)}), change


def _numbered(name: str) -> list[dict[str, Any]]:
    """Rows of which some are equal, and some ask the same."""
    asked = [(f"q{n % 17} {'w ' * (n % 7)}", f"{n % 19}", n % 5, n % 9) for n in range(40)]
    return [{"prompt": q, "completion": a, "n": n, "topic": f"{name}{t}"} for q, a, n, t in asked]


@settings(max_examples=4)
@given(st.tuples(*map(st.sampled_from, TOLD["options"])), *[st.sampled_from(TOLD["budgets"])] * 2)
def test_what_options_choose_is_chosen_again(model, tmp_path_factory, options, a, b):
    """Whatever goes together: the build passes, and nothing of it was left unseen."""
    here, rows = tmp_path_factory.mktemp("chosen"), [_numbered(name) for name in "ab"]
    text = "\n".join(["max-length = 64", *options])
    try:
        evidence = _judged(here, model, "sft", text, rows, [a, b])
    except (UsageError, DataError):  # they do not go together, or leave nothing
        return
    assert evidence.rows
    assert evidence.parts
    assert [*second_choice.problems(evidence)] == []
    assert [*chosen_again.problems(evidence)] == []


def test_a_group_of_other_questions_and_what_is_alike_are_named(judged, monkeypatch):
    """Two questions in a group, one in two groups, and equal signatures, but not of no words."""
    evidence = judged["packed"]
    first, second, *_ = evidence.questions
    made = [*second_choice._made(evidence)]
    groups = sorted((one.group, one.name) for one in made)
    equal = next([a[1], b[1]] for a, b in itertools.pairwise(groups) if a[0] == b[0])
    for said in ({second: evidence.questions[first]}, dict(zip(equal, "xy", strict=True))):
        other = replace(evidence, questions={**evidence.questions, **said})
        assert any("groups" in one for one in second_choice.problems(other))
    for sign, named in ((b"a", True), (b"\xff", False)):
        alike = [one._replace(signature=sign) for one in made]
        monkeypatch.setattr(second_choice, "_made", lambda evidence, alike=alike: alike)
        assert any("unlike" in one for one in second_choice.problems(evidence)) == named


def test_facts_of_a_launch_script_are_those_that_are_counted(judged: dict[str, Evidence]) -> None:
    for evidence in judged.values():
        assert launch_gate.facts_of(evidence.build) == evidence.build.facts


def test_what_a_condition_reads_is_not_unread(judged: dict[str, Evidence]) -> None:
    evidence = judged["rm"]
    unread = (UnreadColumn("skip", 1, 0.1, 1),)
    inputs = tuple(replace(one, unread=unread) for one in evidence.manifest.inputs)
    build = replace(evidence.build, manifest=replace(evidence.manifest, inputs=inputs))
    assert [*chosen_again._of_read(evidence)] == []
    assert [*chosen_again._of_read(replace(evidence, build=build))]
