"""Where the daemon is, with which credentials it is called, and where the program is."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from ._errors import InvalidRequest, Unavailable

TOKEN_PREFIX = "ramet_"


@dataclass(frozen=True)
class Config:
    """The address of a daemon and the credentials of its client."""

    base: str
    """URL that paths are appended to."""
    socket: Optional[str]
    """Path of a Unix socket; None if the daemon is reached by a URL."""
    own: bool
    """It is the user's own daemon, which is started when it does not run."""
    token: Optional[str] = None
    ca: Optional[str] = None
    """File with certificate authorities, in PEM form."""

    def __repr__(self) -> str:  # without the token
        return f"Config({self.socket or self.base})"


def resolve(
    host: Optional[str] = None,
    token: Optional[str] = None,
    ca: Optional[Union[str, "os.PathLike[str]"]] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Config:
    """Return the configuration of arguments and environment, as the command ramet has it."""
    env = os.environ if env is None else env
    host = host or env.get("RAMET_HOST") or None
    ca_file = os.fspath(ca) if ca else env.get("RAMET_CA") or None
    secret = _secret(token, env)
    if host is None:
        return Config("http://ramet", _runtime_dir(env) + "/ramet.sock", True, secret, ca_file)
    if host.startswith("unix:"):
        path = host[len("unix:") :]
        if not path.startswith("/"):
            raise _invalid("host", f"{host!r} is not unix: and an absolute path")
        return Config("http://ramet", path, False, secret, ca_file)
    url = urlsplit(host)
    if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc:
        shown = "…@" + host.rpartition("@")[2] if "@" in host else host
        raise _invalid("host", f"{shown!r} is not the address of a daemon: say https://HOST:PORT or unix:PATH")
    local = url.hostname in ("localhost", "::1") or url.hostname.startswith("127.")
    if secret and url.scheme == "http" and not local:
        raise _invalid("host", f"{url.netloc} would send the token in the clear: use https")
    if ca_file and not os.path.isfile(ca_file):
        raise _invalid("ca", f"there is no file {ca_file!r}")
    return Config(host.rstrip("/"), None, False, secret, ca_file)


def _secret(token: Optional[str], env: Mapping[str, str]) -> Optional[str]:
    secret = token or env.get("RAMET_TOKEN") or ""
    if not secret and env.get("RAMET_TOKEN_FILE"):
        try:
            secret = Path(env["RAMET_TOKEN_FILE"]).read_text()
        except OSError as error:
            raise _invalid("token", f"read RAMET_TOKEN_FILE: {error}") from error
    secret = secret.strip()
    if secret and not secret.startswith(TOKEN_PREFIX):
        raise _invalid("token", f"a token begins with {TOKEN_PREFIX}, and what was given does not")
    return secret or None


def _runtime_dir(env: Mapping[str, str]) -> str:
    if env.get("RAMET_RUNTIME_DIR"):
        return env["RAMET_RUNTIME_DIR"]
    xdg = env.get("XDG_RUNTIME_DIR", "")
    if xdg.startswith("/"):
        return os.path.join(xdg, "ramet")
    uid = os.getuid() if hasattr(os, "getuid") else 0
    if os.path.isdir(f"/run/user/{uid}"):
        return f"/run/user/{uid}/ramet"
    if uid == 0:
        return "/run/ramet"
    tmp = env.get("TMPDIR", "")
    return os.path.join(tmp if tmp.startswith("/") else "/tmp", f"ramet-{uid}")


def find_program(env: Optional[Mapping[str, str]] = None) -> str:
    """Return the path of the program ramet: RAMET_BIN, that of the wheel, or the one in PATH.

    Raises Unavailable if there is none.
    """
    env = os.environ if env is None else env
    named = env.get("RAMET_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise _invalid("RAMET_BIN", f"{named!r} is not a program")
        return named
    for path in _installed():
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("ramet", path=env.get("PATH"))
    if found:
        return found
    raise Unavailable(
        "there is no program ramet here that could be started",
        code="unavailable",
        remedy="set RAMET_HOST and RAMET_TOKEN to use a daemon elsewhere, or RAMET_BIN or PATH to its path",
    )


def _installed() -> Tuple[str, ...]:
    """Return where the wheel puts the program: beside the interpreter, or below --target or --user."""
    import sysconfig

    here = Path(__file__).resolve().parent
    scripts = [sysconfig.get_path("scripts"), str(here.parent / "bin")]
    if hasattr(sysconfig, "get_preferred_scheme"):
        scripts.append(sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")))
    if sys.prefix:
        scripts.append(os.path.join(sys.prefix, "bin"))
    return tuple(dict.fromkeys(os.path.join(s, "ramet") for s in scripts if s))


def _invalid(field: str, detail: str) -> InvalidRequest:
    return InvalidRequest(detail, code="invalid_argument", field=field)
