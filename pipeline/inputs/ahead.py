"""Parses a build's tokenizer while the program is still being imported, and loads encoders where
workers come from while the build is prepared.

The library that parses lets other threads run meanwhile. What is found here is only kept for
whoever asks for it: nothing depends on it, and no error is reported.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from pipeline import tasks
from pipeline.options.config import Config
from stages.encoders import Fast, Reference, load, parsed
from stages.profile import ModelProfile, tokenizer_of
from stages.tokenizers import builtin
from stages.tokenizers.profiles import named

FAST_FROM = 1 << 20  # bytes of inputs: fewer are encoded sooner than the fast encoder is loaded


@contextmanager
def tokenizer(config: Config) -> Iterator[None]:
    """Until the block ends, a thread parses the tokenizer of a built-in profile, if the cache has
    it. No other process may be forked meanwhile."""
    profile = _built_in(config)
    if profile is None:
        yield
        return
    # Only here: two threads that import modules which import each other would meet half of one.
    importlib.import_module("tokenizers")
    thread = Thread(target=_parse, args=(config, profile))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def encoders(config: Config, fast: bool) -> None:
    """Load the encoders of a built-in profile, if the cache has its tokenizer; nothing is encoded,
    which would leave a thread behind.

    Args:
        fast: there is so much to encode that the fast one will be wanted.
    """
    profile = _built_in(config)
    content = None if profile is None else _content(config, profile)
    if content is not None:
        load(Reference.name, content)
        if fast:
            load(Fast.name, content)


def _built_in(config: Config) -> ModelProfile | None:
    """The profile whose tokenizer follows from its name; None where it takes more to know it."""
    profile = named(config.parts.model)
    known = profile is not None and profile.ranks is not None and not config.parts.add_token
    return profile if known else None


def _content(config: Config, profile: ModelProfile) -> bytes | None:
    """The tokenizer as the build will have it; None where the cache does not have it."""
    assert profile.ranks is not None
    content = builtin.kept(profile.ranks, config.run.cache)
    with_steps = tasks.load(config.task).with_steps
    return None if content is None else tokenizer_of(profile, content, with_steps)


def _parse(config: Config, profile: ModelProfile) -> None:
    with suppress(Exception):
        content = _content(config, profile)
        if content is not None:
            parsed(content)
