"""The hub route, against a server on this machine that answers as the hub does."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stub_http import Answer, Asked, serve_http
from support import SAMPLES, Ran, few, read_manifest

from stages.tokenizers.profiles import all_profiles

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "89abcdef0123456789abcdef0123456789abcdef"
MODEL = "someone/some-model"
GATED = "someone/gated"


class Hub:
    """One model with two commits; notes what is asked."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.url = ""

    def answer(self, asked: Asked) -> Answer:
        """As the hub does, of its files and of one repository that is gated."""
        self.asked.append(asked.path)
        parts = asked.path.split("?")[0].strip("/").split("/")
        if GATED in asked.path:
            return Answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        if "tree" in parts and MODEL in asked.path:
            return _json(
                [
                    {"type": "file", "path": name, "size": len(body), "oid": "0" * 40}
                    for name, body in self.files.items()
                ]
            )
        if parts[:2] == ["api", "models"] and MODEL in asked.path:
            sha = OTHER if parts[-1] == OTHER else COMMIT
            return _json(
                {"id": MODEL, "sha": sha, "siblings": [{"rfilename": name} for name in self.files]}
            )
        if "resolve" in parts and parts[-1] in self.files:
            body = self.files[parts[-1]]
            tag = f'"{hashlib.sha256(body).hexdigest()}"'
            commit = parts[parts.index("resolve") + 1]
            return Answer(200, body, {"ETag": tag, "X-Repo-Commit": commit})
        return Answer() if parts == [""] else Answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})


def _json(content: object) -> Answer:
    return Answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def hub(tokenizer_json) -> Iterator[Hub]:
    """A hub that serves a Qwen2-like model."""
    profile = all_profiles()["qwen2-1.5b"]
    config = {
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": profile.chat_template,
    }
    served = Hub(
        {
            "tokenizer.json": tokenizer_json,
            "tokenizer_config.json": json.dumps(config).encode(),
            "config.json": b'{"vocab_size": 151936, "max_position_embeddings": 32768}',
            "model.safetensors": b"not asked for",
        }
    )
    with serve_http(served.answer) as served.url:
        yield served


@pytest.fixture
def build(hub, tmp_path, pipeline) -> Callable[[str, str, str], Ran]:
    """Build the sample data with a model of that hub."""

    def run(model: str, output: str, offline: str = "0", *, fetch: bool = True) -> Ran:
        data = SAMPLES / "sft" / "chat.jsonl"
        flags = ("--quiet", "--fetch") if fetch else ("--quiet",)
        return pipeline(
            "run", "sft", data, "--model", model, "-o", output, *flags,
            HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path / "hf"), HF_HUB_OFFLINE=offline,
            HF_HUB_DISABLE_XET="1", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1",
        )  # fmt: skip

    return run


def _record(folder: Path) -> tuple[str, str, str | None]:
    found = json.loads((folder / "run.json").read_text("utf-8"))
    return found["tokenizer_source"], found["tokenizer_revision"], found["fetched"]


@pytest.mark.slow
def test_a_hub_model_is_fetched_once_and_its_commit_recorded(hub, build, tmp_path):
    """``HF_ENDPOINT`` is asked, ``HF_HOME`` keeps the files, and offline the cache answers; what it
    has not is named with the command. ``org/name@revision`` is that commit, and another build."""
    for model, there, *said in (
        (f"{MODEL}@{OTHER}", MODEL, "HF_HUB_OFFLINE forbids to ask the hub", f"--revision {OTHER}"),
        ("deepseek-r1-distill-llama-8b", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
    ):
        build(model, "nothing", "1").refused(2, f"hf download {there} tokenizer.json", *said)
    build(MODEL, "online").ended()
    assert _record(tmp_path / "online") == ("hub", COMMIT, f"{MODEL}@{COMMIT} of the hub")
    fetched = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert fetched == {"tokenizer.json", "tokenizer_config.json", "config.json"}
    online = read_manifest(tmp_path / "online")
    assert online["model"]["revision"] == COMMIT
    hub.asked.clear()
    build(MODEL, "offline", "1").ended()
    assert hub.asked == []
    assert _record(tmp_path / "offline") == ("hub cache", COMMIT, None)
    assert read_manifest(tmp_path / "offline") == online
    build(f"{MODEL}@{OTHER}", "pinned").ended()
    assert _record(tmp_path / "pinned") == ("hub", OTHER, f"{MODEL}@{OTHER} of the hub")
    assert read_manifest(tmp_path / "pinned")["model"]["revision"] == OTHER


@pytest.mark.parametrize("model", few([MODEL, "deepseek-r1-distill-llama-8b"], 1))
def test_the_hub_is_asked_only_with_fetch(model, hub, build):
    """An id, and a profile whose tokenizer only the hub has: one error, and no request."""
    build(model, "asked", fetch=False).refused(2, "Add --fetch", "hf download")
    assert hub.asked == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "message"),
    few([("someone/nothing", "The hub has no model"), (GATED, "accepted its licence")], 1),
)
def test_what_the_hub_refuses_is_one_error(model, message, build):
    """A missing model and a gated one are told apart."""
    assert "Traceback" not in build(model, "refused").refused(2, message).err
