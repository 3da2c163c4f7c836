"""Texts that carry a chat template, in any turn, side or step: the turns inside replace them."""

from dataclasses import replace

from stages.contract import FormatOptions, Message, Pair, StepChain
from stages.errors import RowError
from stages.formats import _pairs, _turns
from stages.rows import stop_text
from stages.rows.dialects import DIALOGUE, Dialect, Turns
from stages.rows.speakers import ASSISTANT, SYSTEM, USER

_CODE = "already_templated"
Templated = tuple[Dialect, Turns]


def _inside(turn: Message) -> Templated | None:
    """The turns in the text of one; None where it is a text like any other. An answer may be that
    of the assistant alone, between its marks."""
    text = turn.content
    if not text or not stop_text.opens(text):
        return None
    found = stop_text.within(text, alone=turn.role == ASSISTANT)
    if found is None or (turn.role == ASSISTANT and found[0].name == DIALOGUE):
        return None  # an answer may be a dialogue
    return found if turn.role == ASSISTANT or stop_text.is_asked(found) else None


def carry(turns: list[Message]) -> bool:
    """Whether a text of some turns carries a chat template."""
    return any(_inside(turn) for turn in turns if turn.role in (USER, ASSISTANT))


def unfolded(turns: list[Message], options: FormatOptions) -> list[Message]:
    """Turns with those inside of their texts.

    Raises:
        RowError: nobody allowed it, or the turns inside do not fit the others.
    """
    out: list[Message] = []
    asked: Templated | None = None  # the question that the next answer continues
    for turn in turns:
        found = _inside(turn) if turn.role in (USER, ASSISTANT) else None
        if found is not None:
            stop_text.require_allowed(found[0], f"a turn ({turn.role})", options.already_templated)
        whole = found is not None and turn.role == ASSISTANT and _is_whole(found[1])
        if asked is not None and turn.role == ASSISTANT and not whole:
            said = stop_text.answered(*asked, turn.content or "")
            out = _turns.joined(out, [*said[:-1], replace(turn, content=said[-1].content)])
            asked = None
            continue
        if asked is not None:
            out, asked = _turns.joined(out, stop_text.question(asked[1])), None
        if found is None:
            out.append(turn)
        elif turn.role == USER:
            asked = found
        else:
            out = _continued(out, found[1].messages, turn)
    return out if asked is None else _turns.joined(out, stop_text.question(asked[1]))


def _is_whole(inside: Turns) -> bool:
    """Whether turns begin with who asks."""
    return inside.messages[0].role != ASSISTANT


def _said(turns: list[Message]) -> list[tuple[str, str]]:
    return [(one.role, (one.content or "").strip()) for one in turns if one.role != SYSTEM]


def _continued(before: list[Message], inside: list[Message], turn: Message) -> list[Message]:
    """The turns before an answer and those inside of it, which may repeat them.

    Raises:
        RowError: they are other ones.
    """
    last = replace(turn, content=inside[-1].content)
    if inside[0].role == ASSISTANT and len(inside) == 1:
        return [*before, last]
    repeats = _said(before) in ([], _said(inside[:-1]))
    if inside[-1].role != ASSISTANT or not repeats:
        detail = "an answer carries a chat template, and its turns do not repeat those before it"
        raise RowError(_CODE, detail)
    ahead = [one for one in before if one.role == SYSTEM]
    return _turns.joined(ahead, [*inside[:-1], last])


def pair(example: Pair, options: FormatOptions) -> Pair:
    """The same of both sides of a pair behind their prompt."""
    sides = [[*example.prompt, *side] for side in (example.chosen, example.rejected)]
    if not any(map(carry, sides)):
        return example
    chosen, rejected = (unfolded(side, options) for side in sides)
    prompt = _pairs.split(chosen, rejected)
    return replace(example, prompt=prompt, chosen=chosen, rejected=rejected)


def require_plain(chain: StepChain) -> None:
    """A step is a piece of one answer: there is no turn inside of it.

    Raises:
        RowError: it carries a chat template.
    """
    for number, step in enumerate(chain.steps, 1):
        if (found := _inside(Message(ASSISTANT, step))) is not None:
            detail = f"step {number} carries a chat template ({found[0].name}); give its text alone"
            raise RowError(_CODE, detail)
