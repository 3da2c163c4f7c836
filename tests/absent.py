"""Packages that are not there, so that what imports them can be entered and used without them."""

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Missing(type):
    """A class of which everything can be said but what it does: calling it says its name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{cls.__name__}.{name}", (), {})

    def __call__(cls, *given: Any, **named: Any) -> Any:
        raise RuntimeError(f"{cls.__name__} was used, and is not installed here")


class _Absent(types.ModuleType):
    """Has every name."""

    __path__ = ()

    def __init__(self, name: str, known: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.__name__}.{name}", (), {})


class _Finder:
    def __init__(self, names: tuple[str, ...], known: dict[str, Any]) -> None:
        self._names = names
        self._known = known

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == n or name.startswith(f"{n}.") for n in self._names):
            loader: Any = self
            return importlib.machinery.ModuleSpec(name, loader, is_package=True)
        return None

    def create_module(self, spec: Any) -> _Absent:
        return _Absent(spec.name, self._known)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stand_in(*names: str, **known: Any) -> Any:
    """Imports of these packages or modules succeed, and using what they would hold does not.

    Args:
        known: what each of them does hold.

    Returns:
        The finder, the first on ``sys.meta_path``.
    """
    finder: Any = _Finder(names, known)
    sys.meta_path.insert(0, finder)
    return finder


@contextmanager
def absent(*names: str) -> Iterator[None]:
    """``stand_in`` for a while."""
    finder = stand_in(*names)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n, found in [*sys.modules.items()] if isinstance(found, _Absent)]:
            del sys.modules[name]
