"""Which fields of a turn a chat template can print, from the template's own syntax tree."""

from __future__ import annotations

import functools

import jinja2
from jinja2 import nodes


@functools.lru_cache(16)
def printed_fields(template: str) -> frozenset[str]:
    """Every name that a template asks any object for: ``message.name``, ``message['name']``.

    A template that never asks for a name cannot print it. One that does may still print it for
    some roles only.
    """
    tree = jinja2.Environment().parse(template)
    asked = {node.attr for node in tree.find_all(nodes.Getattr)}
    for node in tree.find_all(nodes.Getitem):
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            asked.add(node.arg.value)
    for call in tree.find_all(nodes.Call):  # message.get('name')
        if isinstance(call.node, nodes.Getattr) and call.node.attr == "get" and call.args:
            first = call.args[0]
            if isinstance(first, nodes.Const) and isinstance(first.value, str):
                asked.add(first.value)
    return frozenset(asked)
