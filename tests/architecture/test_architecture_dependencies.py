"""What is imported is declared, what is declared is pinned and explained."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("connect_py", "connectors", "transforms", "rest")
# Part of what the other one offers.
BROUGHT_ALONG = {"httpx2": "confluent-kafka", "py4j": "pyspark", "starlette": "fastapi"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _names(requirements: list[str]) -> set[str]:
    return {_normalized(re.split(r"[\[<>=!~; ]", requirement)[0]) for requirement in requirements}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported() -> set[str]:
    """Top-level names of everything that product code imports, on whatever level of a module."""
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - set(PACKAGES)


def test_everything_that_is_imported_is_a_declared_dependency() -> None:
    declared = _names(PROJECT["dependencies"]) | _names(PROJECT["optional-dependencies"]["avro-fast"])
    brings = packages_distributions()
    undeclared = {
        module
        for module in _imported()
        if declared.isdisjoint(map(_normalized, brings.get(module, [module])))
        and BROUGHT_ALONG.get(module) not in declared
    }
    assert undeclared == set()


def test_every_dependency_is_pinned_and_explained() -> None:
    asked = _names([*PROJECT["dependencies"], *(r for rs in PROJECT["optional-dependencies"].values() for r in rs)])
    constraints = [line.strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pinned = {_normalized(line.partition("==")[0]) for line in constraints if "==" in line}
    explained = {_normalized(name) for name in re.findall(r"^\| ([\w-]+)", _dependencies_page(), re.MULTILINE)}
    assert asked - pinned == set()
    assert asked - explained == set()


def test_constraints_are_plain_versions() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


def _dependencies_page() -> str:
    return (ROOT / "docs" / "dependencies.md").read_text()
