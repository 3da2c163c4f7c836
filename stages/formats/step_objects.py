"""Steps as objects with a rating each: in a list, in several solutions, in turns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Refused, Row, StepChain
from stages.errors import AskError, RowError
from stages.formats import _messages, _rated_steps, _ratings, _turns
from stages.formats._asked import Question, open_question, question, required, which
from stages.rows.column_names import read_key

_OBJECTS = ("steps", "process", "solution_steps", "reasoning_steps", "rated_steps")
_TEXTS = ("text", "step", "content", "step_text", "thought")
RATINGS = tuple(
    "rating label score reward correct is_correct correctness step_rating step_reward".split()
)


def _rating_of(one: Row) -> str | None:
    """The key of an object's rating: one that rates, before one that holds null."""
    given = (name for name in RATINGS if dict.get(one, name) is not None)
    return next(given, next((name for name in RATINGS if name in one), None))


def _rivals(steps: Iterable[Any]) -> list[str]:
    """Keys under which one of the steps is rated twice, and differently."""
    for step in steps:
        keys = [name for name in RATINGS if isinstance(step, dict) and step.get(name) is not None]
        if _ratings.differ(dict.get(step, key) for key in keys):
            return keys
    return []


def _twice_rated(keys: Sequence[str], column: str) -> tuple[str, str]:
    """The doubt that ratings under several keys leave, and the options that settle it."""
    flags = " or ".join(f"--ignore '{column}[].{key}'" for key in keys)
    what = f"{' and '.join(keys)} could each be the rating of a step in {column}, and they differ"
    return what, f"Say which to leave out with {flags}"


def _two_texts(steps: Iterable[Any], column: str) -> Question | None:
    """What a step with two texts that differ leaves open, and the options that settle it."""
    for step in steps:
        names = _rated_steps.own_texts(step, _TEXTS) if isinstance(step, dict) else []
        if _rated_steps.differing(step, names):
            return which(names, f"the text of a step in {column}", f"{column}[].")
    return None


def _left_open(steps: Sequence[Any], column: str) -> Question | None:
    """What the ratings and the texts of some steps leave open, and the options that settle it."""
    keys = _rivals(steps)
    return _twice_rated(keys, column) if keys else _two_texts(steps, column)


def _objects(row: Row) -> str | None:
    """The column with a list of objects that have a text, and some of them a rating."""
    for name in _OBJECTS:
        value = dict.get(row, name)
        if not isinstance(value, list) or not value:
            continue
        if not all(isinstance(one, dict) and _rated_steps.own_texts(one, _TEXTS) for one in value):
            continue
        if any(_rating_of(one) for one in value) and not any("completions" in one for one in value):
            return name
    return None


def _rated(
    row: Row, label: _ratings.Label, before: str = ""
) -> tuple[list[str], list[float | None]]:
    """Texts and labels of the row's steps.

    Args:
        before: the place of ``row`` in another one: ``solutions[].``.

    Raises:
        AskError: a step has two texts that differ.
        RowError: there are no steps, or a rating is something else.
    """
    name = required(_objects(row), "there is no list of steps with a text and a rating each")
    texts: list[str] = []
    labels: list[float | None] = []
    for number, step in enumerate(row[name]):
        if question := _two_texts([step], f"{before}{name}"):
            raise open_question(*question)
        said = [step[key] for key in _rated_steps.own_texts(step, _TEXTS)]  # all of them are read
        texts.append(said[0])
        labels.append(_ratings.one_rating(step, RATINGS, f"{name}[{number}]", label))
    return texts, labels


class _RatedSteps(_ratings.Signed):
    """``steps`` as objects with a text and a rating each, under any of their usual names.

    ``rated_steps/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good); otherwise they are
    signs, booleans, or numbers from 0 to 1.
    """

    name = "rated_steps"
    columns: Columns = {"steps": _OBJECTS, **_rated_steps.PROBLEM}
    prompts = _rated_steps.PROBLEMS

    def _shown(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[Any]:
        steps = (step for row in rows for step in row[_objects(row) or ""])
        return (step.get(_rating_of(step) or "") for step in steps)

    def matches(self, row: Row) -> str | None:
        name = _objects(row)
        return f"{name} with a text and a rating in each" if name else None

    def _open(self, row: Row) -> Question | None:
        name = _objects(row) or ""
        return _left_open(dict.get(row, name) or [], name)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [StepChain(_rated_steps.problem(row, options), *_rated(row, self._label(options)))]


_OUTER = tuple(
    "chain_of_thoughts chains_of_thought chains cots solutions rollouts trajectories "
    "reasoning_chains reasoning_paths".split()
)
_LISTS = ("labels", "ratings", "step_labels", "rewards", "scores", "values")


def _labels(inner: Row) -> str | None:
    return next((name for name in _LISTS if isinstance(dict.get(inner, name), list)), None)


def _beside(inner: Row, outer: str) -> tuple[str, str] | None:
    """The keys of a solution's texts and of the ratings beside them.

    Args:
        outer: the column with the solutions.

    Raises:
        AskError: two lists of ratings say different things; where they do not, all count as read.
    """
    steps, labels = _rated_steps.step_column(inner), _labels(inner)
    if steps is None or labels is None:
        return None
    _ratings.require_same_ratings(inner, labels, _LISTS, {}, before=f"{outer}[].")
    return steps, labels


def _is_solution(inner: Any) -> bool:
    if not isinstance(inner, dict):
        return False
    beside = _rated_steps.step_column(inner) is not None and _labels(inner) is not None
    return beside or _objects(inner) is not None


def _solutions(row: Row) -> str | None:
    """The column with a list of solutions."""
    for name in _OUTER:
        value = dict.get(row, name)
        if isinstance(value, list) and value and any(map(_is_solution, value)):
            return name
    return None


def _shown_by(inner: Any) -> list[Any]:
    """The ratings that a solution shows."""
    if not _is_solution(inner):
        return []
    name = _objects(inner)
    if name is None:
        return list(inner[_labels(inner) or ""])
    return [step.get(_rating_of(step) or "") for step in inner[name]]


class _NestedSteps(_ratings.Signed):
    """Several solutions of one problem, each with its own ``steps``: ``chain_of_thoughts[].steps``.

    The steps of a solution are objects with a text and a rating each, or texts beside a list of
    ratings. A solution that has neither is refused by name, beside the others of its row.
    """

    name = "nested_steps"
    columns: Columns = {"solutions": _OUTER, **_rated_steps.PROBLEM}
    prompts = _rated_steps.PROBLEMS
    fans_out = True

    def _shown(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[Any]:
        solutions = (inner for row in rows for inner in row[_solutions(row) or ""])
        return (value for inner in solutions for value in _shown_by(inner))

    def matches(self, row: Row) -> str | None:
        name = _solutions(row)
        return f"{name}, each with rated steps" if name else None

    def _open(self, row: Row) -> Question | None:
        name = _solutions(row) or ""
        for inner in filter(_is_solution, dict.get(row, name) or []):
            steps = _objects(inner) or ""
            if asked := _left_open(dict.get(inner, steps) or [], f"{name}[].{steps}"):
                return asked
            try:
                _beside(inner, name)
            except AskError as error:
                return question(error)
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = required(_solutions(row), "there is no list of solutions with rated steps")
        problem = _rated_steps.problem(row, options)
        examples: list[Example] = []
        for number, inner in enumerate(row[name]):
            try:
                examples.append(StepChain(problem, *self._chain(inner, name, options)))
            except RowError as error:
                examples.append(Refused(error.code, f"{name}[{number}]: {error.detail}"))
        return examples

    def _chain(
        self, inner: Any, outer: str, options: FormatOptions
    ) -> tuple[list[str], list[float | None]]:
        if not isinstance(inner, dict):
            raise RowError("bad_column", f"it is a {type(inner).__name__}, not an object")
        beside = _beside(inner, outer)
        if beside is None:
            return _rated(inner, self._label(options), f"{outer}[].")
        steps, labels = beside
        texts = _rated_steps.texts(inner[steps], steps)
        return texts, _ratings.ratings(inner[labels], len(texts), labels, self._label(options))


_TURNS = ("messages", "conversations", "conversation")


def _speaks(turn: Row) -> bool:
    return _messages.role_of(turn) == "assistant"


def _rated_turns(row: Row) -> str | None:
    """The column with turns of which an assistant's has a rating."""
    for name in _TURNS:
        turns: Any = dict.get(row, name)
        if not _turns.are_turns(turns):
            continue
        keys = [(turn, _rating_of(turn)) for turn in turns if _speaks(turn)]
        if any(key and isinstance(turn[key], (bool, int, float)) for turn, key in keys):
            return name
    return None


class _RatedMessages(_ratings.Signed):
    """Turns where each assistant turn has a rating: a question, then one rated step per turn.

    ``rated_messages/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good). A turn of
    somebody else between two steps has no place in a chain of steps: such rows are refused by name.
    """

    name = "rated_messages"
    columns: Columns = {"turns": _TURNS, **_turns.BEFORE}

    def _shown(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[Any]:
        turns = (turn for row in rows for turn in row[_rated_turns(row) or ""] if _speaks(turn))
        return (turn.get(_rating_of(turn) or "") for turn in turns)

    def _open(self, row: Row) -> Question | None:
        name = _rated_turns(row) or ""
        keys = _rivals(filter(_speaks, dict.get(row, name) or []))
        return _twice_rated(keys, name) if keys else None

    def matches(self, row: Row) -> str | None:
        name = _rated_turns(row)
        return f"{name} with a rating of each step" if name else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = required(_rated_turns(row), "no assistant turn has a rating")
        turns = row[name]
        plain = [{k: v for k, v in turn.items() if k not in RATINGS} for turn in turns]
        before = {key: row[key] for key in (*_turns.SYSTEM, "history") if key in row}
        said = _rated_steps.conversation({**before, name: plain})
        roles = [message.role for message in said]
        if roles[0] != "user" or set(roles[1:]) != {"assistant"}:
            role = next((role for role in roles[1:] if role != "assistant"), roles[0])
            detail = f"a turn ({role}) that is not a step is among the steps"
            raise RowError("turns_between_steps", detail)
        label = self._label(options)
        labels: list[float | None] = []
        for number, turn in enumerate(turns):
            if _speaks(turn):
                labels.append(_ratings.one_rating(turn, RATINGS, f"{name}[{number}]", label))
            elif key := next((k for k in RATINGS if turn.get(k) is not None), None):
                what = f"{name}[{number}] has a {key}, but only assistant turns are steps"
                raise RowError("bad_label", what)
            for key in RATINGS:
                if key in turn:
                    read_key(row, name, key)  # the turns were read without it
        texts = [message.content or "" for message in said[1:]]
        return [StepChain(said[0].content or "", texts, labels)]


TABLE = (_RatedSteps(), _NestedSteps(), _RatedMessages())
