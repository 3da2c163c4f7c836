"""The witness: says what rows must have become, from nothing that the build has made of them.

It is given a case (plain values: where the inputs are, what the user was told of their reading, and
the folder that will be published), and shares no code with what it judges::

    raw      the bytes of a row, by its position in its file
    said     what a row says; ``talks``, ``pairs`` and ``steps`` have the shapes of each task
    tokens   what that is in tokens, by ``transformers`` over the folder ``tokenizer/``
    stored   which rows are drawn, and the examples of them that the shards have
    attest   both side by side

What it cannot read it does not judge: such rows are counted, each with the reason.
"""

import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


def library(alone: bool = False) -> Any:
    """What loads tokenizers; it needs no torch, and takes half a second to import.

    Args:
        alone: nothing else is asked of it in this process, so it need not look for models.
    """
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch
    with uncollected(), _tokenizers_alone() if alone else nullcontext():
        from transformers import AutoTokenizer

    return AutoTokenizer


_SOUGHT = re.compile(
    r".*/transformers/models/(?!auto/)\w+/(?!(tokenization|configuration|__init__))"
)


@contextmanager
def _tokenizers_alone() -> Iterator[None]:
    """Meanwhile files of models are not seen, in which the library would look for names."""
    scan = os.scandir

    @contextmanager
    def some(folder: Any = ".") -> Iterator[list[os.DirEntry[str]]]:
        with scan(folder) as entries:
            yield [one for one in entries if one.is_dir() or not _SOUGHT.match(one.path)]

    vars(os)["scandir"] = some
    try:
        yield
    finally:
        vars(os)["scandir"] = scan


@contextmanager
def uncollected() -> Iterator[None]:
    """Meanwhile nothing is collected: what a tokenizer or a library is made of stays."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
