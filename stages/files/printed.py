"""Lists and objects as Python and numpy print them: what cells have that pandas wrote as CSV."""

import ast
import re
from contextlib import suppress
from typing import Any

import orjson

from stages.errors import RowError
from stages.files import line_block

# A text is taken apart from its strings: each is \ue000, its number and a semicolon meanwhile.
_STRING = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
_STANDS_FOR = re.compile("\ue000(\\d+);")
_ODD = re.compile(r"(?<!\\)(?:\\\\)*\\[^\\'\"nrtxuU]")  # an escape that nothing prints
# What such a text is without its strings; what none is: texts side by side, b'' and the like.
_PRINTED = re.compile("[\\[{][\\[\\]{}(),:;\\s\\w.+=\ue000-]*[\\]}]")
_JOINED = re.compile(r"[;\w]\ue000")
_ARRAYS = re.compile(r"array\(|,\s*shape=\([\d,\s]*\)|(?:,\s*dtype=[\w\ue000;]+)?\s*\)")
_BETWEEN = re.compile(r"(?<=[;\w\]}.])\s+(?=[\ue000\w\[{]|-[\d.])")  # no comma of numpy's


def value_of(text: str) -> Any:
    """The value of a text that Python or numpy printed, where JSON can say the same; else None.

    numpy prints no commas between values, and ``array([...], dtype=object)`` inside of others. A
    key that is given twice is refused as in JSON, and so is a list that was cut short (``...``).
    """
    text = text.strip()
    if text[:1] not in ("[", "{") or text[-1:] not in ("]", "}") or "\ue000" in text:
        return None
    strings: list[str] = []

    def taken(found: re.Match[str]) -> str:
        strings.append(found[0])
        return f"\ue000{len(strings) - 1};"

    bare = _STRING.sub(taken, text)
    if not _PRINTED.fullmatch(bare) or _JOINED.search(bare) or any(map(_ODD.search, strings)):
        return None
    if bare.count("(") != bare.count("array(") + bare.count("shape=("):
        return None
    bare = _BETWEEN.sub(",", _ARRAYS.sub("", bare))
    errors = (RowError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError)
    with suppress(*errors):
        whole = _STANDS_FOR.sub(lambda found: strings[int(found[1])], bare)
        tree = ast.parse(whole, mode="eval")
        objects = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        keys = [[ast.dump(key) for key in one.keys if key is not None] for one in objects]
        value = ast.literal_eval(tree)
        alike = line_block.parse(orjson.dumps({"value": value}))["value"] == value
        return value if alike and all(len({*one}) == len(one) for one in keys) else None
    return None
