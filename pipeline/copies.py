"""Workers that are copies of a process which has imported and loaded what they need.

A new process of Python imports for a second and loads encoders for another, in every worker and in
every phase of a build. Here a copy of this process, made while it is still small and has no
threads, does that once, and then runs the pools of all phases with copies of itself.
"""

import gc
import importlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from pipeline import memory, processes
from pipeline.executors import SIGNALS, Job


def _serve(pipe: Connection, modules: Sequence[str], ahead: Callable[[], None]) -> None:
    processes.die_with_parent()
    memory.without_pandas()
    for name in modules:
        importlib.import_module(name)
    with suppress(Exception):  # whoever needs it finds it again, and says what is wrong
        ahead()
    pipe.send(None)  # from here on what is sent is read

    def work(asked: tuple[Any, ...]) -> None:
        function, shared, items, workers = asked
        getattr(shared, "load", _nothing)()
        gc.freeze()  # or collecting would copy the pages that workers share
        job = Job(lost=partial(_told, pipe, "lost"), partly=partial(_told, pipe, "partly"))
        for found in processes.pooled(function, shared, items, workers, "fork", job):
            pipe.send((True, found))

    processes.serve(pipe, work)


def _told(pipe: Connection, whom: str, *what: Any) -> None:
    pipe.send((None, (whom, what)))


def _nothing() -> None:
    return


class _Copied:
    """The process that is copied, as the process sees it that asks for work."""

    def __init__(self, modules: Sequence[str], ahead: Callable[[], None]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, modules, ahead))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._ready = False

    def _receive(self) -> Any:
        """What it sends next. An alarm that rings meanwhile is heard at once: a read that begins
        before there is something to read goes on behind it."""
        wait([self._pipe])
        return self._pipe.recv()

    def pmap(
        self,
        function: Callable[[Any, Any], Any],
        shared: Any,
        items: Sequence[Any],
        workers: int,
        job: Job,
    ) -> Iterator[tuple[int, Any]]:
        """As ``local.pmap``. If the process dies, other workers do what is left."""
        left = dict(enumerate(items))
        busy = True
        try:
            if not self._ready:  # what it does not read yet would hold up this process
                self._receive()
                self._ready = True
            self._pipe.send((function, shared, list(items), workers))
            while True:
                good, found = self._receive()
                if good is None:
                    whom, what = found
                    getattr(job, whom)(*what)
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
        others = replace(job, partly=lambda at, amount: job.partly(numbers[at], amount))
        for at, result in processes.pooled(
            function, shared, list(left.values()), workers, job=others
        ):
            yield numbers[at], result

    def stop(self) -> None:
        """End it and all its copies."""
        processes.copied = None
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextmanager
def copies(modules: Sequence[str], ahead: Callable[[], None] = _nothing) -> Iterator[None]:
    """Until the block ends, workers are copies of a process that has imported these modules, where
    this process can be copied itself.

    Args:
        ahead: loads there what workers will need, while nobody has asked for anything yet. It must
            leave no thread behind: a copy would not have it.
    """
    if processes.copied is not None or not processes.forkable():
        yield
        return
    copied = _Copied(modules, ahead)
    processes.copied = copied.pmap
    try:
        yield
    finally:
        if processes.copied is not None:  # or it was stopped already
            copied.stop()
