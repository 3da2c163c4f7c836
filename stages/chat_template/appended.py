"""An appended history: the tokens of earlier answers stay as they were sampled.

A server that renders a conversation again may print an earlier answer otherwise than it was
sampled, without its reasoning for instance. One that keeps tokens feeds those it has, and appends
what the environment added since: the turns of users and tools, and the next generation prompt. So
a conversation with two answers is::

    prompt, answer 1        as they are printed while nothing follows
    turns between, prompt   what stands behind an answer that has nothing to rewrite
    answer 2                as it is printed while nothing follows

The last two are printed in a short dialogue: the turns before the first answer, the answer that has
nothing to rewrite, the turns between, answer 2. Where a template prints something before an answer
otherwise once other turns follow, nothing can be appended, and the conversation is refused.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from stages.chat_template import reasoning, template, turn_ends
from stages.errors import RowError

RENDERED, APPENDED = "rendered", "appended"  # --history
Turn = Mapping[str, Any]


class Appended(template.Template):
    """A chat template that prints conversations with an appended history.

    Args:
        ends: what ends answers; ``controls``: finds control tokens in text.
        source, date, tokens: as of ``Template``.
    """

    def __init__(
        self, ends: turn_ends.Ends, controls: re.Pattern[str], source: str, date: str, **tokens: str
    ) -> None:
        super().__init__(source, date, **tokens)
        self._ends, self._controls = ends, controls

    def render(
        self,
        messages: Sequence[Turn],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The text of a conversation.

        Raises:
            RowError: the template refuses it, or fails on it; ``not_prefix_stable``: it does not
                print the turns behind an answer alone.
        """
        prompt = {"add_generation_prompt": add_generation_prompt, **variables}
        answers = [i for i, turn in enumerate(messages) if turn["role"] == "assistant"]
        follows = add_generation_prompt or (answers and answers[-1] + 1 < len(messages))
        if not answers or (len(answers) == 1 and not follows):
            return super().render(messages, tools, **prompt)
        printed = partial(super().render, tools=tools)
        opening = messages[: answers[0]]
        dialogue = _Dialogue(printed, opening, ends=self._ends, controls=self._controls)
        text = printed(messages[: answers[0] + 1])
        earlier: Sequence[Turn] = ()
        for at, following in itertools.pairwise(answers):
            text = dialogue.appended(text, at, messages[at : following + 1], earlier)
            earlier = messages[at:following]
        if follows:
            text = dialogue.appended(text, answers[-1], messages[answers[-1] :], earlier, **prompt)
        return text


class _Dialogue:
    """Prints what follows answers of one conversation, each in a dialogue that begins as it does.

    Args:
        printed: renders turns.
        opening: the turns before the first answer.
        ends, controls: as of ``Appended``.
    """

    def __init__(
        self,
        printed: Callable[..., str],
        opening: Sequence[Turn],
        ends: turn_ends.Ends,
        controls: re.Pattern[str],
    ) -> None:
        self._printed, self._opening, self._ends, self._controls = printed, opening, ends, controls
        self._prompt = printed(opening, add_generation_prompt=True)
        # Behind the last turn some templates print the end of the text.
        self._before = self._prompt[: shared(printed(opening), self._prompt)]
        self._lasts: dict[str, str] = {}

    def appended(
        self, text: str, at: int, turns: Sequence[Turn], earlier: Sequence[Turn], **prompt: Any
    ) -> str:
        """A text that ends with an answer, and what is printed for the turns behind that.

        Args:
            at: index of the answer in the conversation; ``turns``: the answer and those turns.
            earlier: the answer before, and the turns behind that.
            prompt: whether the generation prompt follows, and what it is printed with.
        """
        plain = _plain(turns[0])
        end = self._ends.of(turns[0])
        last = self._behind_prompt(self._last(plain))
        longer = self._behind_prompt(self._printed([*self._opening, plain, *turns[1:]], **prompt))
        # What is printed behind the end of an answer that nothing follows was not sampled.
        body, own, tail = (last or "").rpartition(end.token)
        if end.appended:
            body, own, tail = (last or "") + end.appended.removesuffix(end.token), end.token, ""
        found = own and text.endswith(tail) and (plain.get("content") or "") in body
        cut = self._cut(body, longer or "", plain.get("content") or "") if found else None
        if cut is None or longer is None:
            why = "with the turns behind it the template prints something before it otherwise"
            raise _refused(at, why)
        piece = longer[cut - len(end.appended) :]
        if earlier:  # a template may count calls, or turns
            turns = [_plain(earlier[0]), *earlier[1:], plain, *turns[1:]]
            if not self._printed([*self._opening, *turns], **prompt).endswith(piece):
                raise _refused(at, "the template prints the turns behind it by their place")
        return text.removesuffix(tail) + piece

    def _last(self, plain: Turn) -> str:
        """The dialogue with an answer that nothing follows."""
        key = repr(plain)
        if key not in self._lasts:
            self._lasts[key] = self._printed([*self._opening, plain])
        return self._lasts[key]

    def _behind_prompt(self, text: str) -> str | None:
        """What a dialogue prints behind its first prompt; None where it begins otherwise."""
        if not text.startswith(self._before):
            return None
        at = len(self._before)
        return text[at + shared(text[at:], self._prompt[at:]) :]

    def _cut(self, body: str, longer: str, content: str) -> int | None:
        """Where the end of an answer stops in a text that begins with it: the first control token
        before which the answer stands as it does where nothing follows, with or without an empty
        block of reasoning before it."""
        for match in self._controls.finditer(longer):
            printed = longer[: match.start()]
            alike = body.endswith(printed) or printed.endswith(body)
            if body == printed or (body and printed and alike and content in printed):
                return match.end()
        return None


def _refused(at: int, why: str) -> RowError:
    detail = f"nothing can be appended to turn {at + 1}: {why}; use --history rendered"
    return RowError("not_prefix_stable", detail)


def shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    if other.startswith(one):
        return len(one)
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _plain(answer: Turn) -> dict[str, Any]:
    """An answer with the same calls, and with nothing that a template might rewrite."""
    kept = {name: value for name, value in answer.items() if name not in reasoning.SPELLINGS}
    if answer.get("content") or not answer.get(turn_ends.CALLS):
        kept["content"] = "Yes."
    return kept
