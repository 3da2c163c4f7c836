"""Programming tasks with functions in Python as their answers."""

import random

from benchmarks.rows.english import STEMS
from benchmarks.rows.exercise import Exercise, pick

_NOUNS = (
    "record order invoice user session token price sample packet frame node edge event "
    "message account balance window buffer chunk vector matrix column entry header payload request "
    "response signal ticket vehicle sensor reading batch cursor index label metric profile queue "
    "region report route score segment shard status stream symbol task thread timer tuple "
    "version weight"
).split()
_ADJECTIVES = (
    "active pending expired valid invalid sorted unique recent stale large small heavy empty open "
    "closed remote local cached dirty frozen hidden public private nested flat merged partial raw"
).split()
_VERBS = (
    "filter collect count merge group rank scale clip normalize compare split index trim".split()
)
_NOUNS += STEMS
_FIELDS = [f"{a}_{b}" for a in _NOUNS for b in ("id", "size", "rate", "count", "time", "name")]
_TYPES = ("int", "float", "str")
_CHECKS = ("> {n}", "< {n}", ">= {n}", "!= {n}", "% {n} == 0")
_EXTRAS = (
    "It must not change its argument.",
    "Use only the standard library.",
    "The input may be empty.",
    "Keep the original order of the items.",
    "Explain the running time in one sentence.",
)


def _body(
    draw: random.Random, name: str, items: str, item: str, field: str
) -> tuple[list[str], int]:
    """Lines of a function, and the number that its condition compares with."""
    limit, factor = draw.randrange(2, 5000), draw.randrange(2, 99)
    check = draw.choice(_CHECKS).format(n=limit)
    other = pick(draw, _FIELDS)
    lines = [
        f"def {name}({items}: list[dict[str, {draw.choice(_TYPES)}]]) -> list[dict]:",
        f'    """{name.replace("_", " ").capitalize()} by {field}."""',
        "    found = []",
        f"    for {item} in {items}:",
        f'        value = {item}.get("{field}", 0)',
        f"        if value {check}:",
    ]
    if draw.random() < 0.5:
        lines.append(f'            {item} = {{**{item}, "{other}": value * {factor}}}')
    lines.append(f"            found.append({item})")
    if draw.random() < 0.5:
        lines.append(f'    found.sort(key=lambda {item}: ({item}["{field}"], -len({item})))')
    return [*lines, "    return found"], limit


def exercise(draw: random.Random) -> Exercise:
    """A task whose answer is a function in a Markdown block."""
    noun, quality, field = pick(draw, _NOUNS), pick(draw, _ADJECTIVES), pick(draw, _FIELDS)
    items, name = f"{noun}s", f"{draw.choice(_VERBS)}_{quality}_{noun}s"
    lines, limit = _body(draw, name, items, noun, field)
    question = (
        f"Write a Python function `{name}` that takes a list of {noun} dictionaries and returns "
        f"the {quality} ones, judged by `{field}` and the limit {limit}. {draw.choice(_EXTRAS)}"
    )
    block = "\n".join(["```python", *lines, "```"])
    steps = (
        f"A {noun} without `{field}` counts as 0, so `dict.get` with a default is enough.",
        block,
        f"It looks at every {noun} once, so it takes linear time besides the sort.",
    )
    off = f"It looks at every {noun} twice, so it takes {draw.choice(('no', 'cubic'))} time"
    off += draw.choice((".", " whatever the limit is and whatever the dictionaries hold."))
    return Exercise(question, steps, f"`{name}({items})`", off)
