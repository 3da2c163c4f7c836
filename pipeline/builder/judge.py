"""Judges a build, in a process of its own where it can be.

Great Expectations takes two seconds to import. A process imports it while the build is made, and
waits there for the metrics to judge; while it judges, the build goes on with what does not need the
verdict. It needs only a part of the library, so this costs less than to judge here, also with one
worker. The witness, which imports ``transformers``, is heard in a process of the same kind.
"""

import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from expectations import contract, gx_library, gx_suites, invariants
from expectations.witness import hugging_face
from expectations.witness.attest import Statement
from pipeline.builder import gate, witnessed
from pipeline.options.config import Config
from pipeline.processes import Pool, Work, Worker, forkable
from stages.findings import Validation


def _apart(_: None, item: tuple[gate.Evidence, contract.Context] | None) -> Validation | None:
    """What the other process does: import what it needs, then judge what it is sent."""
    if item is None:
        gx_library.for_shipped_suites()
        invariants.subjects()  # imported now, not when somebody waits
        return None
    return gate.judge(*item)


def _heard(_: None, case: Mapping[str, Any] | str | None) -> Statement:
    """What another process does for the witness: it imports, it loads the tokenizer of a folder,
    and it hears a case."""
    if case is None:
        hugging_face.for_tokenizers()
    elif isinstance(case, str):
        hugging_face.tokenizer_of(case)
    else:
        return witnessed.hear(case)
    return Statement()


_Told = TypeVar("_Told")
_WORK, _HEARD = Work(_apart, None), Work(_heard, None)


class Judge:
    """Judges one build. As a context it ends its process.

    Raises:
        UsageError: the folder for Data Docs has other files.
        GateError: a suite of the user does not load.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pool = Pool()
        self._worker: Worker | None = None
        self._listener: Worker | None = None
        self._told = 1  # what the listener does before it is asked
        if config.run.data_docs is not None:
            gate.check(config.run.data_docs)
        own = config.judge.expectations
        self._users: Sequence[gx_suites.Suite] = gate.user_suites(own) if own else ()
        if _has_own_process(config):
            pa.array([""])  # imports pandas, which all three need: once, before there are copies
            self._worker = self._pool.start()
            self._worker.give(_WORK, None)
            self._listener = self._pool.start()
            self._listener.give(_HEARD, None)

    @property
    def wants_tables(self) -> bool:
        """Whether somebody's own suite or page is about every row, not only those that decide."""
        return bool(self._users) or self._config.run.data_docs is not None

    def ask(self, evidence: gate.Evidence, context: contract.Context) -> Callable[[], Validation]:
        """Let the shipped suites and those of the user be run.

        Returns:
            What waits for the verdict, and gives it; to be called once. It raises ``GateError``
            where an expectation could not be judged.
        """
        here = partial(gate.judge, evidence, context, self._users, self._config.run.data_docs)
        return _asked(self._worker, _WORK, (evidence, context), here)

    def expect(self, tokenizer: Path) -> None:
        """Let the witness load the tokenizer of a build that it will be asked about."""
        if self._listener is not None:
            self._listener.give(_HEARD, str(tokenizer))
            self._told += 1

    def hear(self, case: Mapping[str, Any]) -> Callable[[], Statement]:
        """Let the witness be heard; returns what waits for it, to be called once."""
        here = partial(witnessed.hear, case)
        return _asked(self._listener, _HEARD, case, here, before=self._told)

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.stop()


def _asked(
    worker: Worker | None, work: Work, item: Any, here: Callable[[], _Told], before: int = 1
) -> Callable[[], _Told]:
    """Give a process its item; what waits for the answer, behind those of so many items before. It
    is found here where there is no such process, it died, or could not import what it needs."""
    if worker is None:
        return here
    worker.give(work, item)

    def told() -> _Told:
        ready = [_answer(worker) for _ in range(before)]
        answer = _answer(worker)
        if answer is None or not all(one is not None and one[0] for one in ready):
            return here()
        good, found = answer
        if not good:
            raise found
        answered: _Told = found
        return answered

    return told


def _answer(worker: Worker) -> tuple[bool | None, Any] | None:
    worker.wait()
    return worker.receive()


def _has_own_process(config: Config) -> bool:
    """Whether there is something to gain from one, and it can judge.

    A user's file may define expectations, which are not sent to another process; and results that
    are written down as pages are not sent back.
    """
    if config.judge.expectations or config.run.data_docs is not None:
        return False
    if "great_expectations" in sys.modules or multiprocessing.current_process().daemon:
        return False
    return forkable() or config.run.processes > 1
