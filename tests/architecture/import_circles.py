"""Circular imports: no module of the product may import itself indirectly. Run by `make lint`.

Imports inside functions and for type checkers count: a reader of a module has to know them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("connect_py", "connectors", "transforms", "rest")
# Modules that may import each other after all, and why.
EXCEPTIONS: Mapping[frozenset[str], str] = {}


def circles(imports: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Each circle once: the modules in order, the first one again at the end."""
    left = {module: set(targets) for module, targets in imports.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            yield circle[::-1]  # graphlib lists imported modules first
            left[circle[1]].discard(circle[0])
        else:
            return


def imports() -> dict[str, set[str]]:
    """The modules of the product that each module names."""
    files = {
        _name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    }
    return {module: set(_targets(path)) & files.keys() - {module} for module, path in files.items()}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _targets(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{path}: a relative import"
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


if __name__ == "__main__":
    found = [circle for circle in circles(imports()) if frozenset(circle) not in EXCEPTIONS]
    for circle in found:
        print("modules import each other:", " -> ".join(circle))
    sys.exit(bool(found))
