"""A hub on the loopback that takes commits: git files, large files by their hashes, one branch.

Of datasets and of models alike; what is read of either may name a commit.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stub_http import Answer, Asked, serve_http

LARGE = (".arrow", ".parquet", "tokenizer.json")
GATED = "someone/gated"


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _told(status: int, content: Any) -> Answer:
    headers = {"Content-Type": "application/json"}
    headers |= {"X-Error-Code": "RepoNotFound"} if status == 404 else {}
    return Answer(status, json.dumps(content).encode(), headers)


@dataclass
class HubStub:
    """Its repositories.

    Attributes:
        asked: paths of all requests.
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
    asked: list[str] = field(default_factory=list)
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

    def get(self, path: str) -> Answer:
        """A file, or what is told of a repository: of the commit in the path, or the latest."""
        parts = path.strip("/").split("/")
        if parts == [""]:
            return Answer()
        at = parts.index("resolve") if "resolve" in parts else 4
        name, file = "/".join(parts[at - 2 : at]), "/".join(parts[at + 2 :])
        if name == GATED:
            return Answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        known = {f"{n:040x}": files for n, files in enumerate(self.commits.get(name, ()), 1)}
        revision = next((part for part in parts if part in known), next(reversed(known), ""))
        files = known.get(revision)
        if files is None or ("resolve" in parts and file not in files):
            return _told(404, {"error": "no such repository"})
        if "resolve" in parts:
            tag = f'"{hashlib.sha256(files[file]).hexdigest()}"'
            return Answer(200, files[file], {"ETag": tag, "X-Repo-Commit": revision})
        if "tree" in parts:
            return _told(200, [self._entry(*one) for one in files.items()])
        siblings = [{"rfilename": one} for one in files]
        return _told(200, {"id": name, "sha": revision, "siblings": siblings})

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
        stub.asked.append(asked.path)
        path = asked.path.partition("?")[0]
        if asked.method == "PUT":
            return _told(stub.put(asked.path, asked.body), {})
        return _told(*stub.post(path, asked.body)) if asked.method == "POST" else stub.get(path)

    with serve_http(answer) as stub.url:
        yield stub.url
