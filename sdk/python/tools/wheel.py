"""Makes a wheel that installs the program ramet, if RAMET_WHEEL_PROGRAM is its path.

Without it the wheel has Python only: it serves all platforms, with a daemon elsewhere.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The program is static, and needs no more of the system than Python itself does.
TAG = "py3-none-manylinux_2_17_x86_64"


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = os.environ.get("RAMET_WHEEL_PROGRAM")
        if not program:
            return
        build_data["tag"] = TAG
        build_data["pure_python"] = False
        build_data["shared_scripts"] = {os.path.abspath(program): "ramet"}


def get_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    return Hook
