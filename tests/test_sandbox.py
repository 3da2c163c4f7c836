"""The sandbox: a hostile chat template reaches nothing and ends soon, by counting."""

import json
import sys
import time
from pathlib import Path

import pytest
from support import SAMPLES, Run, few, started, table

from stages.chat_template.template import Template
from stages.errors import ModelError, RowError
from stages.tokenizers.profiles import all_profiles

DATE = "2024-07-26"
PLENTY = 3.0  # seconds of this process, on a busy machine; alone it is a tenth of that

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
    with pytest.raises(RowError) as caught:
        Template(source, DATE).render([{"role": "user", "content": "x"}])
    return caught.value


def test_nothing_is_reached() -> None:
    """Attributes of Python objects, in every spelling, end the rendering at once."""
    for name, source in REACHING.items():
        error = refused(source)
        assert error.code == "template_error", name
        assert "refused" in error.detail, name


@pytest.mark.parametrize("name", few(ENDLESS, 24))
def test_nothing_goes_on_for_ever(name: str) -> None:
    """Loops, recursion, growth and slow operations in loops end, in one way on every machine."""
    began = time.process_time()
    first = refused(ENDLESS[name])
    assert time.process_time() - began < PLENTY
    assert len(first.detail) < 500


def test_the_verdict_is_the_same_each_time() -> None:
    """The budget starts anew with every rendering, and a good row after a bad one renders."""
    turn = {"role": "user", "content": "x"}
    for name in ("loops", "double", "recursive"):
        bomb = ENDLESS[name]
        template = Template("{% if messages|length > 1 %}" + bomb + "{% endif %}fine", DATE)
        details = set()
        for _ in range(2):
            assert template.render([turn]) == "fine"
            with pytest.raises(RowError) as caught:
                template.render([turn, turn])
            details.add(caught.value.detail)
        assert len(details) == 1, name


def test_what_cannot_be_compiled_is_a_fault_of_the_recipe() -> None:
    """Other files, randomness, and source that would exhaust the compiler."""
    for source in SOURCE.values():
        with pytest.raises(ModelError, match="chat template") as caught:
            Template(source, DATE)
        assert caught.value.exit_code == 2


def test_ordinary_work_is_far_from_the_limits() -> None:
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


def test_what_is_within_the_limits_is_printed() -> None:
    """Numbers that pad nothing may be as large as they are; sums and macros work."""
    for text, source in TABLES["printed"].items():
        assert Template(source, DATE).render([]) == text


def test_a_hostile_template_ends_the_command_with_one_error(pipeline: Run, tmp_path: Path) -> None:
    """Status 2, one error, no traceback, nothing executed."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    for source in (REACHING["globals"], LOOPING["loops"], SOURCE["include"]):
        (tmp_path / "evil.jinja").write_text(source)
        ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", "--chat-template", "evil.jinja")
        ran.refused(2, "refused")
        assert ran.err.count("Error:") == 1
        assert "Traceback" not in ran.err
        assert {path.name for path in tmp_path.iterdir()} == {"evil.jinja"}


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_no_work_with_any_value_goes_on_for_ever(seed: int) -> None:
    """Methods, filters, tests, globals and operators with each type of value, every other in loops.

    Some are drawn from 80,000 templates; ``python tests/sandbox_sweep.py 1 0`` tries them all.
    """
    tried = started(sys.executable, Path(__file__).parent / "sandbox_sweep.py", seed, 120).ended()
    *broken, last = tried.out.splitlines()
    assert not broken
    assert json.loads(last)["tried"] == 120
