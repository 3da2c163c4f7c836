"""A server on the loopback: one function answers all that it is asked."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What is sent back.

    Attributes:
        breaks_at: so many bytes of the body are sent, where not all are.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks_at: int | None = None


class Site:
    """Bytes by path, whole or in ranges, with an ETag of what is there at the time.

    Attributes:
        asked: method and path of each request.
        got: the ranges that were given, by path.
        ranges: whether it knows of any; ``tags``: whether it names versions.
        status: of all answers, where it is in trouble.
        cut: bytes that every whole answer lacks at its end; ``torn``: how many of ranges break off.
        before: called before each answer.
    """

    def __init__(self, *, ranges: bool = True) -> None:
        self.url = ""
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.got: dict[str, list[tuple[int, int]]] = {}
        self.ranges, self.tags, self.status, self.cut, self.torn = ranges, True, 200, 0, 0
        self.before: Callable[[], object] = lambda: None

    def answer(self, asked: Asked) -> Answer:
        """One request."""
        self.before()
        path = asked.path.partition("?")[0]
        self.asked.append(f"{asked.method} {path}")
        body = self.files.get(path)
        if body is None or self.status != 200:
            return Answer(404 if body is None else self.status)
        wanted = asked.headers.get("Range", "") if self.ranges else ""
        first, _, last = wanted.partition("=")[2].partition("-")
        start, stop = int(first or 0), min(int(last or len(body)) + 1, len(body))
        tags = {"ETag": f'"{hashlib.md5(body).hexdigest()}"'} if self.tags else {}
        tags |= {"Accept-Ranges": "bytes"} if self.ranges else {}
        breaks = stop - self.cut
        if asked.method == "GET":
            self.got.setdefault(path, []).append((start, stop))
            if wanted and self.torn:
                self.torn, breaks = self.torn - 1, (stop - start) // 2
        return Answer(206 if wanted else 200, body[start:stop], tags, breaks)


@contextmanager
def serve_http(answer: Callable[[Asked], Answer]) -> Iterator[str]:
    """Run it; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def _reply(self) -> None:
            said = answer(Asked(self.command, self.path, self.headers, self._body()))
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said.body[: said.breaks_at])

        do_GET = do_HEAD = do_POST = do_PUT = _reply  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Requests are no output of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
