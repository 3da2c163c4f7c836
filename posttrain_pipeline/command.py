"""The console scripts: they check that the imported packages are ours, then start the program."""

from __future__ import annotations

import json
import sys
from typing import NoReturn

from posttrain_pipeline.origin import ShadowedError, require_ours

_USAGE = 2  # exit status: the command or its environment must change


def _require_ours() -> None:
    try:
        require_ours()
    except ShadowedError as error:
        sys.stderr.write(f"Error: {error.what}\nFix:   {error.remedy}\n")
        if "--json" in sys.argv:
            sys.stdout.write(_object(error) + "\n")
        sys.exit(_USAGE)


def _object(error: ShadowedError) -> str:
    """What ``--json`` prints; nothing of the packages that would print it can be imported."""
    nothing: dict[str, object] = {
        "task": None,
        "build_id": None,
        "figures": {},
        "paths": {},
        "manifest": None,
    }
    said = {"message": error.what, "remedy": error.remedy}
    return json.dumps({"status": "failed", "code": _USAGE, **said, **nothing})


def main() -> NoReturn:
    """``pipeline``, ``posttrain-pipeline`` and ``python -m posttrain_pipeline``."""
    _require_ours()
    from pipeline.cli import main

    main()


def openrlhf() -> NoReturn:
    """``pipeline-openrlhf``."""
    _require_ours()
    from pipeline.builder.openrlhf_launch import main

    main()
