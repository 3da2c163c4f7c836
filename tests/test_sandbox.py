"""The sandbox: a hostile chat template reaches nothing and ends soon, by counting."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import SAMPLES, Ran

from stages.chat_template.template import Template
from stages.errors import ModelError, RowError
from stages.tokenizers.profiles import all_profiles

DATE = "2024-07-26"
PLENTY = 3.0  # seconds of this process, on a busy machine; alone it is a tenth of that

REACHING = {
    "class": "{{ ''.__class__ }}",
    "mro": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "subscript": "{{ ''['__class__'] }}",
    "attr": "{{ ''|attr('__class__') }}",
    "mapattr": "{{ ['']|map(attribute='__class__')|list }}",
    "globals": "{{ cycler.__init__.__globals__.os.popen('touch executed').read() }}",
    "fmt": "{{ '{0.__class__}'.format('') }}",
    "fmtmap": "{{ '{a.__class__}'.format_map({'a':1}) }}",
    "self": "{{ self.__init__.__globals__ }}",
    "namespace": "{{ namespace.__init__.__globals__ }}",
    "raise": "{{ raise_exception.__globals__ }}",
    "strf": "{{ strftime_now.__self__ }}",
    "mutate": "{% set x = [] %}{{ x.append(1) }}",
    "method": "{{ messages[0].content.upper }}",
    "escaped_method": "{{ (messages[0].content|e).upper }}",
}
LOOPING = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "filtered": "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}"
    "{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "recursive": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "recmacro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "callblock": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + 40 * "{% call f() %}"
    + "x"
    + 40 * "{% endcall %}",
    "floordiv": "{% for i in range(99999) %}{% for j in range(99999) %}{% set a = 7 // 3 %}"
    "{% endfor %}{% endfor %}",
    "unary": "{% for i in range(99999) %}{% for j in range(99999) %}{% set a = -i %}"
    "{% endfor %}{% endfor %}",
    "tests": "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{{ i is divisibleby(3) }}{% endfor %}{% endfor %}",
    "cond": "{% set x = ('a'*1000000) %}{% for i in x %}{% for j in x %}"
    "{{ i if j == i }}{% endfor %}{% endfor %}",
}
GROWING = {
    "bigrange": "{{ range(10**12)|list }}",
    "strmul": "{{ 'a' * 10**12 }}",
    "strmul2": "{{ 'a' * 1000000000000 }}",
    "listmul": "{% set x = [0] * 1000000000 %}",
    "pow2": "{{ 2**1000*2**1000 }}{% set ns=namespace(x=2) %}{% for i in range(60) %}"
    "{% set ns.x = ns.x*ns.x %}{% endfor %}",
    "double": "{% set ns=namespace(x='aaaa') %}{% for i in range(99) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "double_sum": "{% set ns=namespace(x='aaaa') %}{% for i in range(99) %}"
    "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "setblock": "{% set a %}aaaaaaaaaa{% endset %}"
    + 30 * ("{% set a %}" + 10 * "{{ a }}" + "{% endset %}"),
    "dag": "{% set ns=namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "dagdict": "{% set ns=namespace(x=1) %}{% for i in range(60) %}"
    "{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x|tojson }}",
    "center": "{{ 'a'|center(1000000000) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "indent": "{{ 'a\n\n'|indent(1000000000) }}",
    "tabs": "{{ '\t'.expandtabs(1000000000) }}",
    "format": "{{ '%01000000000d'|format(1) }}",
    "format2": "{{ '{:1000000000}'.format(1) }}",
    "format3": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "mod": "{{ '%1000000000d' % 1 }}",
    "modstar": "{{ '%*d' % (1000000000, 1) }}",
    "replace": "{% set ns=namespace(x='aaaa') %}{% for i in range(20) %}"
    "{% set ns.x = ns.x.replace('a','aaaaaaaaaa') %}{% endfor %}",
    "replacef": "{% set ns=namespace(x='aaaa') %}{% for i in range(20) %}"
    "{% set ns.x = ns.x|replace('a','aaaaaaaaaa') %}{% endfor %}",
    "join": "{% set s='a'*1000000 %}{{ range(99999)|join(s) }}",
    "joinm": "{% set s='a'*1000000 %}{{ s.join(['a']*99999) }}",
    "batch": "{{ [1]|batch(1000000000, 'x')|list }}",
    "slice": "{{ [1]|slice(1000000000)|list }}",
    "tojson": "{{ [[1]]|tojson(indent=1000000000) }}",
    "output": "{% set s='a'*10000000 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
    "split": "{% set s='a '*5000000 %}{% for i in range(99999) %}{% set t = s.split() %}"
    "{% endfor %}",
    "strftime": "{{ strftime_now('%1000000000Y') }}",
    "mapjoin": "{{ range(99999)|map('center', 999)|join|length }}",
}
SLOW = {
    "cmp": "{% set s='a'*10000000 %}{% set t='a'*10000000 %}{% for i in range(99999) %}"
    "{% for j in range(99999) %}{% if s == t %}{% endif %}{% endfor %}{% endfor %}",
    "in": "{% set s='a'*10000000 %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% if 'b' in s %}{% endif %}{% endfor %}{% endfor %}",
    "isin": "{% set s='a'*10000000 %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% if 'b' is in s %}{% endif %}{% endfor %}{% endfor %}",
    "slices": "{% set s='a'*10000000 %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% set t = s[1:] %}{% endfor %}{% endfor %}",
    "upper": "{% set s='a'*10000000 %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% set t = s.upper() %}{% endfor %}{% endfor %}",
    "genexp": "{"
    "{"
    " "
    "r"
    "a"
    "n"
    "g"
    "e"
    "("
    "9"
    "9"
    "9"
    "9"
    "9"
    ")|map('string')|join(',')|list|map('string')|join(',')|list|map('upper')|join }}",
}
SOURCE = {
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "from": "{% from 'os' import popen %}",
    "extends": "{% extends 'x' %}",
    "random": "{{ [1, 2] | random }}",
    "selfblock": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "autoescape": "{% autoescape true %}{{ 'a' }}{% endautoescape %}",
    "brackets": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "blocks": "{% if true %}" * 200 + "{% endif %}" * 200,
    "nested_loops": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "signs": "{{ " + "-" * 100_000 + "1 }}",
}


def refused(source: str) -> RowError:
    """What a template is refused with when it renders."""
    with pytest.raises(RowError) as caught:
        Template(source, DATE).render([{"role": "user", "content": "x"}])
    return caught.value


@pytest.mark.parametrize("source", REACHING.values(), ids=REACHING)
def test_nothing_is_reached(source: str) -> None:
    """Attributes of Python objects, in every spelling, end the rendering at once."""
    error = refused(source)
    assert error.code == "template_error"
    assert "refused" in error.detail


@pytest.mark.parametrize(
    "source",
    [*LOOPING.values(), *GROWING.values(), *SLOW.values()],
    ids=[*LOOPING, *GROWING, *SLOW],
)
def test_nothing_goes_on_for_ever(source: str) -> None:
    """Loops, recursion, growth and slow operations in loops end, in one way on every machine."""
    started = time.process_time()
    first = refused(source)
    assert time.process_time() - started < PLENTY
    assert len(first.detail) < 500


@pytest.mark.parametrize("name", ["loops", "double", "recursive"])
def test_the_verdict_is_the_same_each_time(name: str) -> None:
    """The budget starts anew with every rendering, and a good row after a bad one renders."""
    bomb = {**LOOPING, **GROWING}[name]
    template = Template("{% if messages|length > 1 %}" + bomb + "{% endif %}fine", DATE)
    turn = {"role": "user", "content": "x"}
    details = set()
    for _ in range(2):
        assert template.render([turn]) == "fine"
        with pytest.raises(RowError) as caught:
            template.render([turn, turn])
        details.add(caught.value.detail)
    assert len(details) == 1


@pytest.mark.parametrize("source", SOURCE.values(), ids=SOURCE)
def test_what_cannot_be_compiled_is_a_fault_of_the_recipe(source: str) -> None:
    """Other files, randomness, and source that would exhaust the compiler."""
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


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ nothing | default(4096) }}", "4096"),
        ("{{ '%d tokens' % 5000 }}", "5000 tokens"),
        ("{{ '%5.2f' | format(2000) }}", "2000.00"),
        ("{{ '{} of {:>4}'.format(5000, 70000) }}", "5000 of 70000"),
        ("{{ ('a' * 3000).find('b', 2000) }}", "-1"),
        ("{{ [1, 2000] | max + 1 }}", "2001"),
        ("{{ 2000 * 3000 }}", "6000000"),
        ("{% for i in range(5000) if i == 4999 %}{{ i }}{% endfor %}", "4999"),
    ],
)
def test_large_numbers_are_not_widths(source: str, text: str) -> None:
    """Numbers that pad nothing may be as large as they are."""
    assert Template(source, DATE).render([]) == text


@pytest.mark.parametrize("source", [REACHING["globals"], LOOPING["loops"], SOURCE["include"]])
def test_a_hostile_template_ends_the_command_with_one_error(
    source: str, pipeline: Callable[..., Ran], tmp_path: Path
) -> None:
    """Status 2, one error, no traceback, nothing executed."""
    (tmp_path / "evil.jinja").write_text(source)
    data = SAMPLES / "sft" / "word_problems.jsonl"
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", "--chat-template", "evil.jinja")
    assert ran.status == 2
    assert ran.err.count("Error:") == 1
    assert "Traceback" not in ran.err
    assert "refused" in ran.err
    assert {path.name for path in tmp_path.iterdir()} == {"evil.jinja"}


@pytest.mark.slow
def test_no_work_with_any_value_goes_on_for_ever() -> None:
    """Methods, filters, tests, globals and operators with each type of value, every other in loops.

    Some are drawn from 80,000 templates; ``python tests/sandbox_sweep.py 1 0`` tries them all.
    """
    command = [sys.executable, str(Path(__file__).parent / "sandbox_sweep.py"), "1", "300"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    *broken, last = tried.stdout.splitlines()
    assert not broken
    assert json.loads(last)["tried"] == 300
