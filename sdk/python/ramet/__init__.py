"""Fork live sandboxes: files, memory and running processes, in milliseconds.

>>> from ramet import Sandbox
>>> with Sandbox.create("python") as base:
...     _ = base.run_code("import numpy as np; data = np.arange(1_000_000)")
...     tries = base.fork(3)
...     scores = [t.run_code(f"float((data ** {i + 1}).max())").value for i, t in enumerate(tries)]
...     _ = base.promote(tries[max(range(3), key=scores.__getitem__)])
>>> scores[0]
999999.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional

from ._errors import CodeError as CodeError
from ._errors import CommandError as CommandError
from ._errors import Conflict as Conflict
from ._errors import ExploreError as ExploreError
from ._errors import ForkError as ForkError
from ._errors import InvalidRequest as InvalidRequest
from ._errors import LimitExceeded as LimitExceeded
from ._errors import NotFound as NotFound
from ._errors import PermissionDenied as PermissionDenied
from ._errors import RametError as RametError
from ._errors import SandboxGone as SandboxGone
from ._errors import Timeout as Timeout
from ._errors import Unavailable as Unavailable
from ._errors import VersionMismatch as VersionMismatch

if TYPE_CHECKING:
    from ._async._client import AsyncClient as AsyncClient
    from ._async._contexts import AsyncContext as AsyncContext
    from ._async._contexts import AsyncRunStream as AsyncRunStream
    from ._async._exec import AsyncExecStream as AsyncExecStream
    from ._async._explore import AsyncExploration as AsyncExploration
    from ._async._ports import AsyncPort as AsyncPort
    from ._async._processes import AsyncProcess as AsyncProcess
    from ._async._processes import AsyncTerminal as AsyncTerminal
    from ._async._sandbox import AsyncSandbox as AsyncSandbox
    from ._async._sandbox import AsyncSandboxes as AsyncSandboxes
    from ._async._sandbox import AsyncSnapshot as AsyncSnapshot
    from ._async._secrets import AsyncHeld as AsyncHeld
    from ._async._secrets import AsyncSecrets as AsyncSecrets
    from ._async._volumes import AsyncVolumes as AsyncVolumes
    from ._explore import Plan as Plan
    from ._explore import Score as Score
    from ._explore import Search as Search
    from ._explore import Variant as Variant
    from ._models import Attempt as Attempt
    from ._models import AuditEntry as AuditEntry
    from ._models import AuditReport as AuditReport
    from ._models import Diff as Diff
    from ._models import Event as Event
    from ._models import ExplorationEvent as ExplorationEvent
    from ._models import ExplorationInfo as ExplorationInfo
    from ._models import FileInfo as FileInfo
    from ._models import Health as Health
    from ._models import HeldRequest as HeldRequest
    from ._models import Image as Image
    from ._models import MergeResult as MergeResult
    from ._models import ProcessInfo as ProcessInfo
    from ._models import Progress as Progress
    from ._models import PublishedPort as PublishedPort
    from ._models import PushResult as PushResult
    from ._models import SandboxInfo as SandboxInfo
    from ._models import Secret as Secret
    from ._models import SnapshotInfo as SnapshotInfo
    from ._models import Stats as Stats
    from ._models import Step as Step
    from ._models import Tree as Tree
    from ._models import Volume as Volume
    from ._sync._client import Client as Client
    from ._sync._contexts import Context as Context
    from ._sync._contexts import RunStream as RunStream
    from ._sync._exec import ExecStream as ExecStream
    from ._sync._explore import Exploration as Exploration
    from ._sync._ports import Port as Port
    from ._sync._processes import Process as Process
    from ._sync._processes import Terminal as Terminal
    from ._sync._sandbox import Sandbox as Sandbox
    from ._sync._sandbox import Sandboxes as Sandboxes
    from ._sync._sandbox import Snapshot as Snapshot
    from ._sync._secrets import Held as Held
    from ._sync._secrets import Secrets as Secrets
    from ._sync._volumes import Volumes as Volumes
    from ._types import CellError as CellError
    from ._types import Chunk as Chunk
    from ._types import Execution as Execution
    from ._types import Result as Result
    from ._types import Rich as Rich

__version__ = "0.1.0"

# What is loaded when it is first used: HTTP alone takes longer to import than the rest.
_LAZY = {
    "_client": ("Client",),
    "_contexts": ("Context", "RunStream"),
    "_exec": ("ExecStream",),
    "_explore": ("Exploration",),
    "_ports": ("Port",),
    "_processes": ("Process", "Terminal"),
    "_sandbox": ("Sandbox", "Sandboxes", "Snapshot"),
    "_secrets": ("Held", "Secrets"),
    "_volumes": ("Volumes",),
}
_MODELS = (
    "Attempt", "AuditEntry", "AuditReport", "Diff", "Event", "ExplorationEvent", "ExplorationInfo", "FileInfo", "Health", "HeldRequest", "Image", "MergeResult",
    "ProcessInfo", "Progress", "PublishedPort", "PushResult", "SandboxInfo", "Secret", "SnapshotInfo", "Stats", "Step", "Tree", "Volume",
)  # fmt: skip
_TYPES = ("CellError", "Chunk", "Execution", "Result", "Rich")

_WHERE = {
    **{name: f"._sync.{module}" for module, names in _LAZY.items() for name in names},
    **{f"Async{name}": f"._async.{module}" for module, names in _LAZY.items() for name in names},
    **{name: "._models" for name in _MODELS},
    **{name: "._explore" for name in ("Plan", "Score", "Search", "Variant")},
    **{name: "._types" for name in _TYPES},
}

_ERRORS = [
    "CodeError", "CommandError", "Conflict", "ExploreError", "ForkError", "InvalidRequest", "LimitExceeded", "NotFound",
    "PermissionDenied", "RametError", "SandboxGone", "Timeout", "Unavailable", "VersionMismatch",
]  # fmt: skip

__all__ = sorted([*_WHERE, *_ERRORS, "connect", "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


def connect(
    host: Optional[str] = None,
    token: Optional[str] = None,
    *,
    ca: Optional[str] = None,
    owner: Optional[str] = None,
    lease: Optional[float] = None,
) -> "Client":
    """Return a client of a daemon: of RAMET_HOST, or of the user's own on this machine, by default. See Client.

    >>> import ramet
    >>> with ramet.connect() as client:
    ...     client.health().status
    'ok'
    """
    from ._sync._client import Client

    return Client(host, token, ca=ca, owner=owner, lease=lease)


def load_ipython_extension(shell: Any) -> None:
    """Load the magic `%%ramet`: see ramet.ipython."""
    from . import ipython

    ipython.load_ipython_extension(shell)


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'ramet' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module, "ramet"), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return __all__
