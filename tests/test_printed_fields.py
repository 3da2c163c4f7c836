"""Which fields of a turn a template prints: read off its tree, and checked against renderings."""

from __future__ import annotations

import itertools

import pytest

from stages.chat_template.printed_fields import EVERY, printed_fields
from stages.chat_template.template import Template
from stages.errors import ModelError
from stages.tokenizers.profiles import all_profiles, template

BASE = {"content", "role"}
CALLS = BASE | {"tool_calls"}
SHIPPED = {
    "chatml": BASE,
    "deepseek_r1_distill": BASE | {"reasoning_content"},
    "gemma2": BASE,
    "gemma3": BASE,
    "llama3": BASE,
    "llama3_1": CALLS,
    "llama3_2": CALLS,
    "mistral_v1": CALLS,  # it asks for calls, and refuses them
    "mistral_v3": CALLS | {"tool_call_id"},
    "mistral_v3_tekken": CALLS | {"tool_call_id"},
    "pair": BASE,
    "phi3": BASE,
    "phi3_5": BASE,
    "phi4": BASE,
    "qwen2": BASE,
    "qwen2_5": CALLS,
    "qwen2_5_math": CALLS,
    "qwen3": CALLS | {"reasoning_content"},
    "qwen3_2507": CALLS,
    "smollm2": BASE,
}


FIELDS = {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking", "weight", "id"}


def test_what_each_shipped_template_prints_of_a_turn() -> None:
    """All that profiles use. The law that the list is for: whatever is not on it changes no
    rendering."""
    known = {template(name) for name in SHIPPED}
    assert {profile.chat_template for profile in all_profiles().values()} <= known
    roles = ("user", "assistant", "user", "assistant")
    turns = [{"role": r, "content": c} for r, c in zip(roles, "abcd", strict=True)]
    for name, fields in SHIPPED.items():
        assert printed_fields(template(name)) == fields, name
        made = Template(template(name), "2024-07-26", bos_token="<s>", eos_token="</s>")
        plain = made.render(turns)
        for field, at in itertools.product(FIELDS - fields, range(len(turns))):
            told = [{**turn, field: "zzz"} if i == at else turn for i, turn in enumerate(turns)]
            assert made.render(told) == plain, (name, field)


def loop(body: str) -> str:
    """A template that prints each turn's content, and more."""
    return f"{{% for m in messages %}}{{{{ m.content }}}}{body}{{% endfor %}}"


TEMPLATES = {
    "{{ messages[-1]['name'] }}": {"name"},
    "{{ (messages | last).name }}": {"name"},
    "{{ messages | map(attribute='name') | join(',') }}": {"name"},
    "{{ messages | tojson }}": {EVERY},
    "{% for m in messages %}{{ m }}{% endfor %}": {EVERY},
    "{% for m in messages %}{{ 'x' ~ m }}{% endfor %}": {EVERY},
    "{% for m in messages %}{% for k, v in m.items() %}{{ v }}{% endfor %}{% endfor %}": {EVERY},
    "{% for m in messages %}{{ m[key] }}{% endfor %}": {EVERY},
    "{% for k in ['a', 'b'] %}{{ messages[0][k] }}{% endfor %}": {"a", "b"},
    "{% set k = 'name' %}{{ messages[0][k] }}": {"name"},
    loop("{{ m.get('name', '') }}"): {"content", "name"},
    loop("{% if m.name is defined %}!{% endif %}"): {"content", "name"},
    loop("{% if m.name %}{{ raise_exception('no') }}{% endif %}"): {"content"},
    loop("{% if 0 %}{% elif m.name %}{{ raise_exception('no') }}{% endif %}"): {"content"},
    loop("{% if m.a %}{{ raise_exception('no') }}{% elif m.b %}!{% endif %}"): {"content", "b"},
    loop("{{ loop.previtem.name }}"): {"content", "name"},
    loop("{% if 'name' in m %}{{ m['name'] }}{% endif %}"): {"content", "name"},
    loop("{% for part in m.content %}{{ part.text }}{% endfor %}"): {"content"},
    loop("{% for call in m.tool_calls %}{{ call.function.name }}{% endfor %}"): {
        "content",
        "tool_calls",
    },
    "{% macro f(x) %}{{ x.name }}{% endmacro %}{% for m in messages[1:] %}{{ f(m) }}{% endfor %}": {
        "name"
    },
    "{% macro f(x) %}{{ x.name }}{% endmacro %}{{ f(x=messages[0]) }}": {"name"},
    "{% set ns = namespace(m=none) %}{% for m in messages %}{% set ns.m = m %}{% endfor %}"
    "{{ ns.m.name }}": {"name"},
    "{% set all = messages[1:] if messages[0].role == 'system' else messages %}"
    "{% for m in all %}{{ m.name }}{% endfor %}": {"role", "name"},
    "{% set a, b = messages[0], messages[1] %}{{ b.name }}": {"name"},
    "{{ tools[0].name }}{{ bos_token }}": set(),
    "{{ messages | length }}": set(),
}


def test_turns_are_followed_through_the_names_of_a_template() -> None:
    """Loops, slices, macros, namespaces, filters, and fields by names that are worked out; a broken
    template is refused, as it is where it would be rendered."""
    for source, fields in TEMPLATES.items():
        assert printed_fields(source) == fields, source
    with pytest.raises(ModelError):
        printed_fields("{% for m in messages %}")
