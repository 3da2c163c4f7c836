"""What is chosen once more by loops is what the build chooses by columns."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_tokenizers import template_folder
from support import write_rows
from test_recounted import judged as judged

from pipeline import run_build
from pipeline.builder import chosen_again, judge, second_choice, side_files
from pipeline.builder.evidence import Evidence
from pipeline.options.build_options import Budget, require_mixture
from pipeline.options.recipe import builds_of
from pipeline.shards import budgets
from stages.errors import DataError, UsageError
from stages.tokenizers.profiles import all_profiles
from stages.tokens import packed

Rows = dict[str, list[list[str]]]
ROOM = 40


@given(st.lists(st.integers(1, ROOM), max_size=120))
def test_packs_are_those_of_the_layout(lengths: list[int]) -> None:
    found = second_choice.packs(lengths, ROOM)
    pack_of = packed.plan(np.array(lengths, np.int64), ROOM)
    wanted = [np.flatnonzero(pack_of == n).tolist() for n in range(len(found))]
    assert sorted(map(sorted, found)) == wanted


_OF_SOURCE = st.sampled_from([{}, {"share": 0.2}, {"share": 0.3}, {"weight": 1}, {"weight": 2.5}])


@given(
    st.lists(st.tuples(_OF_SOURCE, st.integers(0, 5000)), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 9000)),
)
def test_shares_and_weights_come_to_the_same(
    of: list[tuple[dict[str, float], int]], total: int | None
) -> None:
    asked, rooms = [one for one, _ in of], [room for _, room in of]
    own = [Budget(**one) for one in asked]
    try:
        require_mixture({str(n): one for n, one in enumerate(own)}, total)
    except UsageError:
        return
    pools: Any = [type("Pool", (), {"given": lambda self, room, unit: room})() for _ in rooms]
    limits: Any = rooms
    wanted = budgets._mixture(pools, own, limits, total)
    found = second_choice.wanted_of(asked, rooms, total)
    assert found.keys() == wanted.keys()
    assert all(abs(found[n] - wanted[n]) <= 1 for n in wanted)


def _problems(evidence: Evidence, rows: Rows) -> list[str]:
    other = replace(evidence)
    vars(other).update(rows=rows)
    return [*second_choice.problems(other)]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [*rows[:-2], rows[-1], rows[-2]],
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[0]],
        lambda rows: [["b.jsonl:999"], *rows[1:]],
        lambda rows: [[*rows[0], *rows[1][:1]], rows[1][1:], *rows[2:]],
    ],
)
def test_another_choice_is_named(
    change: Callable[[list[list[str]]], list[list[str]]], judged: dict[str, Evidence]
) -> None:
    """Another order, one that is missing, one that is there twice, another in its place, and a pack
    that ends behind another one."""
    for evidence in judged.values():
        assert _problems(evidence, evidence.rows) == []
        for name, own in evidence.rows.items():
            if len(own) > 1 and change(own) != own:
                assert _problems(evidence, {**evidence.rows, name: change(own)})


RECIPE = """
task = "sft"
model = "{model}"
output = "{here}/out"
cache-dir = "{here}/cache"
workers = 1
keep = 0
max-length = 64
max-reject = 1.0
{options}
[[source]]
name = "a"
data = ["{here}/a.jsonl"]
{a}
[[source]]
name = "b"
data = ["{here}/b.jsonl"]
{b}
"""
_BUDGETS = ["", "rows = 7", "tokens = 300", "epochs = 2.5", "epochs = 0.4", "weight = 2"]
_OPTIONS = (
    ["", "dedup = true", 'dedup = true\ndedup-keep = "highest:n"'],
    ["", "test-size = 0.4", 'test-size = 0.4\ngroup-by = "topic+question"'],
    ["", "shuffle = true", "shuffle = true\nseed = -3"],
    ["", 'layout = "ragged"', 'pack-within = "part"', "index-only = true"],
    ["", 'filter = "n != 3"'],
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chosen") / "model"
    template_folder(folder, all_profiles()["qwen2-1.5b"].chat_template)
    return folder


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(*map(st.sampled_from, _OPTIONS)), *[st.sampled_from(_BUDGETS)] * 2)
def test_what_options_choose_is_chosen_again(
    model: Path, tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...], a: str, b: str
) -> None:
    """Whatever goes together: the build passes, and nothing of it was left unseen."""
    here = tmp_path_factory.mktemp("chosen")
    for name in "ab":
        rows = [
            {"prompt": f"q{n % 17} {'w ' * (n % 7)}", "completion": f"{n % 19}", "n": n % 5}
            for n in range(40)
        ]
        rows = [{**row, "topic": f"{name}{n % 9}"} for n, row in enumerate(rows)]
        write_rows(here / f"{name}.jsonl", rows)
    text = RECIPE.format(here=here, model=model, options="\n".join(options), a=a, b=b)
    (here / "recipe.toml").write_text(text, "utf-8")
    heard: list[Evidence] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "_has_own_process", lambda config: False)
        patch.setattr(side_files, "require", heard.append)
        try:
            (config,) = builds_of(here / "recipe.toml")
            run_build.build(config, lambda *_: None)
        except (UsageError, DataError):  # they do not go together, or leave nothing
            return
    (evidence,) = heard
    evidence = replace(evidence, build=replace(evidence.build, folder=here / "out"))
    assert evidence.rows
    assert evidence.parts
    assert [*second_choice.problems(evidence)] == []
    assert [*chosen_again.problems(evidence)] == []


def test_a_group_of_other_questions_and_what_is_alike_are_named(
    judged: dict[str, Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two questions in a group, one in two groups, and equal signatures, but not of no words."""
    evidence = judged["packed"]
    first, second, *_ = evidence.questions
    made = [*second_choice._made(evidence)]
    groups = sorted((one.group, one.name) for one in made)
    equal = next([a[1], b[1]] for a, b in pairwise(groups) if a[0] == b[0])
    for said in ({second: evidence.questions[first]}, dict(zip(equal, "xy", strict=True))):
        other = replace(evidence, questions={**evidence.questions, **said})
        assert any("groups" in one for one in second_choice.problems(other))
    for sign, named in ((b"a", True), (b"\xff", False)):
        alike = [one._replace(signature=sign) for one in made]
        monkeypatch.setattr(second_choice, "_made", lambda evidence, alike=alike: alike)
        assert any("unlike" in one for one in second_choice.problems(evidence)) == named
