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

import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.chat_template import reasoning
from stages.chat_template.template import Template
from stages.errors import RowError

RENDERED, APPENDED = "rendered", "appended"  # --history
Turn = Mapping[str, Any]


class Appended(Template):
    """A chat template that prints conversations with an appended history.

    Args:
        ends: finds the tokens that end turns.
        source, date, tokens: as of ``Template``.
    """

    def __init__(self, ends: re.Pattern[str], source: str, date: str, **tokens: str) -> None:
        super().__init__(source, date, **tokens)
        self._ends = ends

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
        printed = functools.partial(super().render, tools=tools)
        dialogue = _Dialogue(printed, messages[: answers[0]], self._ends)
        text = printed(messages[: answers[0] + 1])
        for at, following in itertools.pairwise(answers):
            text = dialogue.appended(text, at, messages[at : following + 1])
        if follows:
            text = dialogue.appended(text, answers[-1], messages[answers[-1] :], **prompt)
        return text


class _Dialogue:
    """Prints what follows answers of one conversation, each in a dialogue that begins as it does.

    Args:
        printed: renders turns.
        opening: the turns before the first answer.
        ends: as of ``Appended``.
    """

    def __init__(
        self, printed: Callable[..., str], opening: Sequence[Turn], ends: re.Pattern[str]
    ) -> None:
        self._printed = printed
        self._opening = opening
        self._ends = ends
        self._prompt = printed(opening, add_generation_prompt=True)
        # Behind the last turn some templates print the end of the text.
        self._before = self._prompt[: _shared(printed(opening), self._prompt)]
        self._tails: dict[str, str | None] = {}

    def appended(self, text: str, at: int, turns: Sequence[Turn], **prompt: Any) -> str:
        """A text that ends with an answer, and what is printed for the turns behind that.

        Args:
            at: index of the answer in the conversation; ``turns``: the answer and those turns.
            prompt: whether the generation prompt follows, and what it is printed with.
        """
        plain = _plain(turns[0])
        longer = self._printed([*self._opening, plain, *turns[1:]], **prompt)
        try:
            end, tail = self._end(longer), self._tail(plain)
        except ValueError:
            end, tail = None, None
        if end is None or not text.endswith(tail or ""):
            detail = f"nothing can be appended to turn {at + 1}: with the turns behind it the "
            detail += "template prints something before it otherwise; use --history rendered"
            raise RowError("not_prefix_stable", detail)
        # Where no token of its own ends an answer, the opener of the next turn does.
        behind = end.start() if tail is None else end.end()
        return text.removesuffix(tail or "") + longer[behind:]

    def _end(self, text: str) -> re.Match[str] | None:
        """The end of the first answer of a text.

        Raises:
            ValueError: the text does not begin with what stands before the first answer.
        """
        if not text.startswith(self._before):
            raise ValueError
        at = len(self._before)
        return self._ends.search(text, at + _shared(text[at:], self._prompt[at:]))

    def _tail(self, plain: Turn) -> str | None:
        """What is printed behind the end of an answer that nothing follows; None without an end."""
        key = repr(plain)
        if key not in self._tails:
            text = self._printed([*self._opening, plain])
            end = self._end(text)
            self._tails[key] = None if end is None else text[end.end() :]
        return self._tails[key]


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    if other.startswith(one):
        return len(one)
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _plain(answer: Turn) -> dict[str, Any]:
    """An answer with the same calls, and with nothing that a template might rewrite."""
    kept = {name: value for name, value in answer.items() if name not in reasoning.SPELLINGS}
    if answer.get("content") or not answer.get("tool_calls"):
        kept["content"] = "Yes."
    return kept
