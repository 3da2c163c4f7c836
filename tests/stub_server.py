"""A server with OpenAI's interface and vLLM's ``/tokenize``; its model answers as it is told to."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import stub_http
from tokenizers import Tokenizer

from stages.chat_template.template import Template

END = "<|im_end|>"


@dataclass
class Stub:
    """What the server is.

    Attributes:
        learnt: its model ends its answers.
        stops: ids at which it stops by itself.
        takes_ids: its completions take prompts of ids, and options of vLLM.
        shows: it has ``/tokenize``.
        seen: bodies of the requests for completions.
    """

    tokenizer: Tokenizer
    template: str
    learnt: bool = True
    stops: tuple[int, ...] = (151645,)
    takes_ids: bool = True
    shows: bool = True
    seen: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and content."""
        if path == "/v1/models":
            return 200, {"data": [{"id": "stub"}]}
        if path == "/tokenize" and self.shows:
            return 200, {"tokens": self._tokens(body)}
        if path == "/v1/completions":
            return self._complete(body)
        return 404, {"error": "there is no such address"}

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        text = body.get("prompt")
        if text is None:
            text = Template(self.template, "2024-07-26").render(
                body["messages"],
                add_generation_prompt=body["add_generation_prompt"],
                **body.get("chat_template_kwargs", {}),
            )
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.seen.append(body)
        given = body["prompt"]
        many = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
        first = many[0] if isinstance(many[0], str) else ""
        if not self.takes_ids and (not first or "skip_special_tokens" in body):
            return 400, {"error": "prompt must be a text"}
        usage = {"prompt_tokens": len(self.tokenizer.encode(first).ids), "completion_tokens": 3}
        choices = [{"index": i, **self._choice(body)} for i in range(len(many))]
        return 200, {"choices": list(reversed(choices)), "usage": usage}

    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.learnt and 151645 in self.stops:
            return {"text": "They are 5.", "finish_reason": "stop", "stop_reason": None}
        if self.learnt and 151645 in body.get("stop_token_ids", ()):
            return {"text": "They are 5.", "finish_reason": "stop", "stop_reason": 151645}
        end = END if self.learnt and body.get("skip_special_tokens") is False else ""
        return {"text": f"They are 5.{end} and so on", "finish_reason": "length"}


Answer = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]


@contextmanager
def serve_json(answer: Answer) -> Iterator[str]:
    """Run a server on the loopback; gives its base URL.

    Args:
        answer: status and content for a path and a body, which is empty for GET.
    """

    def reply(asked: stub_http.Asked) -> stub_http.Answer:
        status, content = answer(asked.path, json.loads(asked.body or b"{}"))
        return stub_http.Answer(status, json.dumps(content).encode())

    with stub_http.serve_http(reply) as url:
        yield f"{url}/v1"


def serve(stub: Stub) -> AbstractContextManager[str]:
    """Run the stub; gives its base URL."""
    return serve_json(stub.answer)
