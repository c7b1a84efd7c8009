"""How comparisons, merges and trees are shown in terminals and notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Iterator, List, Optional

from ._model import Model

if TYPE_CHECKING:
    from ._models import Attempt, Change, MergeChange, MergeConflict, ProcessChange, Tree, VariableChange

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


class ExplorationView(Model):
    """The display of an exploration: a table of its attempts."""

    if TYPE_CHECKING:
        id: str
        state: str
        ended: Optional[str]
        children: List[Attempt]

    def _rows(self) -> List[List[str]]:
        """Return the cells of the table, below their titles."""
        rows = [["", "attempt", "state", "score", "exit", "ms", "files", "output"]]
        for one in self.children:
            parent = f" of {one.parent}" if one.parent is not None else ""
            about = one.name or " ".join([*(f"{k}={v}" for k, v in one.env.items()), *one.args])
            shown = one.value or _last_line(one.stdout) or (one.error.detail if one.error is not None else "") or _last_line(one.stderr)
            rows.append([
                "*" if one.won else "", f"{one.index}{parent}{' ' + about if about else ''}",
                f"{one.state}, early" if one.stopped_early and one.state != "stopped" else one.state,
                "" if one.score is None else f"{one.score:g}", "" if one.exit_code is None else str(one.exit_code),
                "" if one.duration_ms is None else f"{one.duration_ms:.0f}", str(one.diff_total or len(one.diff) or ""), shown[:80],
            ])  # fmt: skip
        used = [any(row[i] for row in rows[1:]) for i in range(len(rows[0]))]
        return [[cell for cell, is_used in zip(row, used) if is_used] for row in rows]

    def _head(self) -> str:
        return f"{self.id} {self.state}{': ' + self.ended if self.ended else ''}"

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([self._head(), *lines])

    def _repr_html_(self) -> str:
        titles, *rows = self._rows()
        won = [one.won for one in self.children]
        out = [f"<table><caption>{html.escape(self._head())}</caption><tr>"]
        out += [f"<th>{html.escape(title)}</th>" for title in titles]
        for row, is_best in zip(rows, won):
            out.append("</tr><tr style='font-weight:bold'>" if is_best else "</tr><tr>")
            out += [f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row]
        return "".join([*out, "</tr></table>"])


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


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
