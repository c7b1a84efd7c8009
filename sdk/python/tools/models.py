"""Writes ramet/_models.py from api/openapi.json: the types of answers that the SDK returns.

datamodel-code-generator was tried. Its dataclasses have no decoder, need Python 3.10, and
cost 40 ms at import; the classes that this file writes have annotations and defaults only.

    python tools/models.py           writes the file
    python tools/models.py --check   fails if it is not current
"""

from __future__ import annotations

import json
import keyword
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

HERE = Path(__file__).resolve().parent
OPENAPI = HERE.parents[2] / "api" / "openapi.json"
TARGET = HERE.parent / "ramet" / "_models.py"

# The types that methods return; those that they refer to come along.
ROOTS = [
    "AuditEntry", "AuditReport", "BisectResult", "Context", "Diff", "Event", "Exploration", "ExplorationEvent", "ExtractResult", "FileEvents", "FileInfo",
    "ForkResult", "Health", "HeldRequest", "Image", "MergeResult", "Port", "PortSession", "Process",
    "Progress", "PublishedPort", "SandboxNetwork", "NetworkLogEntry", "NetworkTestResult", "NetworkProfile",
    "Pruned", "PushResult", "Sandbox", "SearchResult", "Secret", "Snapshot", "Stats", "Step", "TreeNode", "Volume",
]  # fmt: skip

# Names that would be those of classes with methods.
NAMES = {
    "Context": "ContextInfo", "Error": "ErrorInfo", "Exploration": "ExplorationInfo", "Port": "PortInfo", "Process": "ProcessInfo",
    "Sandbox": "SandboxInfo", "Snapshot": "SnapshotInfo", "ExecResult": "ExitInfo",
    "TreeNode": "Tree",
}  # fmt: skip

# Methods and displays, which are written by hand.
BASES = {"Diff": "DiffView", "Exploration": "ExplorationView", "TreeNode": "TreeView", "MergeResult": "MergeView"}

SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def name_of(ref: str) -> str:
    return ref.rsplit("/", 1)[1]


class Generator:
    def __init__(self, schemas: Dict[str, Any]) -> None:
        self.schemas = schemas
        self.order: List[str] = []
        self.seen: Set[str] = set()

    def visit(self, name: str) -> None:
        if name in self.seen or name not in self.schemas:
            return
        self.seen.add(name)
        for schema in self.schemas[name].get("properties", {}).values():
            for ref in refs(schema):
                self.visit(ref)
        if self.schemas[name].get("type") == "object":
            self.order.append(name)

    def annotation(self, schema: Dict[str, Any]) -> Tuple[str, Tuple[str, str]]:
        """Return the annotation, and the shape and class if objects have to be decoded."""
        if "anyOf" in schema:
            some = [s for s in schema["anyOf"] if s.get("type") != "null"]
            inner, nested = self.annotation(some[0])
            return f"Optional[{inner}]", nested
        if "$ref" in schema:
            name = name_of(schema["$ref"])
            target = self.schemas[name]
            if target.get("type") != "object":
                return self.annotation(target)
            return NAMES.get(name, name), ("one", name)
        kind = schema.get("type")
        if isinstance(kind, list):
            inner, nested = self.annotation({**schema, "type": [k for k in kind if k != "null"][0]})
            return (f"Optional[{inner}]" if "null" in kind else inner), nested
        if kind == "array":
            inner, (shape, name) = self.annotation(schema["items"])
            return f"List[{inner}]", ("list" if shape == "one" else "", name)
        if kind == "object":
            values = schema.get("additionalProperties")
            if isinstance(values, dict) and values:
                inner, (shape, name) = self.annotation(values)
                return f"Dict[str, {inner}]", ("map" if shape == "one" else "", name)
            return "Dict[str, Any]", ("", "")
        if kind == "string" and schema.get("format") == "date-time":
            return "datetime", ("", "")
        return SCALARS.get(kind or "", "Any"), ("", "")

    def write(self, name: str) -> str:
        schema = self.schemas[name]
        required = set(schema.get("required", []))
        lines: List[str] = []
        nested: List[str] = []
        late: List[str] = []
        times: List[str] = []
        lists: List[str] = []
        maps: List[str] = []
        renamed: List[str] = []
        for member, inner in schema.get("properties", {}).items():
            if member.endswith("_base64"):
                continue
            attribute = member + "_" if keyword.iskeyword(member) else member
            if attribute != member:
                renamed.append(f'"{member}": "{attribute}"')
            annotation, (shape, target) = self.annotation(inner)
            if shape:
                entry = f'"{member}": ("{shape}", {NAMES.get(target, target)})'
                (late if target == name else nested).append(entry)
            if annotation in ("datetime", "Optional[datetime]"):
                times.append(member)
            bare = annotation[9:-1] if annotation.startswith("Optional[") else annotation
            default = ""
            if bare.startswith("List["):
                lists.append(member)
            elif bare.startswith("Dict["):
                maps.append(member)
            elif annotation.startswith("Optional["):
                default = " = None"
            elif member not in required:
                if annotation == "bool":
                    default = " = False"
                else:
                    annotation, default = f"Optional[{annotation}]", " = None"
            if bare.startswith(("List[", "Dict[")):
                annotation = bare
            lines.append(f"    {attribute}: {annotation}{default}")
            if inner.get("description"):
                lines.extend(docstring(inner["description"], "    "))
        head = f"class {NAMES.get(name, name)}({BASES.get(name, 'Model')}):"
        body = docstring(schema.get("description") or f"The type {name} of the REST interface.", "    ")
        tables = []
        if nested:
            tables.append("    _nested: ClassVar[Any] = {" + ", ".join(nested) + "}")
        for label, values in (("_times", times), ("_lists", lists), ("_maps", maps)):
            if values:
                tables.append(f"    {label} = (" + "".join(f'"{v}", ' for v in values).rstrip(" ") + ")")
        if renamed:
            tables.append("    _renamed: ClassVar[Any] = {" + ", ".join(renamed) + "}")
        text = "\n".join([head, *body, "", *lines, *([""] if tables else []), *tables])
        if late:
            text += f"\n\n\n{NAMES.get(name, name)}._nested = {{**{NAMES.get(name, name)}._nested, " + ", ".join(late) + "}"
        return text


def docstring(text: str, indent: str) -> List[str]:
    text = text[0].upper() + text[1:]
    if not text.endswith("."):
        text += "."
    lines = textwrap.wrap(text, 96 - len(indent))
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""']
    return [f'{indent}"""{lines[0]}', *(indent + line for line in lines[1:]), f'{indent}"""']


def refs(schema: Any) -> List[str]:
    if isinstance(schema, dict):
        found = [name_of(schema["$ref"])] if "$ref" in schema else []
        return found + [r for value in schema.values() for r in refs(value)]
    if isinstance(schema, list):
        return [r for value in schema for r in refs(value)]
    return []


HEADER = '''"""The types of the daemon's answers.

Generated by tools/models.py from api/openapi.json: do not edit.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Dict, List, Optional

from ._model import Model
from ._views import DiffView, ExplorationView, MergeView, TreeView

INTERFACE = "{version}"
"""The version of the REST interface that this SDK knows."""
'''


def generate() -> str:
    document = json.loads(OPENAPI.read_text())
    schemas = document["components"]["schemas"]
    generator = Generator(schemas)
    for root in ROOTS:
        generator.visit(root)
    classes = [generator.write(name) for name in generator.order]
    names = sorted(NAMES.get(name, name) for name in generator.order)
    listed = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]"
    return "\n\n".join([HEADER.replace("{version}", document["info"]["version"]) + "\n" + listed, *("\n" + c for c in classes)]).replace("\n\n\n\n", "\n\n\n") + "\n"


def main() -> int:
    text = generate()
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() == text:
            return 0
        print(f"{TARGET} is not current: run python tools/models.py", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
