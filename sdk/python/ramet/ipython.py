"""Magics for IPython and Jupyter: cells that run in a sandbox.

    %load_ext ramet

    %%ramet
    import numpy as np; np.arange(3)

    %ramet fork try         # try is a variable now, a fork of the sandbox
    %%ramet -s try
    data *= 2
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any, Optional

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython import display as _display

from ._errors import RametError, Timeout
from ._sync._sandbox import Sandbox
from ._types import Chunk

display: Any = _display.display


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message)


def _cell_parser() -> _Parser:
    parser = _Parser(prog="%%ramet", add_help=False)
    parser.add_argument("-s", "--sandbox", help="a variable that is a sandbox, or the id or name of one")
    parser.add_argument("-l", "--language", default="python", help="python, node or bash")
    parser.add_argument("-c", "--context", help="name of the interpreter")
    parser.add_argument("-t", "--timeout", type=float, help="seconds")
    parser.add_argument("-i", "--image", default="python", help="image of the sandbox that is made at first")
    return parser


@magics_class
class RametMagics(Magics):
    """The magic `ramet`, of lines and of cells."""

    current: Optional[Sandbox] = None

    @line_cell_magic
    def ramet(self, line: str, cell: Optional[str] = None) -> Any:
        """%%ramet [-s SANDBOX] [-l LANGUAGE] [-c CONTEXT] [-t SECONDS] runs the cell in a sandbox.

        %ramet shows the sandbox of cells that name none; %ramet use SANDBOX sets it; %ramet fork
        NAME makes a fork of it, which is a variable then; %ramet end destroys it.
        """
        return self._line(shlex.split(line)) if cell is None else self._cell(line, cell)

    def _cell(self, line: str, cell: str) -> None:
        options = _cell_parser().parse_args(shlex.split(line))
        sandbox = self._find(options.sandbox, options.image)
        try:
            stream = sandbox.run_code(
                cell, language=options.language, context=options.context, timeout=options.timeout, stream=True
            )
            with stream:
                for piece in stream:
                    if isinstance(piece, Chunk):
                        (sys.stdout if piece.stream == "stdout" else sys.stderr).write(piece.text)
                    else:
                        display(piece)
        except Timeout as error:
            print(error, file=sys.stderr)
            return
        except RametError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return
        if stream.execution is not None and stream.execution.error is not None:
            print(stream.execution.error, file=sys.stderr)

    def _line(self, words: "list[str]") -> Any:
        if not words:
            return self.current
        verb, rest = words[0], words[1:]
        if verb == "use" and len(rest) == 1:
            self.current = self._find(rest[0], "python")
            return self.current
        if verb == "fork" and len(rest) == 1 and rest[0].isidentifier():
            (child,) = self._find(None, "python").fork()
            self._push({rest[0]: child})
            return child
        if verb == "end" and not rest:
            if self.current is not None:
                self.current._discard()
                self.current = None
            return None
        raise UsageError("%ramet, %ramet use SANDBOX, %ramet fork NAME, or %ramet end")

    def _push(self, variables: "dict[str, Any]") -> None:
        shell: Any = self.shell
        shell.push(variables)

    def _find(self, name: Optional[str], image: str) -> Sandbox:
        shell: Any = self.shell
        if name is not None:
            value = shell.user_ns.get(name)
            return value if isinstance(value, Sandbox) else Sandbox.connect(name)
        if self.current is None:
            self.current = Sandbox.create(image).__enter__()  # it ends with the interpreter
        return self.current


def load_ipython_extension(shell: Any) -> None:
    """Load the magics."""
    shell.register_magics(RametMagics)
