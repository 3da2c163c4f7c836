"""Counts what builds do: calls, bytes hashed, texts encoded, files opened, bytes read and written,
memory taken.

    python tests/counted.py calls|memory CACHE TASK FILE...

Builds each file in this process, after one build that is not counted, and prints a JSON object for
each. Run in a process of its own: it puts counters into the place of what it counts.
"""

import cProfile
import hashlib
import json
import os
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = str(Path(__file__).parent.parent) + os.sep
OURS = tuple(
    f"{ROOT}{name}{os.sep}" for name in ("stages", "expectations", "pipeline", "posttrain_pipeline")
)
_IO = Path("/proc/self/io")
_HASHES = ("sha256", "sha1", "md5", "blake2b", "blake2s", "sha512")

found: Counter[str] = Counter()


def _bytes(data: Any) -> int:
    return memoryview(data).nbytes


class _Hash:
    """A hash that counts what it is given."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def update(self, data: Any) -> None:
        found["hashed"] += _bytes(data)
        self._made.update(data)

    def copy(self) -> "_Hash":
        return _Hash(self._made.copy())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def _hashing(make: Callable[..., Any]) -> Callable[..., _Hash]:
    def start(data: Any = b"", *given: Any, **named: Any) -> _Hash:
        found["hashed"] += _bytes(data)
        return _Hash(make(data, *given, **named))

    return start


def _at_once(make: Callable[..., Any]) -> Callable[..., Any]:
    def whole(data: Any, *given: Any, **named: Any) -> Any:
        found["hashed"] += _bytes(data) if not isinstance(data, str) else len(data.encode())
        return make(data, *given, **named)

    return whole


def _count_hashes() -> None:
    """Before anything of ours is imported, which may take the functions by name."""
    hashes: Any = hashlib
    of_file = hashlib.file_digest
    for name in _HASHES:
        setattr(hashes, name, _hashing(getattr(hashlib, name)))
    hashes.new = lambda name, *given, **named: getattr(hashes, name)(*given, **named)
    hashes.file_digest = lambda file, name: of_file(file, getattr(hashes, name))
    try:
        import xxhash
    except ImportError:
        return
    for name in [name for name in vars(xxhash) if name.startswith("xx")]:
        make = getattr(xxhash, name)
        counting = _at_once if name.endswith("digest") else _hashing
        setattr(xxhash, name, counting(make))


def _size(texts: Any) -> int:
    """Bytes of what an encoder is given."""
    if hasattr(texts, "nbytes"):
        return int(texts.nbytes)
    if isinstance(texts, bytes):
        return len(texts)
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _encoding(method: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, texts: Any, *given: Any, **named: Any) -> Any:
        found["encoder calls"] += 1
        found["encoded"] += _size(texts)
        return method(self, texts, *given, **named)

    return counted


def _count_encoders() -> None:
    from stages import encoders

    for backend in encoders.BACKENDS.values():
        kind: Any = backend
        for name in ("encode", "encode_whole"):
            setattr(kind, name, _encoding(getattr(kind, name)))


def _opening(make: Callable[..., Any]) -> Callable[..., Any]:
    def opened(*given: Any, **named: Any) -> Any:
        found["files"] += 1
        made = make(*given, **named)
        if make.__name__ == "memory_map":  # no system call reads its bytes
            found["read"] += made.size()
        return made

    return opened


def _count_files() -> None:
    import pyarrow as pa

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            found["files"] += 1

    sys.addaudithook(watch)
    arrow: Any = pa
    for name in ("OSFile", "memory_map"):  # which Python hears nothing of
        setattr(arrow, name, _opening(getattr(pa, name)))


def _spent() -> Counter[str]:
    """What this process has read and written, and what Arrow has asked for, since it began."""
    import pyarrow as pa

    pool = pa.default_memory_pool()
    made = {"allocations": pool.num_allocations(), "allocated": pool.total_bytes_allocated()}
    if _IO.exists():
        lines = (line.split(": ") for line in _IO.read_text().splitlines())
        told = {name: int(value) for name, value in lines}
        made |= {"read": told["rchar"], "written": told["wchar"]}
    return Counter(made)


def _build(task: str, source: Path, cache: Path, output: Path) -> None:
    from pipeline.options.config import Config
    from pipeline.run_build import build

    options: dict[str, Any] = {"workers": 1, "model": "qwen2-1.5b"}
    config = Config.of(task, (str(source),), output=output, cache_dir=cache, **options)
    build(config, lambda what, done, total: None)


def peak(task: str, source: Path, cache: Path, output: Path) -> dict[str, Any]:
    """The most bytes that Python and numpy held at a time during one build."""
    tracemalloc.start()
    _build(task, source, cache, output)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"peak": most, "functions": {}}


def counted(task: str, source: Path, cache: Path, output: Path) -> dict[str, Any]:
    """What one build does: calls of its main thread, and all else of its process.

    Returns:
        Counts by name, and ``functions``: calls of each function of ours.
    """
    found.clear()
    before = _spent()
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    try:
        _build(task, source, cache, output)
    finally:
        profile.disable()
    calls = {
        f"{one.code.co_filename.removeprefix(ROOT)}:{one.code.co_qualname}": one.callcount
        for one in profile.getstats()
        if isinstance(one.code, CodeType) and one.code.co_filename.startswith(OURS)
    }
    functions = dict(sorted(calls.items(), key=lambda item: -item[1]))
    spent = found + (_spent() - before)
    return {**spent, "calls": sum(calls.values()), "functions": functions}


def main(prepare: Callable[[], None] = lambda: None) -> None:
    """Build every file, and print the counts of all but the first build.

    Args:
        prepare: called once everything is counted.
    """
    what, cache, task, *files = sys.argv[1:]
    if what == "calls":
        _count_hashes()
        _count_encoders()
        _count_files()
    from pipeline.inputs import recipe

    recipe.FAST_FROM = 0  # one encoder for all sizes
    prepare()
    measure = {"calls": counted, "memory": peak}[what]
    with tempfile.TemporaryDirectory() as name:
        for number, source in enumerate([files[0], *files]):
            out = Path(name) / str(number)
            if number == 0:  # imports, and what is compiled once
                _build(task, Path(source), Path(name) / "first", out)
                continue
            parts = Path(name) / f"parts{number}"
            parts.mkdir()
            os.symlink(Path(cache) / "tokenizers", parts / "tokenizers")
            sys.stdout.write(json.dumps(measure(task, Path(source), parts, out)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
