"""Judges a build, in a process of its own where it can be.

Great Expectations takes a second to import, and in a thread it would hold up everything else. So a
process begins to import it when a build begins, and waits there for the metrics to judge; while it
judges, the build goes on with what does not need the verdict. It needs only a part of the library,
so this costs less than to judge here, also with one worker.

Nothing that judges is imported here before it is needed: this file is loaded first of all.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from expectations import gx_library

if TYPE_CHECKING:
    from expectations.contract import Context
    from expectations.gx_suites import Suite
    from pipeline.builder.gate import Evidence
    from pipeline.options.config import Config
    from pipeline.processes import Pool, Worker
    from stages.findings import Validation


def _apart(_: None, item: tuple[Evidence, Context] | None) -> Validation | None:
    """What the other process does: import what it needs, then judge what it is sent."""
    if item is None:
        gx_library.for_shipped_suites()
        from expectations import invariants
        from pipeline.builder import gate

        invariants.subjects()  # imported now, not when somebody waits
        gc.freeze()  # all of it stays
        return None
    from pipeline.builder import gate

    return gate.judge(*item)


class Judge:
    """Judges one build. As a context it ends its process."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._users: Sequence[Suite] = ()
        self._pool: Pool | None = None

    @property
    def wants_tables(self) -> bool:
        """Whether somebody's own suite or page is about every row, not only those that decide."""
        return bool(self._users) or self._config.run.data_docs is not None

    def start(self) -> None:
        """Start the process that judges, where there is something to gain from one."""
        method = None if self._pool else _method(self._config)
        if method is not None:
            from pipeline.processes import Pool, send

            self._pool = Pool(_apart, None, method, pandas=True)
            self._pool.start()
            send(self._pool.workers[0], None)

    def prepare(self) -> None:
        """Load the suites of the user, and start the process.

        Raises:
            UsageError: the folder for Data Docs has other files.
            GateError: a suite does not load.
        """
        if self._config.run.data_docs is not None:
            from pipeline.builder import gate

            gate.check(self._config.run.data_docs)
        if self._config.judge.expectations:
            from pipeline.builder import gate

            self._users = gate.user_suites(self._config.judge.expectations)
        self.start()

    def ask(self, evidence: Evidence, context: Context) -> Callable[[], Validation]:
        """Let the shipped suites and those of the user be run.

        Returns:
            What waits for the verdict, and gives it; to be called once. It raises ``GateError``
            where an expectation could not be judged.
        """
        if self._pool is not None:
            from pipeline.processes import send

            send(self._pool.workers[0], (evidence, context))
        return partial(self._verdict, evidence, context)

    def _verdict(self, evidence: Evidence, context: Context) -> Validation:
        if self._pool is not None:
            (worker,) = self._pool.workers
            ready, judged = _answer(worker), _answer(worker)
            if ready is not None and judged is not None and ready[0]:
                good, verdict = judged
                if not good:
                    raise verdict
                found: Validation = verdict
                return found
        from pipeline.builder import gate

        # There is no such process, or it died, or it could not import what it needs.
        return gate.judge(evidence, context, self._users, self._config.run.data_docs)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.stop()


def _answer(worker: Worker) -> tuple[bool | None, Any] | None:
    from pipeline.processes import receive

    worker.wait()
    return receive(worker)


def _method(config: Config) -> str | None:
    """How the process is started; None where this one judges.

    A user's file may define expectations, which are not sent to another process; and results that
    are written down as pages are not sent back.
    """
    if config.judge.expectations or config.run.data_docs is not None:
        return None
    import multiprocessing

    from pipeline.processes import forkable

    if "great_expectations" in sys.modules or multiprocessing.current_process().daemon:
        return None
    if forkable():
        return "fork"
    return "spawn" if config.run.processes > 1 else None
