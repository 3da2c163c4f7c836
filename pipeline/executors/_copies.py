"""Workers that are copies of a process which has imported and loaded what they need.

A new process of Python imports for a second and loads encoders for another, in every worker and in
every phase of a build. Here a copy of this process, made while it is still small and has no
threads, does that once, and then runs the pools of all phases with copies of itself.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from pipeline import memory
from pipeline.executors import local
from stages.errors import PipelineError


def _serve(pipe: Connection, modules: Sequence[str]) -> None:
    local.die_with_parent()
    memory.without_pandas()
    for name in modules:
        importlib.import_module(name)
    while True:
        try:
            function, shared, items, workers = pipe.recv()
        except EOFError:
            return
        try:
            getattr(shared, "load", _nothing)()
            gc.freeze()  # or collecting would copy the pages that workers share
            lost = partial(_told, pipe)
            for found in local.pooled(function, shared, items, workers, "fork", lost):
                pipe.send((True, found))
            answer: tuple[bool, Any] = (True, None)
        except Exception as error:  # carried to the process that asked, which raises it
            answer = (False, error)
        try:
            pipe.send(answer)
        except Exception as error:  # an exception that cannot be pickled
            pipe.send((False, PipelineError(f"{type(answer[1]).__name__}: {error}")))


def _told(pipe: Connection, text: str) -> None:
    pipe.send((None, text))


def _nothing() -> None:
    return


class _Copied:
    """The process that is copied, as the process sees it that asks for work."""

    def __init__(self, modules: Sequence[str]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, modules))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def pmap(
        self,
        function: Callable[[Any, Any], Any],
        shared: Any,
        items: Sequence[Any],
        workers: int,
        lost: Callable[[str], None],
    ) -> Iterator[tuple[int, Any]]:
        """As ``local.pmap``. If the process dies, other workers do what is left."""
        left = dict(enumerate(items))
        busy = True
        try:
            self._pipe.send((function, shared, list(items), workers))
            while True:
                good, found = self._pipe.recv()
                if good is None:
                    lost(found)
                    continue
                if not good:
                    busy = False
                    raise found
                if found is None:
                    busy = False
                    return
                del left[found[0]]
                yield found
        except (EOFError, BrokenPipeError, ConnectionResetError):
            if not busy:
                raise
        finally:
            if busy:
                self.stop()
        numbers = list(left)
        for at, result in local.pooled(function, shared, list(left.values()), workers, lost=lost):
            yield numbers[at], result

    def stop(self) -> None:
        """End it and all its copies."""
        local.copied = None
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextmanager
def copies(modules: Sequence[str]) -> Iterator[None]:
    """Until the block ends, workers are copies of a process that has imported these modules, where
    this process can be copied itself."""
    if local.copied is not None or not local.forkable():
        yield
        return
    copied = _Copied(modules)
    local.copied = copied.pmap
    try:
        yield
    finally:
        if local.copied is not None:  # or it was stopped already
            copied.stop()
