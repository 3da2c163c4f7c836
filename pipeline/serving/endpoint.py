"""Asks a server with OpenAI's HTTP interface, and compares its tokenizer and template.

Prompts go to ``/completions`` as ids, exactly as they were trained. ``/chat/completions`` would
render messages with the server's own template, and a build stores no messages. A server that takes
no ids gets the same prompt as text. Tokenizer and template are compared separately, through
``/tokenize`` (vLLM, SGLang) or ``/apply-template`` (llama.cpp).
"""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.serving.checkpoint import judge_template
from pipeline.serving.declared import ANSWERED, ASKED, Declared, Examined, StopPrompt
from stages.errors import SurroundingsError

_SHOWN = {"skip_special_tokens": False}  # of vLLM and SGLang; others refuse or ignore it
_UNTAKEN = (400, 404, 405, 415, 422, 500, 501)  # statuses of servers without an address or a field


@dataclass
class Server:
    """One server.

    Attributes:
        url: its base, such as ``http://localhost:8000/v1``.
        model: the name that it serves; if empty, the first that the server lists.
        key: of the interface; empty for none.
        as_text: prompts are sent as text, since the server took no ids.
        extras: fields that are not in OpenAI's interface; empty once the server refused them.
    """

    url: str
    model: str = ""
    key: str = ""
    timeout: float = 300.0
    as_text: bool = False
    extras: dict[str, Any] = field(default_factory=lambda: dict(_SHOWN))

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")
        if not self.model:
            listed = self.call("GET", f"{self.url}/models").get("data") or [{}]
            self.model = str(listed[0].get("id", ""))

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def call(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request; returns the JSON object of the reply.

        Raises:
            SurroundingsError: there is no reply, it is not JSON, or its status is an error, which
                ``errno`` then has.
        """
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                reply = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            reason = error.read(300).decode("utf-8", "replace")
            problem = SurroundingsError(
                f"{url} answers {error.code}: {' '.join(reason.split())}.",
                "Give the base URL, which ends in /v1, and the name of the model with --served.",
            )
            problem.errno = error.code
            raise problem from error
        except (OSError, ValueError) as error:
            raise SurroundingsError(
                f"{url} cannot be reached: {error}.", "Start the server, and check the URL."
            ) from error
        return reply if isinstance(reply, dict) else {"found": reply}

    def _maybe(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The reply of an address that not every server has; None from a server without it."""
        try:
            return self.call("POST", f"{self.root}{path}", body)
        except SurroundingsError as error:
            if error.errno in _UNTAKEN:
                return None
            raise

    def tokens(self, text: str) -> list[int] | None:
        """Ids that the server's tokenizer gives a text; None if it does not show them."""
        bodies: tuple[dict[str, Any], ...] = (  # as vLLM takes it, then as llama.cpp does
            {"model": self.model, "prompt": text, "add_special_tokens": False},
            {"content": text, "add_special": False, "parse_special": True},
        )
        return next(filter(None, map(self._tokenized, bodies)), None)

    def _tokenized(self, body: dict[str, Any]) -> list[int] | None:
        """Ids of what a server is asked to encode; None where it does not show them."""
        reply = self._maybe("/tokenize", body)
        if reply and isinstance(reply.get("tokens"), list) and reply["tokens"]:
            return [int(token) for token in reply["tokens"]]
        return None

    def rendered(
        self, messages: list[dict[str, Any]], prompt: bool, arguments: dict[str, Any]
    ) -> list[int] | str | None:
        """Ids or text of messages by the server's template; None where it does not show them."""
        body = {"model": self.model, "messages": messages, "add_generation_prompt": prompt}
        body |= {"chat_template_kwargs": arguments}
        ids = self._tokenized(body)
        if ids is not None:
            return ids
        reply = self._maybe("/apply-template", body)
        return str(reply["prompt"]) if reply and "prompt" in reply else None

    def complete(self, prompts: Sequence[StopPrompt], **settings: Any) -> list[dict[str, Any]]:
        """A completion for each prompt, in one request.

        A server may refuse ids, or fields that are not in OpenAI's interface. The first request
        tries the forms one after another, and later ones use the form that was accepted.

        Raises:
            SurroundingsError: the request failed in every form, or for another reason.
        """
        while True:
            given = [p.text if self.as_text else list(p.ids) for p in prompts]
            body = {"model": self.model, "prompt": given if len(given) > 1 else given[0]}
            try:
                reply = self.call("POST", f"{self.url}/completions", body | settings | self.extras)
            except SurroundingsError as error:
                if error.errno not in (400, 422) or (self.as_text and not self.extras):
                    raise
                # After ids with extras: ids without, text with, text without.
                self.as_text = self.as_text or not self.extras
                self.extras = {} if self.extras else dict(_SHOWN)
                continue
            choices = sorted(reply.get("choices", []), key=lambda one: one.get("index", 0))
            return [{**one, "usage": reply.get("usage") or {}} for one in choices]


def compare(server: Server, build: Declared, asked: list[StopPrompt], examined: Examined) -> None:
    """Compare the server's tokenizer and template with the build's, as far as it shows them."""
    _tokenizer(server, build, asked, examined)
    use = "Compare its template yourself: the build's is in tokenizer/tokenizer_config.json."
    whole = server.rendered(ANSWERED, prompt=False, arguments={})
    if whole is None:
        what = "the server does not show how its chat template renders messages"
        examined.add("template_not_shown", server.url, what, use, fault=False)
        return
    opened = server.rendered(ASKED, prompt=True, arguments=build.arguments)
    texts = [
        build.tokenizer.decode(one, skip_special_tokens=False) if isinstance(one, list) else one
        for one in (whole, opened)
    ]
    judge_template(
        build,
        where=f"{server.url} (chat template)",
        whole=str(texts[0]),
        prompt=texts[1],
        examined=examined,
    )


def _tokenizer(
    server: Server, build: Declared, asked: list[StopPrompt], examined: Examined
) -> None:
    serve = (
        f"Start the server with the build's tokenizer (vLLM: --tokenizer {build.folder}/tokenizer)"
        ", or serve the directory that pipeline overlay writes."
    )
    for prompt in asked:
        mine = build.tokenizer.encode(prompt.text, add_special_tokens=False).ids
        theirs = server.tokens(prompt.text)
        if theirs is None:
            _by_count(server, asked[0], mine, serve, examined)
            return
        if theirs != mine:
            what = f"the server's tokenizer gives the prompt of {prompt.row} {len(theirs)} ids"
            what += f", but the build's gives {len(mine)}, or other ids"
            examined.add("other_tokenizer", server.url, what, serve)
            return
    for text, index in build.serving.added_tokens.items():
        if (theirs := server.tokens(text)) != [index]:
            what = f"the server writes {text!r} as {theirs}, but the build as {index}"
            examined.add("other_tokenizer", server.url, what, serve)


def _by_count(
    server: Server, prompt: StopPrompt, mine: list[int], serve: str, examined: Examined
) -> None:
    """Compare the number of tokens of a prompt, for servers that show no ids.

    The prompt is sent as text, so that the server has to encode it; ``usage`` then has the number.
    """
    before = server.as_text
    server.as_text = True
    try:
        usage = server.complete([prompt], max_tokens=1, temperature=0)[0]["usage"]
    except SurroundingsError:  # prompts as ids only
        usage = {}
    server.as_text = before
    theirs = usage.get("prompt_tokens")
    if theirs is not None and theirs not in (len(mine), len(mine) + 1):  # one more is a bos
        what = f"it counts {theirs} tokens in the prompt of {prompt.row}, but the build {len(mine)}"
        examined.add("other_tokenizer", server.url, what, serve)
        return
    seen = "nothing of its tokenizer" if theirs is None else "the number of tokens of a prompt"
    what = f"the server shows no ids, so {seen} was compared"
    remedy = "Compare the model directory that it loads: pipeline stops DIR --tokenizer-only."
    examined.add("tokenizer_not_shown", server.url, what, remedy, fault=False)
