"""The command line without its start: forks of a process that has imported all it needs.

A command takes seconds to import what it uses, and the tests run hundreds of them. One process
imports it once for all processes of a test run, loads one model's tokenizers and forks for every
command. Nothing is encoded in it before the fork, so a child is what a fresh process is after its
start. What concerns the start itself is tested with real processes.

    python tests/preloaded.py FD     accepts connections on a socket until its stdin ends. Requests
                                     are lines of JSON, and each is answered with a status
"""

import fcntl
import functools
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
# What runs when it is imported, and what needs packages that the tests have not.
NOT_IMPORTED = (
    "pipeline.__main__",
    "pipeline.ray",
    "pipeline.torch_data",
    "posttrain_pipeline.__main__",
)


class Server:
    """A client's end: who first needs the process starts it, and ends it."""

    def __init__(self, address: Path) -> None:
        """Args: address: of the socket; those who give the same share a process."""
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX)
        self._stream: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(
        self, arguments: list[str], cwd: Path, environment: dict[str, str], before: str = ""
    ) -> int:
        """Run a command; its output goes to ``cwd``'s neighbours ``.out`` and ``.err``.

        Args:
            before: code that its process runs first.

        Returns:
            The exit status.
        """
        if self._stream is None:
            with self._address.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._connect(environment)
            self._stream = self._socket.makefile("rw")
        request = {"arguments": arguments, "cwd": str(cwd), "environment": environment}
        self._stream.write(json.dumps({**request, "before": before}) + "\n")
        self._stream.flush()
        return int(self._stream.readline())

    def _connect(self, environment: dict[str, str]) -> None:
        try:
            self._socket.connect(str(self._address))
        except OSError:  # nobody has started it, or who did is gone
            self._address.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(self._address))
                listening.listen()
                number = listening.fileno()
                self._process = subprocess.Popen(
                    [sys.executable, str(Path(__file__)), str(number)],
                    stdin=subprocess.PIPE,
                    env=environment,
                    pass_fds=[number],
                )
            self._socket.connect(str(self._address))

    def stop(self) -> None:
        """Leave the process; who has started it waits until the others have left it, too."""
        if self._stream is not None:
            self._stream.close()
        self._socket.close()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def outputs(cwd: Path) -> tuple[Path, Path]:
    """Where a command's stdout and stderr go."""
    return cwd.with_name(f"{cwd.name}.out"), cwd.with_name(f"{cwd.name}.err")


def _become(request: dict[str, Any]) -> None:
    """Run the command in this process, and end it."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, path in enumerate(outputs(Path(request["cwd"])), start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["pipeline", *request["arguments"]]
    status = 1
    try:
        shipped_judge.install()
        exec(request["before"], {})
        from posttrain_pipeline.commands import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _Library:
    """The witness's, which loads equal files once: a tokenizer stays what it was loaded from."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._loaded: dict[bytes, Any] = {}

    def from_pretrained(self, folder: str, **given: Any) -> Any:
        """What the library's own would return."""
        digest = hashlib.sha256()
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        if digest.digest() not in self._loaded:
            for old in [*self._loaded][3:]:
                del self._loaded[old]
            self._loaded[digest.digest()] = self._library.from_pretrained(folder, **given)
        return self._loaded[digest.digest()]


def keep_tokenizers() -> None:
    """Let the witness load equal tokenizers once."""
    from expectations.witness import hugging_face

    library = hugging_face.library
    vars(hugging_face)["library"] = functools.cache(lambda: _Library(library()))


def load_tokenizers(cache: Path) -> None:
    """Both encoders of the model that most tests build for, with step tokens and without, the
    tokenizers that its builds publish, as the witness loads them, and its template, compiled.

    They are only loaded: encoding would start threads, which a fork does not take along.
    """
    from expectations.witness import hugging_face
    from pipeline.serving.serving import write_tokenizer
    from stages import encoders
    from stages.chat_template.render import template_of_profile
    from stages.profile import with_step_tokens
    from stages.tokenizers import builtin, probes
    from stages.tokenizers.profiles import all_profiles

    profile = all_profiles()["qwen2-1.5b"]
    assert profile.ranks is not None
    data = builtin.tokenizer_json(profile, profile.ranks, cache)
    keep_tokenizers()
    template_of_profile(profile)
    for with_steps in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            child = os.fork()
            if not child:
                with suppress(BaseException):
                    model = probes.bind(profile, data, with_steps=with_steps)
                    write_tokenizer(Path(folder) / "tokenizer", model)
                    os._exit(0)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            folder = f"{folder}/tokenizer"
            published = hugging_face.library().from_pretrained(folder, local_files_only=True)
            published.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
    for tokenizer in (data, with_step_tokens(data, profile.step_tokens)):
        for backend in encoders.BACKENDS:
            encoders.load(backend, tokenizer)


def load(cache: Path | None = None) -> None:
    """Import everything, and make what each command would make.

    Args:
        cache: of tokenizers [the program's].
    """
    from pipeline import executors

    executors.keep_freed()
    importlib.import_module("datasets")  # which check opens builds with
    importlib.import_module("pandas")  # which pyarrow would look for
    importlib.import_module("polars")  # imported only: its threads start with its first expression
    for package in ("pipeline", "stages", "expectations", "posttrain_pipeline"):
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
            if not module.name.startswith(NOT_IMPORTED):
                importlib.import_module(module.name)

    from expectations import gx_library
    from pipeline import exports, lines, serving
    from pipeline.builder import plan_page
    from pipeline.builds import summary
    from pipeline.inputs.declared import code_version
    from pipeline.options.build_options import default_cache
    from pipeline.report import card
    from pipeline.report import page as report

    gx_library.registry()
    report.prepare()
    summary.said("sources", [], "")
    card.template()
    plan_page.template()
    for folder in (Path(serving.__path__[0]), Path(exports.__path__[0]) / "scripts"):
        for name in lines.templates(folder).list_templates(["jinja"]):
            lines.templates(folder).get_template(name)
    assert lines.templates(Path(exports.__path__[0])).get_template("details.jinja").module
    code_version()
    load_tokenizers(cache or default_cache())
    vars(os)["fsync"] = lambda handle: None  # no test cuts the power
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # it comes seldom: it took a fifth of a small build's time


def serve(listening: socket.socket) -> None:
    """Fork for every client until stdin ends, and then wait for those who are still served."""
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            answer(connection.makefile("rw"))
            os._exit(0)
        connection.close()
    listening.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()


def answer(client: IO[str]) -> None:
    """Fork for every request, and say how the child ended."""
    for line in client:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, ended = os.waitpid(child, 0)
        client.write(f"{os.waitstatus_to_exitcode(ended)}\n")
        client.flush()


if __name__ == "__main__":
    import shipped_judge

    sys.path.pop(0)  # this folder is no place to import from
    load()
    serve(socket.socket(fileno=int(sys.argv[1])))
