"""Questions about columns that rate: which rows they keep, what they rate, and which task reads
them as what they are."""

import shlex
from typing import Any

from pipeline import tasks
from pipeline.inputs.opening import SampledRows, selection_of
from pipeline.options.config import Config
from stages import formats
from stages.contract import FormatOptions
from stages.errors import DataError, PipelineError, UnknownFormatError
from stages.normalize import evidence, role_names, verdict_columns
from stages.normalize.survey import Column, Survey, counts_of
from stages.rows import column_names, judgements, shapes, signals, words
from stages.rows.column_names import EMPTY
from stages.rows.selection import condition
from stages.rows.unread import differs_from, ignore, mapped


def condition_for(path: str, column: Column) -> str:
    """The option that keeps the better rows, as text; empty if it is unknown which are better, as
    where a value only names one of two answers."""
    ties = dict.fromkeys(value for value in column.values if signals.is_tie(value))
    sides = any(len(str(value)) > 1 for value in column.values)  # A and B may also be grades
    if ties or (sides and judgements.name_sides(judgements.decided(column.values))):
        return " ".join(differs_from(path, tie) for tie in ties)
    if column.of:
        everywhere = column.own and column.is_everywhere and not signals.is_low(path)
        return differs_from(f"{column.of},{path}[good]", "") if everywhere else ""
    option = shapes.keeping(path, column.values, column.is_everywhere)
    rated = column.asked is not None and column.asked.code == "rated"
    nearly = column.rows >= shapes.NEARLY_ALL * column.of_rows
    if nearly and (rated or not option):  # the few rows without a value are no better than others
        option = shapes.keeping(path, column.values) or option
    flag, *text = shlex.split(option) or [""]
    return option if flag != "--where" or _kept(text[0], path, column) else ""


def _kept(text: str, path: str, column: Column) -> list[Any]:
    """The values of a column that a condition on it keeps."""
    inside = condition(text.replace(path, "it", 1))
    return [value for value in column.values if inside.holds({"it": value})]


def _what_it_does(option: str, path: str, column: Column) -> str:
    """What an option does with the rows, in words."""
    if column.of:
        return "leave out the rows in which none is good"
    flag, text = shlex.split(option)
    if flag != "--where":
        silent = column.of_rows - column.rows
        return "leave out the bad ones" + (f", and train {silent:,} without a value" * bool(silent))
    said, kept = condition(text), _kept(text, path, column)
    if len(kept) == len(column.values):
        return "say how good they must be (all of these are)"
    if isinstance(said.value, str) and said.sign == "=" and not shapes.says_good(path, said.value):
        return f"train only those that say {said.value} ({len(kept):,} of them)"
    if said.sign == "=" or "[]" in said.column:
        return "train only the good ones"
    return f"train only the better ones ({counts_of(kept) or f'{len(kept):,} of them'})"


def _of_another(path: str, read: SampledRows) -> str:
    """The answer that a column rates, where nothing trains it, or texts that its lists rate."""
    rows, raw, config = read.rows, read.raw, read.config
    taken = (p for p in config.source.map.values() if p.endswith(judgements.CHOSEN))
    for name in (*config.source.ignore, *(p.partition(",")[0] for p in taken)):
        told = [one for one in raw if one.get(path) not in EMPTY]
        if told and all(_are_as_many(one.get(name), one[path]) for one in told):
            return name
    inside = [(row[path], {**row, path: ""}) for row in rows if isinstance(row.get(path), dict)]
    each = ((f"{path}.{key}", v, row) for one, row in inside for key, v in one.items())
    said = [(v, row) for name, v, row in each if role_names.role_of(name) == "answer"]
    texts = ((v, row) for v, row in said if isinstance(v, str) and signals.is_prose(v))
    own = [repr(v)[1:-1] in str(row) for v, row in texts]
    if own and not shapes.mostly(own):  # an answer beside its rating
        return path
    given = {**raw[0], **dict.fromkeys(config.source.ignore, "")}
    about = role_names.answer_beside(path, given)
    told = [row for row in raw if isinstance(row.get(about), str) and signals.is_prose(row[about])]
    repeated = (repr(row[about].strip())[1:-1] in str({**row, about: ""}) for row in told)
    known = {*formats.names_of(read.format), *read.format.renamed.values()}
    trained = about in known or about in config.source.map.values()
    return "" if trained or shapes.mostly(repeated) else about


def _is_decided(path: str, late: int, config: Config) -> bool:
    """Whether some rating says already which answers are trained, and this one no more of them."""
    said = (*config.source.map.values(), *selection_of(config).decided)
    rated = any(p.endswith(judgements.CHOSEN) or column_names.is_rating(p) for p in said)
    return (late > 0 and rated) or path in words.of_questions((path, *said))


def _are_as_many(texts: Any, marks: Any) -> bool:
    return shapes.is_list_of_texts(texts) and isinstance(marks, list) and len(texts) == len(marks)


def rated(path: str, column: Column, read: SampledRows, late: int) -> DataError:
    """The question about a column that rates what would be trained; ``late``: as of ``Survey``."""
    said = f"column {path!r} ({column.contents(len(read.rows))})"
    if column_names.is_a(path, "label") and "text" in read.format.columns:
        why = "Texts with a class are data for a classifier; no answer is written here that could "
        what = f"{read.where}: {said} is the class of each text. {why}be trained."
        return DataError(what, "Give rows with a question and its answer.")
    what = f"{said} rates the answers, and {read.config.task} would train every answer."
    if column.of:
        shown = "a good one is" if column.own else "nothing shows that a good one is"
        what = f"{said} rates the texts in {column.of!r}, and {shown} trained where there is one."
    ways, flags = [f"train all of them with {ignore(path)}"], {*map(type, column.values)} == {bool}
    if about := _of_another(path, read):
        kept = any(one.startswith(f"{about},") for one in read.config.source.map.values())
        how = "of which another column says which is trained" if kept else "which is not trained"
        what = f"{said} rates {about!r}, {how}."
        ways = [f"leave it out with {ignore(path)}"]
    elif any(map(signals.is_tie, column.values)):
        what += " It says which of two answers is better, and not whether this one is good."
    elif (flags or not role_names.says(path, "worse")) and (chosen := condition_for(path, column)):
        known = column.of or shapes.have_a_middle(column.values)  # else the user alone knows
        decided = _is_decided(path, late, read.config)
        ways.insert(decided or not known, f"{_what_it_does(chosen, path, column)} with {chosen}")
        if late > 1 and not decided:  # which of the measures of one thing holds, nobody else knows
            what = f"{read.where}: {what} So do other columns like it."
            return DataError(what, f"For example: {chosen}.")
    if (other := _other_task(read)) is not None:
        what += f" The rows also read as {other[0]} data ({other[1]})."
        ways.append(f"use another task: pipeline run {other[0]}")
    return read.which(what, ways)


def scored(path: str, survey: Survey, read: SampledRows) -> DataError:
    """The question about a column that rates an answer of a pair, or says how sure its order is."""
    taken = {**read.format.renamed, **read.config.source.map}.values()
    beside = "[]" in path and any(f"{path.partition('[]')[0]}[]" in one for one in taken)
    shown = survey.columns[path].contents(len(read.rows))
    sides = next((both for both in role_names.by_better([*survey.columns]) if path in both), None)
    if sides is not None:
        both = role_names.maps(("chosen_score", "rejected_score"), sides)
        what = f"columns {sides[0]!r} and {sides[1]!r} ({shown}) may be the scores of the answers"
        left = f"leave both out with {' '.join(map(ignore, sides))}"
        unread = "no format reads them under these names"
        return read.which(f"{what}, and {unread}.", [f"read both with {both}", left])
    values, ways = survey.columns[path].values, [f"leave it out with {ignore(path)}"]
    unread = "no format reads it under this name"
    if both := verdict_columns.numbers_of_both(path, survey.columns, read.reading, read.raw[0]):
        unread = "it is read beside the verdict only where --map names it"
        ways.insert(0, f"read those of both answers with {both}")
    elif all(isinstance(value, list) for value in values):
        tied = any(judgements.together(value, "best") == judgements.TIE for value in values)
        if tied and not column_names.is_a(path, "pair"):  # votes are of no one answer
            untied = differs_from(f"{path}[best]", judgements.TIE)
            ways.insert(0, f"keep only the rows in which one is better with {untied}")
    elif (own := survey.columns[path]).is_order:  # either half of its numbers is of one order
        unread = "it says the order that is read already"
    elif chosen := condition_for(path, own):
        # A pair is one where its better side has a low number, too.
        of_one = signals.has_side(path) and not role_names.says(path, "better worse")
        if (ties := "!=" in chosen) or not of_one:
            late = signals.has_side(path) or beside or not (ties or {*map(type, values)} == {bool})
            tied = any(map(signals.is_tie, judgements.flat([*values])))
            kept = f"leave out the {'ties' if tied else 'bad ones'}"
            kept = kept if ties else "keep only the rows that it says most of"
            ways.insert(late, f"{kept} with {chosen}")
    odd = sum(type(value) not in (int, float) for value in values)  # rows that are refused then
    if 10 * odd <= len(values) and column_names.is_a(path, "margin") and not signals.has_side(path):
        ways.insert(0, f"read it as the margin with {mapped('margin', path)}")
    may_be = "may be the score of one answer, or say how sure the order of the two is"
    return read.which(f"column {path!r} ({shown}) {may_be}, and {unread}.", ways)


def _other_task(read: SampledRows) -> tuple[str, str] | None:
    """The first other task that has a format for these rows, and the evidence."""
    told = FormatOptions(columns=read.config.source.map)
    for task in tasks.names():
        if task == read.config.task:
            continue
        try:
            found = evidence.detect(read.rows, tasks.kind_of(task), read.where, told)
        except PipelineError as error:
            if isinstance(error, evidence.UnsettledError) and tasks.kind_of(task).marks:
                return task, error.what.removeprefix(f"{read.where}: ")
            continue
        steps = found.format.renamed.get("steps", "steps")  # whole answers may be rated, too
        alone = tasks.kind_of(task).trains_answers and "text" in found.format.columns
        usable = found.change is None and found.format.usable and not alone
        if usable and role_names.mentions(steps, "steps"):
            return task, found.evidence
    return None


def naming_the_task(error: UnknownFormatError, read: SampledRows) -> UnknownFormatError:
    """The same error; where the rows are for another task, it says for which."""
    other = _other_task(read)
    if other is None:
        return error
    task, why = other
    what = f"{error.what} They read as {task} data ({why})"
    remedy = f"Use the task that reads them: pipeline run {task}."
    if tasks.kind_of(task).trains_answers:  # what was to be compared or rated is not trained whole
        what, remedy = f"{what}, which trains every answer", error.remedy
    return UnknownFormatError(f"{what}.", remedy, error.figures)
