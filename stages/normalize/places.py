"""Options that have a format read a column that it leaves out, where it has a place for it."""

from collections.abc import Sequence

from stages import formats
from stages.contract import Row
from stages.format import Format
from stages.formats import _fields, _turns
from stages.normalize.role_names import answer_beside, how_good, maps, role_of
from stages.normalize.survey import Column
from stages.rows import column_names, judgements, shapes, signals
from stages.rows.column_names import EMPTY
from stages.rows.unread import mapped

_THOUGHT = ("problem", "message_thinking", "message_content")
_WITH_INPUT = ("instruction", "input", "message_thinking", "output")
_INPUT, _ASKING = ("instruction", "input"), ("question", "prompt", "instruction")
_OF_TEXTS = ("query_response", "prompt_completion")
_BEGUN = ("begun", "beginning")  # the classes of a text that the answers go on from


def options(path: str, column: Column, reading: str, rows: Sequence[Row]) -> list[str]:
    """Options that have a format read a column, where one has a place for it."""
    each = [one for value in column.values for one in (value if type(value) is list else ())]
    dicts = column_names.is_a(path, "context") and {*map(type, each)} == {dict}
    if dicts and (keys := signals.keys_of(f"{path}[]", each)):  # of passages, the texts
        longest = max(keys, key=lambda key: sum(len(v) for v in keys[key] if shapes.is_text(v)))
        path, column = longest, Column(values=keys[longest])
    path += "[options]" * (path in rows[0] and bool(each) and are_letters(reading, rows))
    return _options(path, column, reading, rows)


def _options(path: str, column: Column, reading: str, rows: Sequence[Row]) -> list[str]:
    row, text = rows[0], {*map(type, column.values)} == {str}
    record_format = formats.load(reading)
    name, read, found = record_format.name, record_format.columns, record_format.renamed
    if name == "text":  # no turns, before which anything could stand
        said = (path, "text") if role_of(path) == "question" else ("text", path)
        return [maps(("prompt", "completion"), said)] if text else []
    ahead = column_names.is_a(path, "system") or (_may_be_context(path, column) and "turns" in read)
    if ahead and "system text" in read and "[]" not in path:
        return [mapped("system", path)]
    if "tools" in read and "[]" not in path and all(map(signals.are_tools, column.values)):
        return [mapped("tools", path)]
    if column_names.is_a(path, "history") and "history" in read:
        return [mapped("history", path)]
    if path in (both := wholes(row, reading)):
        return [maps([*both.values()], [*both])]
    for told, meanings in (("corrected", ("answer",)), ("rewritten", (*_ASKING, "problem"))):
        if column_names.is_a(path, told) and text and "." not in path:
            able = [name for one in meanings for name in read.get(one, ())]
            own = {name: found.get(name, name) for name in able if name in (found or row)}
            some = any(one.get(path) in EMPTY for one in rows)  # others keep what they have
            ways = {name: f"{path},{one}[first]" if some else path for name, one in own.items()}
            return [mapped(*one) for one in ways.items()][:1]
    thought = column_names.is_a(path, "reasoning") and text and not signals.are_flags(column.values)
    if thought and "reasoning" in read and name != "message_thinking":
        return [f"{mapped(read['reasoning'][0], path)} --reasoning-in think"]
    if thought and _is_placed(path, name):
        each = [n for n in row if column_names.is_a(n, "reasoning") and answer_beside(n, row)]
        each = sorted(each, key=lambda n: -how_good(n, rows)) if path in each else [path]
        asked, answered = (_column_of(record_format, row, *some) for some in (_ASKING, ("answer",)))
        also = ",".join(n for n in _contexts(rows) if n not in (asked, path))
        names = _WITH_INPUT if also else _THOUGHT
        columns = (
            [asked, *filter(None, [also]), one, answer_beside(one, row) or answered] for one in each
        )
        # Every template has a place for a <think> block; not every one prints the field.
        return [f"{maps(names, some)} --reasoning-in think" for some in columns]
    return _before_the_question(path, column, record_format, rows)


def _is_context(path: str) -> bool:
    return column_names.is_a(path.partition("[]")[0], "context")


def _is_placed(path: str, name: str) -> bool:
    """Whether another format has a place for a column beside the texts of this one."""
    return name in _OF_TEXTS and (_is_context(path) or "." not in path)


def _may_be_context(path: str, column: Column) -> bool:
    nameless = not (signals.classes(path) or signals.is_about(path) or role_of(path))
    return _is_context(path) or (nameless and {*map(type, column.values)} == {list})


def _before_the_question(
    path: str, column: Column, record_format: Format, rows: Sequence[Row]
) -> list[str]:
    """The same of a context, and of what goes on from a question."""
    row, text = rows[0], {*map(type, column.values)} == {str}
    name, read = record_format.name, record_format.columns
    asked = _column_of(record_format, row, *_ASKING)
    told = ([one.get(asked) for one in rows], column.values)
    alike, few = (5 * len({*map(repr, some)}) <= len(some) for some in told)
    able = _may_be_context(path, column) or (text and alike)
    passages = all(shapes.is_passages(v) or _fields.are_options(v) for v in column.values)
    task = role_of(path) == "question" and few and not alike  # of many inputs
    order = (path, asked) if text and task else (asked, path)
    answered = _column_of(record_format, row, "answer")
    pairs = {"instruction", "prompt"} <= read.keys()
    sides = (row.get(record_format.renamed.get(one, one)) for one in read.get("answers", ()))
    turns = isinstance(row.get(asked), list) or any(map(_turns.are_turns, sides))
    if pairs and text and not signals.classes(path).keys().isdisjoint(_BEGUN):
        return [mapped("prefix", path)] * (name == "preference" and not turns)
    if name == "message_thinking" and able and text and "." not in path:
        own = _column_of(record_format, row, "reasoning")
        return [f"{maps(_WITH_INPUT, (asked, path, own, answered))} --reasoning-in think"]
    if not (able and passages):
        return []
    several = [] if pairs else _contexts(rows)
    if judgements.bare(path) in several and several[1:]:
        path = ",".join(several)
        order = (asked, path)
    if name == "alpaca":
        return [mapped("input", path)]
    placed = _is_placed(path, name)
    if (pairs or placed) and turns:  # before which a text stands
        return [mapped("system", path)] * text
    if pairs:
        return [maps(_INPUT, order)] * (isinstance(row.get(asked), str) and asked != path)
    return [maps((*_INPUT, "output"), (*order, answered))] if placed else []


def _contexts(rows: Sequence[Row]) -> list[str]:
    """The columns of contexts that differ from row to row, which may stand there one by one."""
    told = {name: [row.get(name) for row in rows] for name in rows[0] if _is_context(name)}
    said = {name: [one for one in some if one not in EMPTY] for name, some in told.items()}
    able = (name for name, some in said.items() if all(map(shapes.is_passages, some)))
    return [name for name in able if said[name] and not signals.are_few(said[name])]


def _column_of(record_format: Format, row: Row, *meanings: str) -> str:
    """The column of a meaning, as the file calls it; a word for one where there is none."""
    found = record_format.renamed
    names = (name for one in meanings for name in record_format.columns.get(one, ()))
    told = found or {one for one, value in row.items() if isinstance(value, str | list)}
    return next((found.get(one, one) for one in names if one in told), "COLUMN")


def are_letters(reading: str, rows: Sequence[Row]) -> bool:
    """Whether the answers that are read are letters, which name what stands elsewhere."""
    answered = _column_of(formats.load(reading), rows[0], "answer")
    return all(_fields.is_letter(row.get(answered)) for row in rows)


def wholes(row: Row, reading: str) -> dict[str, str]:
    """The columns with the whole of a text of which a column that is read has the end, with it."""
    read = [name for names in formats.load(reading).columns.values() for name in names]
    named = [name for name in row if column_names.is_a(name, "whole")]
    both = ((whole, end) for whole in named for end in read if whole.endswith(f"_{end}"))
    return {whole: end for whole, end in both if str(row[whole]).endswith(str(row.get(end)))}
