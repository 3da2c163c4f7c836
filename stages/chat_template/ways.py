"""The ways in which a conversation is printed, so that its answers follow their prompts.

Most templates print a conversation so that it begins with the prompt of each answer. Some do so
only with the keywords of that prompt (Gemma 4 opens the system turn otherwise), or print reasoning
only then. And some print the turns of a prompt otherwise than in a conversation that goes on
(gpt-oss drops the reasoning of calls once an answer follows): there the last turn is put behind the
prompt that inference would feed.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from stages.chat_template import printed_fields
from stages.chat_template.segments import Span
from stages.chat_template.template import Template
from stages.chat_template.trained_spans import Chat, Found, Seen, Spans
from stages.chat_template.turn_ends import Ends, asks
from stages.contract import Message
from stages.errors import RowError

UNPROMPTED = "not_prefix_stable"  # the code of rows whose answers do not follow their prompts
_OTHERWISE = (UNPROMPTED, "lost_in_template")  # what other keywords may print


class Way:
    """One setting of a template's keywords, in which conversations are printed."""

    def __init__(self, template: Template, spans: Spans) -> None:
        self.template, self.spans = template, spans
        self._printed = printed_fields.Printed(template)
        self.proved: dict[Hashable, bool | None] = {}

    def rendered(self, turns: Sequence[Message], seen: Seen, tools: list[Any] | None) -> str:
        """What the template prints, and what ends the last turn if that does not."""
        return self.template.render(seen, tools) + self.spans.appended(turns)

    def read(self, chat: Chat) -> tuple[str, list[Span]]:
        """A conversation's text, and its trained spans."""
        printed = self.template.render(chat.seen, chat.tools)
        text = printed + self.spans.appended(chat.turns)
        spans = self.spans(chat, text)
        self._printed.require(chat, printed)
        return text, spans


class Ways:
    """All ways in which a template prints a conversation.

    Args:
        ends, variants, train_all: as of ``compile.Compiler``.
    """

    def __init__(
        self, template: Template, ends: Ends, variants: Sequence[dict[str, Any]], train_all: bool
    ) -> None:
        self.plain = Way(template, Spans(template, ends, variants, train_all))
        given = [(template.given(one), one) for one in variants if one]
        self._all = [self.plain, *(Way(t, Spans(t, ends, [one], train_all)) for t, one in given)]
        self._train_all = train_all

    def first(self, read: Callable[[Way], Found]) -> Found:
        """What is read in the first way that prints all, and answers behind their prompts.

        Raises:
            RowError: that of the way without keywords, where none is left.
        """
        errors = []
        for way in self._all:
            try:
                return read(way)
            except RowError as error:
                errors.append(error)
                if error.code not in _OTHERWISE:
                    break
        raise errors[0]

    def behind_prompt(
        self, turns: Sequence[Message], tools: list[Any] | None
    ) -> tuple[str, int] | None:
        """The last turn behind the prompt that inference would feed, and where it starts.

        It is printed as behind a plain question.

        Returns:
            None where another turn is trained, or the template prints the last one otherwise there.
        """
        last = len(turns) - 1
        if self._train_all or [i for i, turn in enumerate(turns) if turn.trained] != [last]:
            return None
        seen = [turn.seen() for turn in turns]
        question = asks("x")
        for way in self._all:
            opened, prompt = (
                way.template.render(before, tools, add_generation_prompt=True)
                for before in ([question], seen[:-1])
            )
            alone, whole = (
                way.rendered(turns, all_seen, tools) for all_seen in ([question, seen[-1]], seen)
            )
            turn = alone.removeprefix(opened)
            if alone.startswith(opened) and whole.endswith(turn):
                return prompt + turn, len(prompt)
        return None

    def located(
        self, turns: Sequence[Message], tools: list[Any] | None
    ) -> tuple[Way | None, str, list[Span]]:
        """A conversation's text and trained spans, and the way that they are printed in; None where
        only the last turn is, behind its prompt."""
        try:
            return self.first(lambda way: (way, *way.read(Chat(turns, tools, placed=False))))
        except RowError as error:
            found = self.behind_prompt(turns, tools) if error.code == UNPROMPTED else None
            if found is None:
                raise
        text, start = found
        chat = Chat(turns, tools, placed=False)
        return None, text, [(start, self.plain.spans.stop(chat, text, len(turns) - 1, start))]
