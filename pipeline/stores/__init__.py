"""Where bytes lie: folders, stores that fsspec knows, the hub; data is read from them in ranges.

store = open_store("s3://bucket/place")
store.put("manifest.json", content)          one request, whole or not at all
store.put_if("lock", content, None)          False where somebody was first
store.exchange("current", change)            what is there, for what follows from it
"""

import os
import re
from os import PathLike, fspath
from urllib.parse import unquote, urlsplit

from pipeline.secrets import redacted
from pipeline.stores.object_store import Stat as Stat
from pipeline.stores.object_store import Store as Store

# Of two letters or more; pathlib drops one of the slashes.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


def address_of(path: str | PathLike[str]) -> str:
    """The address that a path is, also where pathlib dropped a slash of it; empty where it is a
    path of this machine."""
    text = fspath(path)
    if _ADDRESS.match(text) is None or text.lower().startswith("file:"):
        return ""
    return _ADDRESS.sub(r"\1://", text, count=1)


def is_address(path: str | PathLike[str]) -> bool:
    """Whether it names a place in a store."""
    return bool(address_of(path))


def open_store(address: str | PathLike[str]) -> Store:
    """The store at an address, or in a folder; nothing is asked of it yet.

    Raises:
        UsageError: fsspec knows none, or its package is not installed.
    """
    from pipeline.stores.filesystem import filesystem_of

    url, text = address_of(address), fspath(address)
    if url:
        filesystem, root = filesystem_of(url)
        return Store(filesystem, root.rstrip("/"), redacted(url).rstrip("/"))
    from fsspec.implementations.local import LocalFileSystem

    folder = unquote(urlsplit(text).path) if "://" in text else text
    return Store(LocalFileSystem(), os.path.abspath(folder), folder)


def shown(path: str | PathLike[str]) -> str:
    """A path or an address, as messages say it: without keys and signatures."""
    return redacted(address_of(path) or fspath(path))
