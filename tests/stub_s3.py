"""A store like S3 on the loopback (moto's server), and the log of what it was asked."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_COLOUR = r"(?:\x1b\[[0-9;]*m)*"  # of what failed
_REQUEST = re.compile(rf'"{_COLOUR}([A-Z]+) ([^ ]+) HTTP/[0-9.]+{_COLOUR}" (\d+)')
BUCKET = "data"


@dataclass(frozen=True)
class S3Stub:
    """A running server.

    Attributes:
        url: its address; ``log``: the file of its requests.
    """

    url: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process finds the store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    @property
    def requests(self) -> list[tuple[str, str, int]]:
        """Method, path with its query, and status of each request so far."""
        found = _REQUEST.findall(self.log.read_text("utf-8", "replace"))
        return [(method, path, int(status)) for method, path, status in found]


@contextmanager
def serve_s3(folder: Path) -> Iterator[S3Stub]:
    """A server with one empty bucket; ``folder`` is for its log."""
    pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # those of a server that was here before
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "requests.log"
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1"]
    with log.open("wb") as file:
        server = subprocess.Popen([*command, "-p", str(port)], stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        url = f"http://127.0.0.1:{port}"
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
        client.create_bucket(Bucket=BUCKET)
        yield S3Stub(url, log)
    finally:
        server.terminate()
        server.wait(30)
