"""Runs ``pipeline`` in this process and says where its processor time goes.

    python benchmarks/sampled.py OUT.json ARGUMENTS OF PIPELINE...

A thread looks at the main thread every few milliseconds. The processor time that the main thread
has spent since the last look goes to the net at work, if one is: the innermost that stands in
``NETS``. Nothing is wrapped.
"""

import atexit
import json
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

ROOT = str(Path(__file__).parent.parent) + os.sep
# Where each net begins, by the name that docs/reliability.md gives it.
NETS = {
    "invariants while parts are made": ("expectations/gate.py:Validate.__call__",),
    "the witness": ("pipeline/builder/witnessed.py:hear",),
    "texts by the reference": (
        "stages/tokenizers/survival.py:Sample.__call__",
        "pipeline/shards/values.py:check_values",
    ),
    "what a part is made with": (
        "pipeline/inputs/declared.py:made_with",
        "pipeline/shards/storage.py:_require_made_with",
    ),
    "invariants on the shards, judged by Great Expectations": (
        "pipeline/shards/measured.py:measure",
        "pipeline/shards/pack_index.py:measure",
        "pipeline/builder/judge.py:Judge.ask",
    ),
    "files beside the shards": ("pipeline/builder/side_files.py:require",),
    "exports": (
        "pipeline/builder/export_gate.py:require",
        "pipeline/builder/export_gate.py:require_scripts",
    ),
}
_NET_OF = {place: net for net, places in NETS.items() for place in places}
_EVERY = 0.002  # seconds between two looks


def net_of(frame: FrameType | None) -> str | None:
    """The net that is at work; None where none is."""
    while frame is not None:
        code = frame.f_code
        net = _NET_OF.get(f"{code.co_filename.removeprefix(ROOT)}:{code.co_qualname}")
        if net is not None:
            return net
        frame = frame.f_back
    return None


class Sampler(threading.Thread):
    """Looks at the main thread until it is told to stop.

    Attributes:
        nets: seconds of the main thread's processor time by the net at work.
        own: seconds that the looks themselves took; thousands of them add up where a build waits.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.nets: dict[str, float] = defaultdict(float)
        self.own = 0.0
        self.stop = threading.Event()
        self._main = threading.main_thread().ident or 0

    def run(self) -> None:
        """Look, and charge the time since the last look to where the thread stands."""
        clock = time.pthread_getcpuclockid(self._main)
        before = time.clock_gettime(clock)
        while not self.stop.wait(_EVERY):
            frame = sys._current_frames().get(self._main)
            now = time.clock_gettime(clock)
            if (net := net_of(frame)) is not None:
                self.nets[net] += now - before
            before = now
        self.own = time.thread_time()


def _write(out: Path, sampler: Sampler, process: int) -> None:
    if os.getpid() != process:
        return  # a fork, which has inherited this
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    main = time.clock_gettime(time.pthread_getcpuclockid(threading.main_thread().ident or 0))
    sampler.stop.set()
    sampler.join()
    thread = own.ru_utime + own.ru_stime
    content = {
        "main_thread": main,
        "other_threads": max(0.0, thread - main - sampler.own),
        "children": children.ru_utime + children.ru_stime,
        "nets": sampler.nets,
    }
    out.write_text(json.dumps(content, indent=1))


def main() -> None:
    """Start the sampler, then the program."""
    out = Path(sys.argv.pop(1))
    sys.argv[0] = "pipeline"
    sampler = Sampler()
    sampler.start()
    atexit.register(_write, out, sampler, os.getpid())
    sys.path[0] = ROOT
    from posttrain_pipeline.command import main as command

    command()


if __name__ == "__main__":
    main()
