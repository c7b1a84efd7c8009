"""The errors of the SDK. All of them are RametErrors, with the code of the daemon."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Type

if TYPE_CHECKING:
    from ._models import Exceeded
    from ._types import Execution, Result


class RametError(Exception):
    """An error with a machine-readable code.

    Codes are those of the REST interface, and are never renamed.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str = "internal",
        field: Optional[str] = None,
        remedy: Optional[str] = None,
        status: int = 0,
        request_id: Optional[str] = None,
        exceeded: Optional["Exceeded"] = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        """What happened."""
        self.code = code
        """The kind of the error, for programs."""
        self.field = field
        """The field of the request that is at fault."""
        self.remedy = remedy if remedy is not None else remedy_of(code, detail)
        """What can be done about it, if that is known."""
        self.status = status
        """The HTTP status, or 0 if there was no answer."""
        self.request_id = request_id
        """Identifies the request in the daemon's log."""
        self.exceeded = exceeded
        """The quota that was exceeded, with its limit and its use."""

    def __str__(self) -> str:
        text = self.detail.replace("body.", "")
        # The daemon names the field inside of some texts.
        if self.field and not re.search(rf"(?:^|[:;] ){re.escape(self.field)}: ", text):
            text = f"{self.field}: {text}"
        if self.code == "internal" and self.request_id:
            text += f" (request {self.request_id})"
        return f"{text}; {self.remedy}" if self.remedy else text

    def __reduce__(self) -> Any:  # keyword-only arguments are not pickled by Exception
        return (_rebuild, (type(self), self.detail, self.__dict__))


def _rebuild(kind: Type[RametError], detail: str, members: Dict[str, Any]) -> RametError:
    error = kind.__new__(kind, detail)
    Exception.__init__(error, detail)
    error.__dict__.update(members)
    return error


class NotFound(RametError):
    """There is no such sandbox, snapshot, image, process or file, or the caller does not see it."""


class Conflict(RametError):
    """The state of the thing, another thing that uses it, or a taken name prevents the request."""


class LimitExceeded(RametError):
    """A limit or quota is exceeded, or the host has no memory or disk left."""


class PermissionDenied(RametError):
    """The token, or the user in the sandbox, does not have the right."""


class InvalidRequest(RametError):
    """The request is not valid, or not possible on this machine: `field` names the part at fault."""


class Unavailable(RametError):
    """The daemon, or a service that it needs, cannot be reached."""


class SandboxGone(NotFound):
    """The sandbox ended, while it was used or before. `detail` has the reason where it is known."""


class Timeout(RametError):
    """A deadline passed. The command and its process group were killed, or the cell interrupted."""

    result: Optional["Result"] = None
    """What the command wrote until then."""
    execution: Optional["Execution"] = None
    """What the cell wrote and showed until then."""


class ExploreError(RametError):
    """An exploration failed, or the daemon ended meanwhile. What it came to is in `exploration`."""

    exploration: Any
    """The exploration, with the table of its attempts."""


class VersionMismatch(RametError):
    """The daemon has another version of the interface than this SDK: they do not understand each other."""


class CommandError(RametError):
    """A command with `check=True` failed."""

    result: "Result"
    """The result of the command."""


class CodeError(RametError):
    """A cell with `check=True` failed."""

    execution: "Execution"
    """The result of the cell."""


class ForkError(RametError):
    """Not all children could be made. Those that could are in `children` and go on."""

    children: List[Any]
    """The children that were made."""
    errors: List[RametError]
    """An error for each child that was not."""


_CLASSES: Mapping[str, Type[RametError]] = {
    "invalid_argument": InvalidRequest,
    "command_not_found": InvalidRequest,
    "not_executable": InvalidRequest,
    "hostile_archive": InvalidRequest,
    "not_found": NotFound,
    "name_taken": Conflict,
    "conflict": Conflict,
    "wrong_state": Conflict,
    "precondition_failed": Conflict,
    "limit_exceeded": LimitExceeded,
    "out_of_memory": LimitExceeded,
    "out_of_disk": LimitExceeded,
    "permission_denied": PermissionDenied,
    "unauthenticated": PermissionDenied,
    "forbidden": PermissionDenied,
    "timeout": Timeout,
    "unsupported": InvalidRequest,
    "isolation_refused": InvalidRequest,
    "unavailable": Unavailable,
    "sandbox_died": SandboxGone,
}

# What a daemon says to a request that only newer ones know.
_SKEW = re.compile(r'^no route "|: unexpected property$|^there is no query parameter ')
_NO_IMAGE = re.compile(r'no image "([^"]*)"')
_REMEDIES: Mapping[str, str] = {
    "unauthenticated": "set RAMET_TOKEN, or give token=",
    "out_of_disk": "free some: destroy sandboxes, delete snapshots, or prune images",
    "command_not_found": "is the program in the image, and in its PATH?",
}


def remedy_of(code: str, detail: str) -> Optional[str]:
    """Return what a user of the SDK can do about an error."""
    missing = _NO_IMAGE.search(detail)
    if code == "not_found" and missing:
        return f"build one with client.images.build({missing[1]!r}), or see client.images.list()"
    return _REMEDIES.get(code)


def check_interface(theirs: str) -> None:
    """Raise an error if a daemon's version of the interface is none that this SDK understands."""
    from ._models import INTERFACE

    if theirs and theirs.partition(".")[0] != INTERFACE.partition(".")[0]:
        raise VersionMismatch(
            f"the daemon has version {theirs[:20]} of the interface, and this SDK {INTERFACE}",
            code="unsupported",
            remedy="use the SDK of the daemon's release, or another daemon",
        )


def is_older(theirs: str) -> bool:
    """Report whether a daemon's version of the interface, or none, is older than that of this SDK."""
    from ._models import INTERFACE

    try:
        return [int(part) for part in theirs.split(".")] < [int(part) for part in INTERFACE.split(".")]
    except ValueError:
        return True


def error_of(problem: Mapping[str, Any], interface: Optional[str] = None) -> RametError:
    """Return the error that a problem document, or the error of a child, says.

    interface is the version of the interface that the daemon tells, if it answered the request itself.
    """
    from ._models import Exceeded

    code = str(problem.get("code") or "internal")
    exceeded = problem.get("exceeded")
    detail = str(problem.get("detail") or problem.get("title") or code)
    kind = _CLASSES.get(code, RametError)
    remedy = None
    if interface is not None and kind in (NotFound, InvalidRequest) and _SKEW.search(detail) and is_older(interface):
        kind = InvalidRequest  # a thing that is looked for may well exist
        remedy = "the daemon is older than this SDK, and does not know it: replace the daemon, or use the SDK of its version"
    return kind(
        detail,
        code=code,
        field=problem.get("field") or None,
        remedy=remedy,
        status=int(problem.get("status") or 0),
        request_id=problem.get("request_id"),
        exceeded=Exceeded(exceeded) if exceeded else None,
    )


class Interrupted(Unavailable):
    """An answer broke off: the request may be taken up again."""
