"""The console scripts: they check that the imported packages are ours, then start the program."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

_USAGE = 2  # exit status: the command or its environment must change


def _require_ours() -> None:
    try:
        require_ours()
    except ShadowedError as error:
        sys.stderr.write(f"Error: {error.what}\nFix:   {error.remedy}\n")
        if "--json" in sys.argv:
            sys.stdout.write(_object(error) + "\n")
        sys.exit(_USAGE)


def _object(error: "ShadowedError") -> str:
    """What ``--json`` prints; nothing of the packages that would print it can be imported."""
    nothing: Any = {"task": None, "build_id": None, "figures": {}, "paths": {}, "manifest": None}
    said = {"message": error.what, "remedy": error.remedy}
    return json.dumps({"status": "failed", "code": _USAGE, **said, **nothing})


def main() -> NoReturn:
    """``pipeline``, ``posttrain-pipeline`` and ``python -m posttrain_pipeline``."""
    _require_ours()
    from posttrain_pipeline.commands import main

    main()


def openrlhf() -> NoReturn:
    """``pipeline-openrlhf``."""
    _require_ours()
    from pipeline.builder.launch import main

    main()


# Checks that the packages that Python will import are ours.
#
# ``stages``, ``expectations`` and ``pipeline`` are common names: a folder of that name earlier on
# Python's path, or another distribution, would be imported in their place. This package has a name
# of its own, checks the others before they are imported, and itself imports none of them.


_MARK = 'DISTRIBUTION = "posttrain-pipeline"'
_PACKAGES = ("pipeline", "stages", "expectations")
_ELSEWHERE = "Rename that folder, run from another one, or remove it from PYTHONPATH."


class ShadowedError(ImportError):
    """Another package would be imported in the place of one of ours.

    Attributes:
        what, remedy: a sentence on what and where, and one on what to do.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} {remedy}")
        self.what, self.remedy = what, remedy


def _place(name: str) -> Path | None:
    """The file or folder that ``import name`` would take; None where there is none."""
    loaded = sys.modules.get(name)
    try:
        spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, made by hand
        spec = None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or [])
    place = spec.origin or (folders[0] if folders else None)
    return Path(place).resolve() if place else None


def require_ours() -> None:
    """Require that all three packages are in the folder of this one, and from this distribution.

    Raises:
        ShadowedError: one does not.
    """
    home = Path(__file__).resolve().parent.parent
    for name in _PACKAGES:
        imported, ours = _place(name), home / name / "__init__.py"
        if imported is None:
            raise ShadowedError(
                f"Package {name!r} of posttrain-pipeline is missing.",
                "Install it again: pip install --force-reinstall posttrain-pipeline",
            )
        if imported != ours:
            where = imported.parent if imported.name == "__init__.py" else imported
            what = f"Python finds package {name!r} in {where}, before posttrain-pipeline's."
            raise ShadowedError(what, _ELSEWHERE)
        if _MARK not in imported.read_text("utf-8"):
            raise ShadowedError(
                f"{imported} was overwritten by another distribution.",
                "Install posttrain-pipeline in a separate environment.",
            )
