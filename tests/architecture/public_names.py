"""Lists the public names of `connect_py.api` and of its building blocks, one per line, from their
source. Run it to update `public_names.txt`.

A function or method is listed with its parameters and its result, and a class with its bases;
therefore every change that affects plugin authors changes a line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "connect_py"
PACKAGES = ("api", "columns", "java", "process", "tls")
PINNED = Path(__file__).with_suffix(".txt")


def public_names() -> list[str]:
    names: list[str] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("*.py")):
            names += _of_body(ast.parse(path.read_text()).body, f"connect_py.{package}.{path.stem}")
    return names


def _of_body(body: list[ast.stmt], where: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) if _public(name):
                yield f"{where}.{name}({', '.join(map(ast.unparse, node.bases))})"
                yield from _of_body(node.body, f"{where}.{name}")
            case ast.FunctionDef(name=name) if _public(name) or name == "__init__":
                result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
                yield f"{where}.{name}({ast.unparse(node.args)}){result}"
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _public(name):
                yield f"{where}.{name}: {ast.unparse(annotation)}"
            case ast.Assign(targets=targets):
                for target in targets:
                    for name in (
                        [target] if isinstance(target, ast.Name) else getattr(target, "elts", [])
                    ):
                        if isinstance(name, ast.Name) and _public(name.id):
                            yield f"{where}.{name.id}"


def _public(name: str) -> bool:
    return not name.startswith("_")


if __name__ == "__main__":
    print("\n".join(public_names()))
