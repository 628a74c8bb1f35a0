"""Find assignments to attributes of objects that other code has created.

    python tests/architecture/foreign_attributes.py     every assignment that is not permitted

Objects are wired in constructors. Afterward, an attribute is assigned only by its object, by the
module that declares its class, or, if the class is a mutable dataclass such as the state of a
partition, by the package that declares it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("connect_py", "connectors", "transforms", "rest")


@dataclass(frozen=True, slots=True)
class ForeignAssignment:
    """An assignment to an attribute of an object that the function has received."""

    path: str
    line: int
    target: str  # such as self._worker.gate

    @property
    def attribute(self) -> str:
        return self.target.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.target}"


def foreign_assignments(root: Path = ROOT) -> Iterator[ForeignAssignment]:
    """Yield the assignments in the product that are not permitted."""
    records: dict[Path, set[str]] = {}
    modules: list[tuple[Path, ModuleAttributes]] = []
    for package in PRODUCT:
        for path in sorted((root / package).rglob("*.py")):
            module = ModuleAttributes(path.relative_to(root).as_posix())
            module.visit(ast.parse(path.read_text()))
            modules.append((path.parent, module))
            records.setdefault(path.parent, set()).update(module.record_fields)
    for folder, module in modules:
        permitted = records[folder] | module.declared
        yield from (each for each in module.assignments if each.attribute not in permitted)


class ModuleAttributes(ast.NodeVisitor):
    """Attributes that a module declares, and the attributes of other objects that it assigns."""

    def __init__(self, path: str) -> None:
        self.assignments: list[ForeignAssignment] = []
        self.declared: set[str] = set()  # declared or assigned by the classes of the module
        self.record_fields: set[str] = set()  # of mutable dataclasses
        self._path = path
        self._new_objects: list[set[str]] = [set()]  # by function: names of the created objects

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.AST) -> None:
        self._new_objects.append(set())
        self.generic_visit(node)
        self._new_objects.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        fields = {
            statement.target.id
            for statement in node.body
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        }
        self.declared |= fields
        if any(map(_is_mutable_dataclass, node.decorator_list)):
            self.record_fields |= fields
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                self._add(part, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._add(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node.target, node.value)

    def _add(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            if target.id == "__slots__" and value is not None:
                self.declared.update(ast.literal_eval(value))
            elif isinstance(value, ast.Call):
                self._new_objects[-1].add(target.id)
        elif isinstance(target, ast.Attribute):
            name = target.value.id if isinstance(target.value, ast.Name) else None
            if name in ("self", "cls"):
                self.declared.add(target.attr)
            elif name not in self._new_objects[-1] and target.attr != "__cause__":
                self.assignments.append(
                    ForeignAssignment(self._path, target.lineno, ast.unparse(target))
                )


def _is_mutable_dataclass(decorator: ast.expr) -> bool:
    arguments: dict[str | None, ast.expr] = {}
    if isinstance(decorator, ast.Call):
        arguments = {keyword.arg: keyword.value for keyword in decorator.keywords}
        decorator = decorator.func
    frozen = arguments.get("frozen")
    is_frozen = isinstance(frozen, ast.Constant) and frozen.value is True
    return isinstance(decorator, ast.Name) and decorator.id == "dataclass" and not is_frozen


if __name__ == "__main__":
    print(*foreign_assignments(), sep="\n")
