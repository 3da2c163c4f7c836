"""Parses a build's tokenizer while the program is still being imported.

Both take a third of a second. The library that parses lets other threads run meanwhile. What is
found here is only kept for whoever asks for it: nothing depends on it, and no error is reported.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from pipeline import tasks
from pipeline.options.config import Config
from stages.models.encoders import parsed
from stages.models.profile import ModelProfile, RankLayout, tokenizer_of
from stages.profiles import all_profiles
from stages.tokenizers import builtin


@contextmanager
def tokenizer(config: Config) -> Iterator[None]:
    """Until the block ends, a thread parses the tokenizer of a built-in profile, if the cache has
    it. No other process may be forked meanwhile."""
    profile = all_profiles().get(config.parts.model)
    if profile is None or profile.ranks is None or config.parts.add_token:
        yield
        return
    # Only here: two threads that import modules which import each other would meet half of one.
    importlib.import_module("tokenizers")
    with_steps = tasks.load(config.task).with_steps
    arguments = (profile, profile.ranks, config.run.cache, with_steps)
    thread = Thread(target=_parse, args=arguments)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _parse(profile: ModelProfile, layout: RankLayout, cache: Path, with_steps: bool) -> None:
    content = builtin.kept(layout, cache)
    if content is not None:
        with suppress(Exception):
            parsed(tokenizer_of(profile, content, with_steps))
