"""A hub on the loopback that takes commits: git files, large files by their hashes, one branch."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stub_http import Answer, Asked, serve_http

LARGE = (".arrow", ".parquet", "tokenizer.json")


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass
class HubStub:
    """Its repositories of datasets.

    Attributes:
        commits: of each repository: files by path, oldest first.
        objects: large files, by sha256.
        puts: hashes of the large files that were sent, in order.
        breaks_at: refuse the large file of this number (from 0), and all that follow.
        breaks_commit: refuse commits.
        damages: store large files with a byte changed.
        private: of the repositories that were created.
        branches: names that were asked for; all of them have the same commits.
    """

    commits: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    puts: list[str] = field(default_factory=list)
    breaks_at: int | None = None
    breaks_commit: bool = False
    damages: bool = False
    private: dict[str, bool] = field(default_factory=dict)
    branches: list[str] = field(default_factory=list)
    url: str = ""

    def sha(self, name: str) -> str:
        """The latest commit."""
        return f"{len(self.commits[name]):040x}"

    def files(self, name: str) -> dict[str, bytes]:
        """Of the latest commit."""
        return self.commits[name][-1]

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """Status and content."""
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path.endswith(".git/info/lfs/objects/batch"):
            return 200, {"objects": [self._object(one) for one in json.loads(body)["objects"]]}
        name = "/".join(parts[2:4])
        if parts[:2] != ["api", "datasets"] or name not in self.commits:
            return 404, {"error": "no such repository"}
        if parts[4] == "preupload":
            return 200, {"files": [self._mode(one) for one in json.loads(body)["files"]]}
        if parts[4] == "branch":
            self.branches.append(parts[5])
            return (409 if parts[5] in self.branches[:-1] else 200), {}
        if parts[4] == "commit":
            return self._commit(name, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": f"no {path}"}

    def _create(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = f"{body['organization']}/{body['name']}"
        if name in self.commits:
            return 409, {"error": "it exists"}
        self.commits[name] = [{".gitattributes": b"*.arrow filter=lfs\n"}]
        self.private[name] = body.get("visibility") == "private" or bool(body.get("private"))
        return 200, {"url": f"{self.url}/datasets/{name}"}

    def _object(self, one: dict[str, Any]) -> dict[str, Any]:
        if one["oid"] in self.objects:
            return {**one}
        return {**one, "actions": {"upload": {"href": f"{self.url}/objects/{one['oid']}"}}}

    def _mode(self, one: dict[str, Any]) -> dict[str, Any]:
        large = one["path"].endswith(LARGE)
        mode = "lfs" if large else "regular"
        return {"path": one["path"], "uploadMode": mode, "shouldIgnore": False}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> tuple[int, Any]:
        if self.breaks_commit:
            return 400, {"error": "not now"}
        if lines[0]["value"].get("parentCommit") not in (None, self.sha(name)):
            return 412, {"error": "a commit has happened since"}
        files = dict(self.files(name))
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.objects:
                    return 400, {"error": f"{value['oid']} was not sent"}
                files[value["path"]] = self.objects[value["oid"]]
            else:
                del files[value["path"]]
        self.commits[name].append(files)
        return 200, {
            "commitUrl": f"{self.url}/datasets/{name}/commit/{self.sha(name)}",
            "commitOid": self.sha(name),
            "success": True,
        }

    def put(self, path: str, body: bytes) -> int:
        """A large file."""
        if self.breaks_at is not None and len(self.puts) >= self.breaks_at:
            return 400
        oid = path.rpartition("/")[2]
        self.puts.append(oid)
        self.objects[oid] = body[:-1] + bytes([body[-1] ^ 1]) if self.damages else body
        return 200

    def get(self, path: str) -> tuple[int, Any]:
        """Status, and content: bytes of a file, or JSON."""
        parts = path.strip("/").split("/")
        name = "/".join(parts[2:4]) if parts[0] == "api" else "/".join(parts[1:3])
        if name not in self.commits:
            return 404, {"error": "no such repository"}
        if parts[0] == "datasets":  # /datasets/org/name/resolve/COMMIT/path
            return 200, self.files(name)["/".join(parts[5:])]
        if "tree" in parts:
            return 200, [
                self._entry(*one) for one in self.commits[name][int(parts[5], 16) - 1].items()
            ]
        return 200, {"id": name, "sha": self.sha(name), "siblings": []}

    def _entry(self, path: str, data: bytes) -> dict[str, Any]:
        entry = {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
        if path.endswith(LARGE):
            sha256 = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": 130}
        return entry


@contextmanager
def serve_hub(stub: HubStub) -> Iterator[str]:
    """Run it; gives its address, which ``HF_ENDPOINT`` takes."""

    def answer(asked: Asked) -> Answer:
        path = asked.path.partition("?")[0]
        if asked.method == "PUT":
            status, content = stub.put(asked.path, asked.body), {}
        elif asked.method == "POST":
            status, content = stub.post(path, asked.body)
        else:
            status, content = stub.get(path)
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return Answer(status, data, {"X-Error-Code": "RepoNotFound"} if status == 404 else {})

    with serve_http(answer) as stub.url:
        yield stub.url
