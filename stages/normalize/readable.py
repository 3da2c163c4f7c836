"""Options that have a format read a column that it leaves out, where it has a place for it."""

from collections.abc import Sequence

from stages import formats
from stages.contract import Row
from stages.normalize.role_names import answer_beside, how_good, role_of
from stages.normalize.survey import Column
from stages.rows import column_names, shapes, signals
from stages.rows.unread import mapped

_BEGUN = ("begun", "beginning")  # the classes of a text that the answers go on from


def options(path: str, column: Column, reading: str, rows: Sequence[Row]) -> list[str]:
    """Options that have a format read a column, where one has a place for it."""
    row, kinds = rows[0], {*map(type, column.values)}
    text, lists = kinds == {str}, kinds == {list}
    nameless = not (signals.classes(path) or signals.is_about(path) or role_of(path))
    may_be_context = column_names.is_a(path, "context") or (lists and nameless)
    passages = all(map(shapes.is_passages, column.values))
    record_format = formats.load(reading)
    name, read, found = record_format.name, record_format.columns, record_format.renamed
    if name == "text":  # no turns, before which anything could stand
        return []
    ahead = column_names.is_a(path, "system") or (may_be_context and "turns" in read)
    if ahead and "system text" in read and "[]" not in path:
        return [mapped("system", path)]
    if "tools" in read and "[]" not in path and all(map(signals.are_tools, column.values)):
        return [mapped("tools", path)]
    if column_names.is_a(path, "history") and "history" in read:
        return [mapped("history", path)]
    if path in (both := wholes(row, reading)):
        return [maps([*both.values()], [*both])]
    if column_names.is_a(path, "corrected") and text and "answer" in read and "." not in path:
        answered = next((name for name in read["answer"] if name in (found or row)), None)
        return [] if answered is None else [mapped(answered, path)]
    if column_names.is_a(path, "reasoning") and text and "turns" in read and "reasoning" in read:
        return [f"{mapped(read['reasoning'][0], path)} --reasoning-in think"]
    begun = text and not signals.classes(path).keys().isdisjoint(_BEGUN)
    if begun and {"instruction", "prompt"} <= read.keys():
        asked = next((found.get(n, n) for n in read["prompt"] if n in (found or row)), "COLUMN")
        return [maps(("instruction", "input"), (asked, path))]
    if name in ("query_response", "prompt_completion") and "." not in path:
        asked, answered = (
            next((found.get(one, one) for one in read[meaning] if one in (found or row)), "COLUMN")
            for meaning in ("question", "answer")
        )
        if column_names.is_a(path, "reasoning") and text:
            names = ("problem", "message_thinking", "message_content")
            each = [n for n in row if column_names.is_a(n, "reasoning") and answer_beside(n, row)]
            each = sorted(each, key=lambda n: -how_good(n, rows)) if path in each else [path]
            all_three = ((asked, one, answer_beside(one, row) or answered) for one in each)
            # Every template has a place for a <think> block; not every one prints the field.
            return [f"{maps(names, columns)} --reasoning-in think" for columns in all_three]
        if may_be_context and passages:
            if isinstance(row.get(asked), list):  # turns, before which it stands
                return [mapped("system", path)]
            return [maps(("instruction", "input", "output"), (asked, path, answered))]
    if name == "alpaca" and may_be_context and passages:
        return [mapped("input", path)]
    return []


def wholes(row: Row, reading: str) -> dict[str, str]:
    """The columns with the whole of a text of which a column that is read has the end, with it."""
    read = [name for names in formats.load(reading).columns.values() for name in names]
    return {
        whole: end
        for whole in row
        for end in read
        if column_names.is_a(whole, "whole") and whole.endswith(f"_{end}")
        if str(row[whole]).endswith(str(row.get(end)))
    }


def maps(names: Sequence[str], columns: Sequence[str]) -> str:
    """Options that read some names from some columns."""
    pairs = zip(names, columns, strict=True)
    return " ".join(mapped(name, column) for name, column in pairs)
