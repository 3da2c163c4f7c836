"""Which columns of sampled rows may play each role of a format.

A role has one function that names its columns, the likeliest first. Names suggest a role; values
that cannot play it take it back (ratings are as long as the steps, a verdict names both sides)."""

import itertools
from collections.abc import Callable, Iterable, Mapping

from stages.formats import _fields, _rated_steps, _ratings, _turns
from stages.normalize import role_columns, role_names, step_columns, verdict_columns
from stages.normalize.role_columns import JSON, Columns
from stages.rows import column_names, shapes, stop_text
from stages.rows.column_names import EMPTY
from stages.rows.judgements import are_numbers


def able(held: Columns, role: str) -> list[str]:
    """The paths that may play a role, in the order of the rows."""
    if role not in held.playing:
        held.playing[role] = _FINDERS[role](held)
    return held.playing[role]


def couples(held: Columns, role: str) -> list[tuple[str, str]]:
    """The two paths that may be the two sides of a role."""
    if role.endswith(" turns"):
        of, paths = role.partition(" ")[0], role_columns.talks(held)
    elif role == "chosen answers":
        of, paths = "chosen", held.called("answer", held.where(shapes.is_list_of_texts))
    elif role == "chosen score":
        of, paths = "chosen", held.where(shapes.is_number)
    else:
        said = [path for path in held.where(_turns.is_said) if not role_names.is_about(path)]
        of, paths = role.partition(" ")[0], held.varied([p for p in said if "[]" not in p])
    found = held.of_two((role_names.by_side if of == "first" else role_names.by_revision)(paths))
    named = verdict_columns.named_sides(held) if role == "first answer" else ()
    return [*dict.fromkeys([*found, *named])]


def _in_turn(held: Columns, paths: Iterable[str]) -> list[str]:
    """Some paths; of two or three of which each row has one alone, one path to that one."""
    each = [path for path in held.values if path in {*paths}]
    for some in itertools.chain(*(itertools.combinations(each, count) for count in (2, 3))):
        rows = zip(*map(held.told, some), strict=True)
        if all(sum(one not in EMPTY for one in row) == 1 for row in rows):
            return [f"{','.join(some)}[first]", *(p for p in each if p not in some)]
    return each


def _whole(held: Columns, path: str) -> str:
    """A path; with the text that the rows have that lack what stands there, and no others, both."""
    texts = [p for p in held.where(shapes.is_text, 0.0) if "[]" not in p and held.is_spoken(p)]
    both = (_in_turn(held, (path, p)) for p in texts if role_names.may_be_told(p))
    return next((one[0] for one in both if path in held.values and len(one) == 1), path)


def _questions(held: Columns) -> list[str]:
    """The texts that may be asked; of any name where the one text left may be guessed."""
    both = ("chosen answer", "first answer")[: 2 * (not held.answers_alone)]
    sides = {*itertools.chain(*(one for role in both for one in couples(held, role)))}
    asked = [path for path in held.questions if path not in sides]
    asked = asked or [*filter(held.is_spoken, held.called("history", held.alone))]
    if asked or not held.guess or held.answers_alone:
        return [_whole(held, path) for path in asked]
    open_ = [p for p in held.alone if p not in sides and not role_names.role_of(p)]
    likely = [p for p in open_ if held.is_varied(p) and held.is_spoken(p)]
    return likely if len(likely) == 1 else held.first_of(sides)


def _answer(held: Columns) -> list[str]:
    """Answers in columns of their own, calls, or the first of each list; first of lists of one."""
    lists = held.where(shapes.is_list_of_texts, 0.5)  # of several that go together one by one
    others, listed = [q for q in lists if not role_names.is_about(q)], held.called("answer", lists)
    listed.sort(key=lambda path: not held.all(path, lambda value: len(value) == 1))
    alone = [p for p in listed if p.count("[]") == 1 and role_names.are_of_answers(p)]
    alone = [p for p in alone if all(len(one) == 1 for one in held.told(p) if one)]
    inside = [p.replace("[]", ".0") for p in alone]  # of one object each
    listed = [p for p in listed if not held.as_long(p, [q for q in others if q != p])]
    if held.answers or verdict_columns.good_answer(held):
        return [*(f"{path}[first]" for path in listed if JSON in path), *held.answers]
    some = held.called("answer", held.where(shapes.is_text, 0.5))  # not of all rows
    if some := [p for p in some if "[]" not in p and held.is_spoken(p)]:
        return [p for p in some if not (role_names.says(p, "reference") or role_names.are_worse(p))]
    plain = [path for path in listed if "[]" not in path and not role_names.are_worse(path)]
    calls = [p for p in held.called("answer", held.where(_turns.are_replies)) if "[]" not in p]
    return calls + inside + [f"{path}[first]" for path in plain]


def _prompt(held: Columns) -> list[str]:
    turns = role_columns.talks(held, asks=True)
    return [*turns, *(q for q in _questions(held) if not turns or held.is_varied(q))]


def _spoken_turns(held: Columns) -> list[str]:
    """Texts of turns: in one list, or in numbered columns (``user_1``, ``assistant_1``)."""
    lists = [p for p in held.where(_turns.are_bare) if role_names.is_talk(p)]
    even = [p for p in lists if held.all(p, lambda value: len(value) % 2 == 0)]
    return even or role_names.numbered_turns(held.where(shapes.is_text, 0.0))


def _is_answered(text: str) -> bool:
    """Whether a text is a dialogue that does not wait for an answer."""
    found = stop_text.read(text)
    last = found[1].messages[-1:] if found else ()
    return any(turn.role == "assistant" and turn.content for turn in last)


def _weights(held: Columns) -> list[str]:
    """Lists of weights, or of flags, that are as long as the turns."""
    lists = [p for p in held.where(are_numbers) if held.as_long(p, role_columns.conversation(held))]
    return [p for p in lists if column_names.is_a(p, "weight") or column_names.is_a(p, "trained")]


def _inputs(held: Columns) -> list[str]:
    said = held.called("context", held.where(shapes.is_passages, 0.0))
    texts = [p for p in held.where(shapes.is_text, 0.0) if role_names.role_of(p) != "answer"]
    asked = [p for p in texts if "input" in role_names.parts(p) or p in role_names.titled(texts)]
    topics = [] if held.called("question", texts) else held.called("topic", texts)
    texts = [p for p in topics if "title" not in role_names.parts(p)]
    return _in_turn(held, (*said, *asked, *texts))


def _instruction(held: Columns) -> list[str]:
    """What an input belongs to; it may be the same in many rows. A title goes before a text."""
    titles = [p for p in held.called("topic", held.alone) if "title" in role_names.parts(p)]
    texts = role_names.titled(held.alone)
    named = [p for p in held.called("question", held.alone) if p not in texts]
    spoken = [p for p in named if not held.unnamed or held.is_spoken(p)]
    return held.distinct(held.asking(spoken or titles))


_FINDERS: Mapping[str, Callable[[Columns], list[str]]] = {
    "question": _questions,
    "prompt": _prompt,
    "asking turns": lambda held: role_columns.talks(held, asks=True),
    "instruction": _instruction,
    "input": _inputs,
    "answer": _answer,
    "good answer": verdict_columns.good_answer,
    # Answers of more than a word or two, which would be there to check others against.
    "spoken answer": lambda h: [p for p in _answer(h) if p not in h.answers or h.long(p)],
    "list of answers": verdict_columns.list_of_answers,
    "two answers": lambda held: [
        p for p in verdict_columns.list_of_answers(held) if held.all(p, lambda one: len(one) == 2)
    ],
    "sides": verdict_columns.sides,
    "lists of turns": verdict_columns.lists_of_turns,
    "reasoning": lambda held: held.reasoning,
    "turns": role_columns.conversation,
    "spoken turns": _spoken_turns,
    # A text that is none may have marks of its own, which the others have among their answers.
    "dialogue": lambda held: [p for p in held.single if held.all(p, _is_answered, 0.98)],
    "weights of turns": _weights,
    "system text": lambda held: held.called("system", held.where(shapes.is_text, 0.0)),
    "history": lambda held: held.called("history", held.where(_fields.is_list, 0.0)),
    "tools": lambda held: [
        path.removesuffix("[].function")  # as they are declared, whatever the list is called
        for path in held.called("tools", held.where(lambda v: isinstance(v, list | str), 0.0))
        if "calls" not in role_names.parts(path)
    ],
    "steps": step_columns.steps_of,
    "tagged steps": step_columns.tagged,
    "tagged text": lambda held: [p for p in held.single if held.all(p, _rated_steps.is_tagged)],
    "signed text": lambda held: held.single,  # which no other text lines up with
    "ratings": step_columns.rated,
    "next step": step_columns.next_steps,
    "earlier steps": lambda held: [
        p for p in held.where(shapes.is_list_of_texts, 0.0) if not role_names.is_about(p)
    ],
    "rating of one": lambda held: held.called("number verdict", held.where(_ratings.is_given)),
    "steps of solutions": step_columns.of_solutions,
    "ratings of solutions": step_columns.rated_solutions,
    "ratings of text": lambda held: verdict_columns.scaled(held, step_columns.marked(held)),
    "first error": step_columns.first_error,
    "counted label": step_columns.counted_label,
    "wrong steps": lambda held: step_columns.wrong(
        path  # of lists that number every step none says which are wrong
        for path in held.where(lambda v: isinstance(v, list) and {*map(type, v)} == {int}, 0.0)
        if not held.as_long(path, step_columns.steps_of(held))
    ),
    "scores": lambda held: verdict_columns.numbers_of(held, "number", "verdict"),
    "ranks": lambda held: verdict_columns.numbers_of(held, "rank"),
    "two numbers": lambda held: held.called(
        "number verdict", held.where(lambda value: are_numbers(value) and len(value) == 2)
    ),
    "numbers of sides": verdict_columns.numbers_of_sides,
    "ranks of sides": lambda held: verdict_columns.numbers_of_sides(held, "rank"),
    "verdict": verdict_columns.verdict,
    "told side": verdict_columns.told_sides,
    "told answer": verdict_columns.told_answers,
    "strength": verdict_columns.strength,
}
