"""How long a module, a class and a function may be, so that each can be read at once. Run by `make lint`.

What is longer stands in `EXCEPTIONS` with its reason and its length, which may only shrink.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("connect_py", "connectors", "transforms", "rest")
MODULE, CLASS, FUNCTION = 500, 400, 60  # lines
# What is longer, by `module` or `module:Class.function`: its lines, and why.
EXCEPTIONS: dict[str, tuple[int, str]] = {
    "connect_py/api/arrow.py": (557, "columns of every type, one class each; the types refer to each other"),
    "connect_py/api/batch.py": (577, "a batch, its columns and what makes them: one public module of the API"),
    "connect_py/api/schema.py": (549, "Connect's schema with its values: one public module of the API"),
    "connect_py/api/schema.py:Schema.__init__": (73, "declarations: what a schema consists of"),
    "connect_py/converters/avro_schema.py": (546, "one walk of Avro's schema language, each type once"),
}


def lengths(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, lines and limit of a module, and of each class and function in it."""
    text, module = path.read_text(), str(path.relative_to(ROOT))
    yield module, text.count("\n"), MODULE
    for name, node in _definitions(ast.parse(text), ""):
        limit = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
        yield f"{module}:{name}", (node.end_lineno or 0) - node.lineno + 1, limit


def _definitions(
    parent: ast.AST, prefix: str
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            yield from _definitions(node, f"{prefix}{node.name}.")
        else:
            yield from _definitions(node, prefix)


def findings() -> Iterator[str]:
    """What is too long, and exceptions that allow more than is needed."""
    longest = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, lines, limit in lengths(path):
                allowed = EXCEPTIONS.get(name, (limit, ""))[0]
                if lines > limit:
                    longest[name] = lines
                if lines > allowed:
                    yield f"{name}: {lines} lines, at most {allowed}"
    for name, (allowed, _) in EXCEPTIONS.items():
        if longest.get(name, 0) < allowed:
            yield f"{name}: {longest.get(name, 'no')} lines, the exception allows {allowed}: lower it or take it out"


def main() -> int:
    """Print what was found; returns 1 if anything was."""
    found = list(findings())
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
