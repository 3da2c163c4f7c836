"""Writes the first recipe for some data: what was found out about it, and what may be changed.

Where the build would be refused, it says why, as far as the forecast sees, and the length that
would help.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from expectations import audits
from pipeline import lines, tasks
from pipeline.builder.forecast import Forecast, forecast, why_stop
from pipeline.builder.population import MAX_LENGTHS
from pipeline.inputs import detection, opening, scan, sheet
from pipeline.inputs.readings import Looks, glimpses, recognise_looks
from pipeline.messages.explanations import left_out
from pipeline.options.build_options import OPTIONS, default_cache
from pipeline.options.command_line import config_from, not_read, stem, unread
from pipeline.options.config import Config
from pipeline.options.paths import Data, ModelName, local_cache
from pipeline.options.recipe import builds_of
from pipeline.options.ways import ways
from pipeline.report.card import spelled
from pipeline.secrets import GAP, redacted
from stages.errors import DataError, PipelineError, UnknownFormatError, UsageError, counted
from stages.normalize.evidence import Detection
from stages.tokenizers.resolve import require_known

# What a first recipe names, beside what is needed: the options that are changed most.
_OFFERED = (
    "output layout trainer max_length too_long system train_on reasoning neutral max_reject dedup "
    "test_size shuffle tolerance"
).split()
_SHOWN = {"output": '"build"', "trainer": '"trl"', "system": '"You are helpful."'} | {
    "test_size": "0.05",
    "tolerance": "{ shortcuts.fail = 0.9 }",
}


# Names of files that nobody means to train on, where others are named too.
_TEST = re.compile(r"(test|valid(ation)?|val|dev|eval(uation)?|hold-?out|held-?out)([-_.]|$)", re.I)
_NOWHERE = "\0"  # a folder without files: paths count from it, addresses and ids do not


@dataclass(frozen=True, slots=True)
class _Group:
    """Arguments whose rows are read alike.

    Attributes:
        found: of the first file that was looked at; ``rows``: of those that were, about.
        page: what becomes of each column of that file, in lines.
    """

    data: list[str]
    found: Detection
    rows: int
    page: list[str]


def write(
    path: Path, data: tuple[str, ...], task: str | None, given: Mapping[str, Any]
) -> list[str]:
    """Write the recipe.

    Args:
        given: the options of sources, and the model, as click parsed them.

    Returns:
        Why a build of it would be refused, as far as sampled rows show; nothing if it would not.

    Raises:
        UsageError: the rows are for several tasks.
        DataError: for none, or something about them must be decided first.
    """
    given = {**given, "cache_dir": None}
    require_known(given["model"])
    looks = {one: _looks(one, given) for one in data}
    every = [look for some in looks.values() for look in some]
    task = task or fitting(data, given, every)
    config = config_from(task, data, given)
    tests = _tests(data)
    groups = _grouped({one: looks[one] for one in data if one not in tests}, config)
    if tests:
        given = {**given, "test": tuple(_from(path, one) for one in tests)}
    secret = {f"DATA_{n}": one for n, one in enumerate(data, 1) if redacted(one) != one}
    os.environ.update(secret)
    names: set[str] = set()
    known: dict[str, Any] = {
        "first": [f"# First: export {n}=ADDRESS  # {redacted(secret[n], GAP)}" for n in secret],
        "task": task,
        "help": tasks.load(task).help,
        "model": _model(path, config.parts.model),
        "sources": [{"name": _name(one.data[0], names), "group": one} for one in groups],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    estimate = _put(path, known, given, secret)
    length = long_enough(estimate)
    if length is not None:
        given = {**given, "max_length": length}
        estimate = _put(path, known, given, secret)
    why = reasons(estimate)
    if why:
        told = ["As it stands, a build of it is refused:", *(f"  {one}" for one in why)]
        _put(path, known, given, secret, told)
    return why


def _put(
    path: Path,
    known: Mapping[str, Any],
    given: Mapping[str, Any],
    secret: Mapping[str, str],
    why: Sequence[str] = (),
) -> Forecast:
    """Write the recipe, and say what it would give."""
    made = lines.templates(Path(__file__).parent)
    made.filters.update(toml=_toml, local=partial(_from, path))
    text = made.get_template("recipe.jinja").render(
        known, given=given, why=why, said=_said(given), offered=_offers(known["task"], given)
    )
    for name, address in secret.items():
        text = text.replace(_toml(address), f'"${{{name}}}"')
    path.write_text(text, "utf-8")
    (config,) = builds_of(path)
    return forecast(config)


def _looks(argument: str, given: Mapping[str, Any]) -> Looks:
    return glimpses(scan.expand((argument,), default_cache()), [opening.opening_of(given)])


def _tests(data: Sequence[str]) -> list[str]:
    """Those that are called as test files are, beside others."""
    found = [one for one in data if _TEST.match(stem(one.rstrip("/*")))]
    return found if len(found) < len(data) else []


def _grouped(looks: Mapping[str, Looks], config: Config) -> list[_Group]:
    groups: dict[tuple[str, ...], _Group] = {}
    for argument, some in looks.items():
        found = recognise_looks(some, config)
        rows = sum(look[3].rows for look in some)
        alike = tuple(sorted({one.reading for one in found}))
        if alike in groups:
            before = groups[alike]
            groups[alike] = replace(before, data=[*before.data, argument], rows=before.rows + rows)
        else:
            page = sheet.lines(detection.rows_of(some[0][3]), found[0].reading, config, {})
            groups[alike] = _Group([argument], found[0], rows, [*lines.of_columns(page, "")])
    return list(groups.values())


def _said(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The keys that were given, with their values."""
    return [
        (OPTIONS[name].key, OPTIONS[name].value.loosened(value))
        for name, value in given.items()
        if name not in ("model", "cache_dir") and value not in (OPTIONS[name].default, None, (), "")
    ]


def _from(path: Path, argument: str) -> str:
    """An argument as the recipe has it."""
    address = Data().anchored([argument], _NOWHERE)[0] == argument and not os.path.lexists(argument)
    return argument if address or Path(argument).is_absolute() else _relative(path, argument)


def _model(path: Path, model: str) -> str:
    """The model as the recipe has it."""
    named = ModelName().anchored(model, _NOWHERE) == model and not Path(model).is_dir()
    return model if named or Path(model).is_absolute() else f"./{_relative(path, model)}"


def _relative(path: Path, other: str) -> str:
    return os.path.relpath(Path(other).expanduser(), path.parent)


def _offers(task: str, given: Mapping[str, Any]) -> list[str]:
    """Lines that can be uncommented."""
    lines = ["# More options; each line has the default, or an example:"]
    for name in _OFFERED:
        option = OPTIONS[name]
        if not_read(name, task) or given.get(name) not in (option.default, None):
            continue
        if name == "test_size" and given.get("test"):
            continue
        value = _SHOWN.get(name) or _toml(option.default or tasks.load(task).layouts[0])
        if option.default is False:
            value = "true"
        lines.append(f"# {option.key} = {value}  # {option.help}")
    return [*lines, "# All keys: docs/recipes.md"]


def _name(argument: str, taken: set[str]) -> str:
    """A name for a source, from its first argument."""
    name = first = re.sub(r"[^\w.-]", "", stem(argument.rstrip("/*"))) or "source"
    number = 2
    while name in taken:
        name, number = f"{first}-{number}", number + 1
    taken.add(name)
    return name


def _toml(value: Any) -> str:
    """A value as a recipe has it, where a dollar sign begins a variable."""
    return spelled(value).replace("$", "$$")


def long_enough(estimate: Forecast) -> int | None:
    """A ``--max-length`` that nearly all sampled examples fit in, where the build's own refuses too
    many; None where it does not, or where the model was trained on no such length."""
    sampled, config = estimate.sampled, estimate.recipe.config
    if not sampled.long or not why_stop(estimate):
        return None
    context = estimate.recipe.model.profile.context_length
    longer = [one for one in MAX_LENGTHS if config.plan.longest_example < one <= context]
    share = config.judge.max_reject
    return next((one for one in longer if (sampled.lengths > one).mean() <= share), None)


def reasons(estimate: Forecast) -> list[str]:
    """What becomes of the sampled rows of a build that would be refused; nothing of another."""
    if not why_stop(estimate):
        return []
    sampled, ledger = estimate.sampled, estimate.sampled.ledger
    found = [
        f"{count:,} of {counted(sampled.rows, 'sampled row')}: {code} ({ledger.rows.details[code]})"
        for code, count in ledger.rows_by_code.most_common()
    ]
    found += [
        f"{counted(count, 'example')} of rows that have others: {code}"
        f" ({ledger.examples.details[code]})"
        for code, count in ledger.in_part.counts.most_common()
        if code not in left_out()
    ]
    if sampled.long:
        limit = estimate.recipe.config.plan.longest_example
        found.append(f"{counted(sampled.long, 'example')} longer than {counted(limit, 'token')}")
    return [*found, *map(audits.sentence, sampled.failing)] or [why_stop(estimate)]


# Which task the rows of inputs are for, as far as sampled rows say.


def looked_at(data: tuple[str, ...], given: Mapping[str, Any]) -> tuple[int, Looks]:
    """How many files there are, and samples of them or of some.

    Raises:
        UsageError, DataError, SurroundingsError: one is missing, empty or not readable.
    """
    require_known(given["model"])
    files = scan.expand(data, local_cache(given["cache_dir"] or default_cache()))
    return len(files), glimpses(files, [opening.opening_of(given)], given.get("empty", "refuse"))


def fitting(data: tuple[str, ...], given: Mapping[str, Any], looks: Looks) -> str:
    """The one task whose formats the sampled rows have.

    Raises:
        UsageError: they have those of more than one.
        DataError: of none.
    """
    fits: dict[str, str] = {}
    errors: dict[str, PipelineError] = {}
    written = {name: value for name, value in given.items() if value is not None}
    foreign = {task: {name for name, _ in unread(task, written)} for task in tasks.names()}
    for task, names in foreign.items():
        try:
            own = {name: value for name, value in given.items() if name not in names}
            *_, last = recognise_looks(looks, config_from(task, data, own), other_tasks=False)
            fits[task] = f"{last.reading}: {last.evidence}"
        except (DataError, UsageError) as error:
            errors[task] = error
            fits.pop(task, None)
    # A task that reads every option that was given is more likely meant than others.
    fits = {task: why for task, why in fits.items() if not foreign[task]} or fits
    errors = {task: why for task, why in errors.items() if not foreign[task]} or errors
    if len(fits) > 1:
        readings = " or as ".join(f"{task} ({why})" for task, why in fits.items())
        flags = " or ".join(f"--task {task}" for task in fits)
        raise UsageError(f"{looks[0][1].origin} reads as {readings}.", f"Say which with {flags}.")
    if not fits:
        raise _nothing_fits(errors)
    (task,) = fits
    return task


def _nothing_fits(errors: dict[str, PipelineError]) -> PipelineError:
    """The error that helps most: one about the rows, rather than that no format fits them; one that
    offers an option, rather than none; of rows that rate or compare something, what is open about
    that, rather than about training all. A task that cannot take an option says nothing of rows."""
    errors = {t: e for t, e in errors.items() if not isinstance(e, UsageError)} or errors
    knowing = {t: e for t, e in errors.items() if not isinstance(e, UnknownFormatError)}
    offering = {t: e for t, e in knowing.items() if ways(e.remedy)} or knowing
    judging = {t: e for t, e in offering.items() if not tasks.kind_of(t).trains_answers}
    knowing = judging or offering or errors
    first, *others = knowing.values()
    if all((one.what, one.remedy) == (first.what, first.remedy) for one in others):
        return first
    reasons = " ".join(f"[{task}] {error}" for task, error in knowing.items())
    return type(first)(reasons, "Name the task with --task.")
