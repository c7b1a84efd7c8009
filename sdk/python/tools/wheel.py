"""Makes a wheel that installs the program ramet, if RAMET_WHEEL_PROGRAM is its path.

Without it the wheel has Python only: it serves all platforms, with a daemon elsewhere.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Architectures by their number in the header of a program (ELF, e_machine), as wheels name them.
MACHINES = {62: "x86_64", 183: "aarch64"}


def tag(program: str) -> str:
    """The tag of a wheel. The program is static, and needs no more of the system than Python itself does."""
    with open(program, "rb") as f:
        header = f.read(20)
    return f"py3-none-manylinux_2_17_{MACHINES[int.from_bytes(header[18:20], 'little')]}"


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = os.environ.get("RAMET_WHEEL_PROGRAM")
        if not program:
            return
        build_data["tag"] = tag(program)
        build_data["pure_python"] = False
        build_data["shared_scripts"] = {os.path.abspath(program): "ramet"}


def get_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    return Hook
