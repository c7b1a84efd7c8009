"""HTTP, which takes longer to import than everything else here, is imported with the first client."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Lazy:
    """A module that is imported when something of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


httpcore = _Lazy("httpcore")
