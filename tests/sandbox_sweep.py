"""Templates that do everything with everything: each must end soon, in little memory.

The process limits itself, so that nothing that it tries can harm whoever tries it.

    python tests/sandbox_sweep.py SEED COUNT      tries COUNT templates; 0 tries all

It prints what broke a bound as lines of JSON, and ``{"tried": n}`` last.
"""

import itertools
import json
import random
import resource
import signal
import sys
import time
import tomllib
from pathlib import Path

SECONDS, BYTES = 6, 3 << 29  # of processor time and of new memory, for one template

TABLES = tomllib.loads((Path(__file__).parent / "tables" / "sandbox_sweep.toml").read_text("utf-8"))
VALUES, ARGUMENTS = TABLES["values"], TABLES["arguments"]
KINDS = (str, bytes, int, float, list, tuple, dict, set, range, type({}.items()), type(len))


def expressions() -> list[str]:
    """All that is tried with a value ``v``: methods, filters, tests, globals, operators, slices."""
    from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_NAMESPACE, DEFAULT_TESTS

    names = {name for kind in KINDS for name in dir(kind) if not name.startswith("__")}
    names.update(TABLES["names"])
    given = [one for values in ARGUMENTS.values() for one in (values or ("",))]
    found = [f"v.{name}" for name in sorted(names)]
    found += [f"v.{name}({one})" for name in sorted(names) for one in given]
    found += [f"v|{name}({one})" for name in sorted(DEFAULT_FILTERS) for one in given]
    found += [f"v is {name}({one})" for name in sorted(DEFAULT_TESTS) for one in given if one]
    found += [f"{name}({one})" for name in sorted(DEFAULT_NAMESPACE) for one in ("v, v", "n=v")]
    found += [f"v|map('{name}')|list" for name in sorted(DEFAULT_FILTERS)]
    found += [f"v|select('{name}', v)|list" for name in sorted(DEFAULT_TESTS) if name.isalpha()]
    found += [one for sign in TABLES["operators"].split() for one in (f"v {sign} w", f"w {sign} v")]
    return found + TABLES["others"]


def templates() -> list[tuple[str, str, str]]:
    """Each value with each expression, every other one in loops: value, expression, source."""
    again = "{% for i in range(99999) %}{% for j in range(99999) %}"
    found = []
    for (name, value), expression in itertools.product(VALUES.items(), expressions()):
        other = VALUES["small" if "*" in expression else "text"]
        source = (
            f"{{% macro macro(a=1) %}}{{{{ a }}}}{{% endmacro %}}{{% for one in [1] %}}"
            f"{{% set v = {value} %}}{{% set w = {other} %}}"
            f"{again if len(found) % 2 else ''}{{{{ {expression} }}}}"
            f"{'{% endfor %}{% endfor %}' if len(found) % 2 else ''}{{% endfor %}}"
        )
        found.append((name, expression, source))
    return found


def _is_trouble(message: str) -> bool:
    """Whether an error says that the process had no more memory, or says far too much."""
    return "MemoryError" in message or len(message) > 900


def _say(found: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


def _peak() -> int:
    """Bytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def sweep(seed: int, count: int) -> int:
    """Try templates, and print those that took more than they may; how many were tried."""
    from stages.chat_template.template import Template
    from stages.errors import ModelError, RowError

    def late(_: int, frame: object) -> None:
        raise TimeoutError("it takes too long")

    signal.signal(signal.SIGVTALRM, late)
    chosen = templates()
    random.Random(seed).shuffle(chosen)
    chosen = chosen[: count or None]
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + BYTES, mapped + BYTES))
    for name, expression, source in chosen:
        began, what = time.process_time(), ""
        signal.setitimer(signal.ITIMER_VIRTUAL, 2 * SECONDS)
        try:
            Template(source, "2026-01-01").render([{"role": "user", "content": "x"}])
        except (ModelError, RowError) as error:
            what = str(error)[-90:] if _is_trouble(str(error)) else ""
        except (Exception, MemoryError) as error:  # a template has none of its own
            what = f"{type(error).__name__}: {error}"[:200]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        spent = time.process_time() - began
        if what or spent > SECONDS:
            broken = {"value": name, "expression": expression, "seconds": spent, "what": what}
            _say(broken)
    return len(chosen)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)
    done = sweep(int(sys.argv[1]), int(sys.argv[2]))
    _say({"tried": done, "peak": _peak()})
