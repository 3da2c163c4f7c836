"""Which fields of a turn a template prints: read off its tree, and checked against renderings."""

import itertools

import pytest
from support import table

from stages.chat_template.printed_fields import printed_fields
from stages.chat_template.template import Template
from stages.errors import ModelError
from stages.tokenizers.profiles import all_profiles, template

KNOWN = table("printed_fields.toml")


FIELDS = {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking", "weight", "id"}


def test_what_each_shipped_template_prints_of_a_turn() -> None:
    """All that profiles use. The law that the list is for: whatever is not on it changes no
    rendering."""
    shipped = {name: set(fields) for name, fields in KNOWN["shipped"].items()}
    known = {template(name) for name in shipped}
    assert {profile.chat_template for profile in all_profiles().values()} <= known
    roles = ("user", "assistant", "user", "assistant")
    turns = [{"role": r, "content": c} for r, c in zip(roles, "abcd", strict=True)]
    for name, fields in shipped.items():
        assert printed_fields(template(name)) == fields, name
        made = Template(template(name), "2024-07-26", bos_token="<s>", eos_token="</s>")
        plain = made.render(turns)
        for field, at in itertools.product(FIELDS - fields, range(len(turns))):
            told = [{**turn, field: "zzz"} if i == at else turn for i, turn in enumerate(turns)]
            assert made.render(told) == plain, (name, field)


def test_turns_are_followed_through_the_names_of_a_template() -> None:
    """Loops, slices, macros, namespaces, filters, and fields by names that are worked out; a broken
    template is refused, as it is where it would be rendered."""
    for source, fields in KNOWN["written"].items():
        assert printed_fields(source) == set(fields), source
    with pytest.raises(ModelError):
        printed_fields("{% for m in messages %}")
