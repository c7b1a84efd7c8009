"""The base of the types that the daemon answers with."""

from __future__ import annotations

import base64
import os
from datetime import datetime
from typing import Any, ClassVar, Dict, Mapping, Tuple, Type


class Model:
    """An object of the REST interface.

    Members of the JSON are attributes, also those of newer daemons that this SDK does not know.
    """

    _nested: ClassVar[Mapping[str, Tuple[str, Type["Model"]]]] = {}
    _times: ClassVar[Tuple[str, ...]] = ()
    _renamed: ClassVar[Mapping[str, str]] = {}
    _lists: ClassVar[Tuple[str, ...]] = ()
    _maps: ClassVar[Tuple[str, ...]] = ()

    def __init__(self, document: Mapping[str, Any]) -> None:
        members: Dict[str, Any] = dict(document)
        for name, (shape, kind) in self._nested.items():
            value = members.get(name)
            if value is None:
                continue
            if shape == "list":
                members[name] = [kind(item) for item in value]
            elif shape == "map":
                members[name] = {key: kind(item) for key, item in value.items()}
            else:
                members[name] = kind(value)
        for name in self._times:
            if members.get(name):
                members[name] = parse_time(members[name])
        for name in self._lists:
            if members.get(name) is None:
                members[name] = []
        for name in self._maps:
            if members.get(name) is None:
                members[name] = {}
        for name, attribute in self._renamed.items():
            if name in members:
                members[attribute] = members.pop(name)
        for name in ("path", "old_path", "target"):
            raw = members.pop(name + "_base64", None)
            if raw is not None:  # the bytes are not UTF-8: as os.fsdecode has them
                members[name] = os.fsdecode(base64.b64decode(raw))
        self.__dict__.update(members)
        self.__dict__["_document"] = document

    def to_dict(self) -> Dict[str, Any]:
        """Return the JSON object as it came from the daemon."""
        return dict(self.__dict__["_document"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{type(self).__name__} has no member {name!r} in the answer of this daemon"
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        members = ", ".join(
            f"{name}={value!r}" for name, value in self.__dict__.items() if name != "_document"
        )
        return f"{type(self).__name__}({members})"


def parse_time(text: str) -> datetime:
    """Parse a time of RFC 3339; Python's own parser knows no nanoseconds before 3.11."""
    whole, zone = text, "+00:00"
    if text.endswith("Z"):
        whole = text[:-1]
    elif len(text) > 6 and text[-3] == ":" and text[-6] in "+-":
        whole, zone = text[:-6], text[-6:]
    seconds, _, fraction = whole.partition(".")
    return datetime.fromisoformat(f"{seconds}.{(fraction + '000000')[:6]}{zone}")
