"""Lists and objects as Python and numpy print them: what cells have that pandas wrote as CSV."""

import ast
import io
import re
import token
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson

from stages.errors import RowError
from stages.files import line_block

# How such a text begins, and where numpy may have left out a comma, or says what an array is.
_BEGINS = re.compile(r"\s*[\[{]\s*[\[{(]*\s*(?:array\(|['\"\w.-])")
_BESIDE = re.compile(r"array\(|['\"\w\])}][ \n]+['\"\w\[({.-]")
_VALUES = (token.STRING, token.NUMBER, token.NAME)


def value_of(text: str) -> Any:
    """The value of a text that Python or numpy printed, where JSON can say the same; else None.

    numpy prints no commas between values, and ``array([...], dtype=object)`` inside of others. A
    key that is given twice is refused as in JSON, and so is a list that was cut short (``...``).
    """
    if not _BEGINS.match(text):
        return None
    errors = (RowError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError)
    with suppress(*errors, tokenize.TokenError):
        text = text.strip()
        tree = ast.parse(" ".join(_separated(text)) if _BESIDE.search(text) else text, mode="eval")
        objects = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        keys = [[ast.dump(key) for key in one.keys if key is not None] for one in objects]
        value = ast.literal_eval(tree)
        alike = line_block.parse(orjson.dumps({"value": value}))["value"] == value
        return value if alike and all(len({*one}) == len(one) for one in keys) else None
    return None


def _separated(text: str) -> Iterator[str]:
    """The tokens of what numpy printed, with commas between values, and arrays as lists."""
    read = tokenize.generate_tokens(io.StringIO(text).readline)
    tokens = [one for one in read if one.type in (*_VALUES, token.OP)]
    opened: list[str] = []  # the brackets that stand open, and "array"
    ends, end = False, (1, 0)  # whether a value may have ended, and where the last token did
    for one, then in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        said = one.string
        if said == "array" and then.string == "(":
            opened.append(said)
        elif opened[-1:] == ["array"] and said not in ("[", ")"):
            pass  # its parenthesis, or what its type is
        elif said == ")" and opened.pop() == "array":
            ends = True
        else:
            if said in ("(", "[", "{"):
                opened.append(said)
            elif said in ("]", "}"):
                opened.pop()
            below_zero = said == "-" and one.end == then.start and end != one.start
            if ends and (one.type in _VALUES or said in ("(", "[", "{") or below_zero):
                yield ","
            yield said
            ends = one.type in _VALUES or said in (")", "]", "}")
        end = one.end
