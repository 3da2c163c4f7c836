"""The import of ``transformers``, which takes seconds; it needs no torch.

Most of them are for names: it reads every file of its five hundred models, twice, to know which
classes they have. A process that loads tokenizers alone needs those of tokenizers, so there the
other files are read as if they were empty. What loads a tokenizer is the same.
"""

import functools
import io
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

_MODELS = "models"  # the folder that has one for each
_TOKENIZERS = "tokenization_"  # how the names of files begin that have tokenizers
_READS = "transformers.utils.import_utils"  # what reads them


def library() -> Any:
    """What loads tokenizers."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch
    from transformers import AutoTokenizer

    return AutoTokenizer


def tokenizer_of(folder: str) -> Any:
    """The tokenizer of a folder; one that was loaded last, and has not changed, is still there."""
    return _loaded(folder, *((one.path, one.stat().st_mtime_ns) for one in os.scandir(folder)))


@functools.lru_cache(1)
def _loaded(folder: str, *_: tuple[str, int]) -> Any:
    return library().from_pretrained(folder, local_files_only=True)


def for_tokenizers() -> None:
    """Import it in a process that loads tokenizers alone."""
    sys.meta_path.insert(0, _Finder)
    try:
        library()
    finally:
        sys.meta_path.remove(_Finder)


class _Finder:
    """An import hook for the module that reads the files of models."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name == _READS else None
        if found is not None and found.origin is not None:
            found.loader = _Loader(name, found.origin)
        return found


class _Loader(SourceFileLoader):
    """Loads it, and lets it read tokenizers alone where it is asked for all models."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        names = vars(module)
        named = names.get("define_import_structure")
        known = names.get("create_import_structure_from_path")
        if named is None or known is None:  # another version, which may read in another way
            return

        def of_models(path: str | Path, *prefix: str, **named_prefix: str) -> Any:
            folder = Path(path) if Path(path).is_dir() else Path(path).parent
            if folder.name != _MODELS:
                return named(path, *prefix, **named_prefix)
            names["open"] = _opened
            try:
                return named(path, *prefix, **named_prefix)
            finally:
                del names["open"]
                known.cache_clear()  # of folders that may be asked for alone

        names["define_import_structure"] = of_models


def _opened(path: str, **how: Any) -> Any:
    """A file of tokenizers, or an empty one."""
    if Path(path).name.startswith(_TOKENIZERS):
        return Path(path).open(**how)
    return io.StringIO()
