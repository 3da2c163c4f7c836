"""The text of a conversation, printed a second time, and where its answers start in it.

The template runs on the conversation as it is, once for the whole and once for the prompt of each
answer.
"""

from typing import Any, TypeAlias

from stages.chat_template import reasoning
from stages.chat_template.render import template_of
from stages.chat_template.template import Template
from stages.errors import ReadingError, RowError
from stages.profile import TargetModel

MOST = 32  # answers of a row that are read twice, since each takes a rendering of its prompt
_FOLLOWING = "What follows."
_NEAR = 12  # characters at the end of a text that are compared
_Turns: TypeAlias = list[dict[str, Any]]
_Way: TypeAlias = tuple[Template, list[dict[str, Any]]]  # and the keywords of its prompts


class SecondText:
    """Prints conversations of one model."""

    def __init__(self, model: TargetModel, history: str) -> None:
        profile = model.profile
        self._ends = profile.ends
        template = template_of(model, history)
        prompts = [dict(variant) for variant in profile.template_variants]
        # A conversation is printed with the keywords of its prompt where it needs them.
        self._ways: list[_Way] = [(template, prompts)]
        self._ways += [(template.given(one), [one]) for one in prompts if one]

    def rendered(self, turns: _Turns) -> str:
        """What the template prints, without tools."""
        return self._rendered(self._ways[0], turns, None)

    def __call__(
        self, turns: _Turns, tools: list[Any] | None, answers: list[int]
    ) -> tuple[str, list[int]]:
        """A conversation's text up to the end of its last turn, and where its answers start."""
        errors = []
        thoughts = [turns[i].get(name) for i in answers for name in reasoning.SPELLINGS]
        ways = self._ways
        if any(thoughts):
            ways = sorted(ways, key=lambda way: not self._prints(way, turns, tools, thoughts))
        for way in ways:
            text = self._rendered(way, turns, tools)
            try:
                starts = [self._start(way, text, turns[:i], tools) for i in answers[:MOST]]
                if answers[-1:] == [len(turns) - 1]:
                    start = self._start(way, text, turns[:-1], tools)
                    text += self._lacking(way, text[start:], turns, tools)
            except ReadingError as error:
                errors.append(error)
                continue
            return text, starts
        for way in self._ways if answers == [len(turns) - 1] else ():
            # The template prints the prompt otherwise: the last turn is as behind a question.
            asked = [{"role": "user", "content": _FOLLOWING}]
            opened = way[0].render(asked, tools, add_generation_prompt=True)
            alone = self._rendered(way, [*asked, turns[-1]], tools)
            turn = alone.removeprefix(opened)
            if turn != alone and self._rendered(way, turns, tools).endswith(turn):
                prompt = way[0].render(turns[:-1], tools, add_generation_prompt=True)
                return prompt + turn + self._lacking(way, turn, turns, tools), [len(prompt)]
        raise errors[0]

    def _prints(
        self, way: _Way, turns: _Turns, tools: list[Any] | None, thoughts: list[Any]
    ) -> bool:
        """Whether the text has all of the reasoning that its answers have."""
        try:
            text = self._rendered(way, turns, tools)
        except ReadingError:  # the template refuses these keywords
            return False
        return all(thought.strip() in text for thought in thoughts if isinstance(thought, str))

    def _rendered(self, way: _Way, seen: _Turns, tools: list[Any] | None) -> str:
        try:
            return way[0].render(seen, tools)
        except RowError as error:
            raise ReadingError(
                f"the template refuses it the second time: {error.detail}"
            ) from error

    def end(self, turn: dict[str, Any]) -> str:
        """The token that ends a turn of an assistant."""
        answer, call = self._ends
        return call if turn.get("tool_calls") else answer

    def _lacking(self, way: _Way, text: str, turns: _Turns, tools: list[Any] | None) -> str:
        """What the template prints behind the text of the last turn, up to its end, only if another
        turn follows."""
        end = self.end(turns[-1])
        if end in text:
            return ""
        following = {"role": "user", "content": _FOLLOWING}
        for call in turns[-1].get("tool_calls") or ():
            function = call.get("function") or {}
            named = {"name": function.get("name"), "tool_call_id": call.get("id")}
            following |= {"role": "tool", **named}
        try:
            longer = way[0].render([*turns, following], tools).rpartition(_FOLLOWING)[0]
        except RowError:
            return ""
        before, found, _ = longer.rpartition(end)
        own = text[-_NEAR:]
        return before.rpartition(own)[2] + end if found and own in before else ""

    def _start(self, way: _Way, text: str, before: _Turns, tools: list[Any] | None) -> int:
        """Where an answer starts: behind the longest generation prompt that begins the text."""
        template, variants = way
        prompts = [
            template.render(before, tools, add_generation_prompt=True, **variant)
            for variant in variants
        ]
        fitting = [len(prompt) for prompt in prompts if text.startswith(prompt)]
        if not fitting:
            raise ReadingError(f"turn {len(before) + 1} does not come after its own prompt.")
        return max(fitting)
