"""Judges a build, in a process of its own where it can be.

Great Expectations takes seconds to import, and in a thread it would hold up everything else. So a
process begins to import it when a build begins, and waits there for the metrics to judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from expectations.contract import Context
from expectations.gx import library
from expectations.gx.suites import Suite
from expectations.verdict import Verdict
from pipeline.executors.local import Pool, Worker, receive, send
from pipeline.verdict import gate
from pipeline.verdict.gate import Evidence


def _apart(_: None, item: tuple[Evidence, Context] | None) -> Verdict | None:
    """What the other process does: import the library, then judge what it is sent."""
    if item is None:
        library.for_shipped_suites()
        return None
    return replace(gate.judge(*item, []), results=())


class Judge:
    """Judges one build.

    Attributes:
        users: the suites of the user. Their classes exist in this process alone, so builds with
            some are judged here.
    """

    def __init__(self, users: Sequence[Suite], pool: Pool | None) -> None:
        self.users = users
        self._pool = pool

    def __call__(self, evidence: Evidence, context: Context) -> Verdict:
        """Run the shipped suites and those of the user.

        Raises:
            GateError: an expectation could not be judged.
        """
        if self._pool is None:
            return gate.judge(evidence, context, self.users)
        (worker,) = self._pool.workers
        send(worker, (evidence, context))
        ready, judged = _answer(worker), _answer(worker)
        if ready is None or judged is None or not ready[0]:
            # It died, or could not import what it needs.
            return gate.judge(evidence, context, self.users)
        good, verdict = judged
        if not good:
            raise verdict
        assert isinstance(verdict, Verdict)
        return verdict


def _answer(worker: Worker) -> tuple[bool, Any] | None:
    worker.wait()
    return receive(worker)


@contextmanager
def judging(users: Sequence[Suite], apart: bool) -> Iterator[Judge]:
    """A judge, and with ``apart`` the process that it judges in, which ends with the block."""
    if not apart or users:
        yield Judge(users, None)
        return
    pool: Pool = Pool(_apart, None)
    pool.start()
    try:
        send(pool.workers[0], None)
        yield Judge(users, pool)
    finally:
        pool.stop()
