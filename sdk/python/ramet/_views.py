"""How comparisons, merges and trees are shown in terminals and notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Iterator, List

from ._model import Model

if TYPE_CHECKING:
    from ._models import Change, MergeChange, MergeConflict, ProcessChange, Tree, VariableChange

_MARKS = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R", "undecided": "?"}


def _preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


class DiffView(Model):
    """The display of a comparison."""

    if TYPE_CHECKING:
        changes: List[Change]
        processes: List[ProcessChange]
        variables: List[VariableChange]

    def __bool__(self) -> bool:
        return bool(self.changes or self.processes or self.variables)

    @property
    def paths(self) -> List[str]:
        """The paths that differ."""
        return [change.path for change in self.changes]

    def __str__(self) -> str:
        lines = []
        for change in self.changes:
            moved = f"{change.old_path} → " if change.old_path else ""
            lines.append(f"{_MARKS.get(change.kind, '?')} {moved}{change.path}")
            if change.hunks:
                lines.append(change.hunks.rstrip("\n"))
        for process in self.processes:
            lines.append(f"{_MARKS.get(process.kind, '?')} process {process.pid}: {process.command}")
        for variable in self.variables:
            before = f"{variable.old_repr} → " if variable.old_repr is not None else ""
            lines.append(
                f"{_MARKS.get(variable.kind, '?')} {variable.context}: {variable.name or ''}  "
                f"{before}{variable.repr}"
            )
        return "\n".join(lines) or "no difference"

    def _repr_html_(self) -> str:
        return _preformatted(str(self))


class MergeView(Model):
    """The display of a merge."""

    if TYPE_CHECKING:
        applied: List[MergeChange]
        conflicts: List[MergeConflict]

    @property
    def ok(self) -> bool:
        """Whether there is no conflict that was left."""
        return all(conflict.resolved for conflict in self.conflicts)

    def __str__(self) -> str:
        lines = [f"{_MARKS.get(change.kind, '?')} {change.path}" for change in self.applied]
        lines += [f"C {conflict.path}: {conflict.reason}" for conflict in self.conflicts]
        return "\n".join(lines) or "nothing to merge"

    def _repr_html_(self) -> str:
        return _preformatted(str(self))


class TreeView(Model):
    """The display of a lineage."""

    if TYPE_CHECKING:
        id: str
        kind: str
        state: str
        children: List[Tree]

    def walk(self) -> Iterator[Any]:
        """Iterate over this node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def _lines(self, first: str, rest: str) -> Iterator[str]:
        name = getattr(self, "name", None)
        yield f"{first}{name + ' ' if name else ''}{self.id} {self.state}"
        for i, child in enumerate(self.children):
            last = i == len(self.children) - 1
            yield from child._lines(rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    def __str__(self) -> str:
        return "\n".join(self._lines("", ""))

    def _repr_html_(self) -> str:
        return _preformatted(str(self))
