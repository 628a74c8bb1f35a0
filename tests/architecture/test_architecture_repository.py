"""Rules for all files of this repository: they work on any machine, contain no machine's names, and
hide no errors.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("connect_py", "connectors", "transforms", "rest")
RECORDINGS = "tests/fixtures/corpus/"
BUILD_FILES = (
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    ".ci/run",
    "*.lock",
    "Dockerfile",
    "compose.yaml",
)
TEXTS = (
    ".py",
    ".java",
    ".md",
    ".toml",
    ".txt",
    ".lock",
    ".properties",
    ".json",
    ".yaml",
    ".yml",
    ".sh",
    ".svg",
    "",
)

# Concatenated to avoid a match in this file.
SOMEBODYS_FOLDERS = re.compile(
    r"(?<![\w.}\-/])/(" + "|".join(("home", "Users", "root", "work", "workspace")) + r")/\w"
)
REGISTRIES = re.compile(
    "|".join(("py" + "pi\\.", "maven\\." + "org", "apache\\.org/" + "maven", "art" + "ifactory")),
    re.I,
)
PROJECT_ADDRESS = "https://github.com/connect-py/connect-py"
# Services of a Compose file know each other by one word, and themselves by their own machine.
ADDRESSES = re.compile(r"\b(https?|ftp)://(?!127\.0\.0\.1\b|[a-z0-9]+:\d)")


def _files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.split("\0") if name and not name.startswith(RECORDINGS)]
    return [path for name in names if (path := ROOT / name).suffix in TEXTS and path.is_file()]


def _lines(files: list[Path], pattern: re.Pattern[str]) -> Iterator[str]:
    for path in files:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    assert list(_lines(_files(), SOMEBODYS_FOLDERS)) == []


def test_no_file_names_a_package_registry() -> None:
    assert list(_lines(_files(), REGISTRIES)) == []


def test_build_files_contain_no_address_except_those_of_the_project() -> None:
    build = [path for path in _files() if any(path.match(pattern) for pattern in BUILD_FILES)]
    assert {"Makefile", "pyproject.toml", "run"} <= {path.name for path in build}
    addresses = [line for line in _lines(build, ADDRESSES) if PROJECT_ADDRESS not in line]
    assert addresses == []


def test_urls_of_the_package_lead_to_the_repository() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == PROJECT_ADDRESS
    assert all(url.startswith(PROJECT_ADDRESS) for url in project["urls"].values())


def test_whoever_catches_everything_says_why_or_says_it_aloud() -> None:
    """A comment on the line, or the error is raised again or logged with its trace."""
    silent = [
        place
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for place in _silent_handlers(path)
    ]
    assert silent == []


def _silent_handlers(path: Path) -> Iterator[str]:
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler) or not _catches_everything(node):
            continue
        aloud = any(isinstance(inner, ast.Raise) or _logs_trace(inner) for inner in ast.walk(node))
        if "#" not in lines[node.lineno - 1] and not aloud:
            yield f"{path.relative_to(ROOT)}:{node.lineno}"


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) in ("Exception", "BaseException")


def _logs_trace(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    named = isinstance(node.func, ast.Attribute) and node.func.attr == "exception"
    return named or any(keyword.arg == "exc_info" for keyword in node.keywords)


def test_every_lint_exception_has_its_reason_on_the_line() -> None:
    """`# noqa: CODE - reason`, `# type: ignore[code]  # reason`; style only (`fmt:`) needs none."""
    bare = re.compile(
        r"#\s*(noqa(?!: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)* -)|type: ignore(?!\[[a-z-]+(, "
        r"?[a-z-]+)*\]\s+#))"
    )
    product = [
        path
        for path in _files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES
    ]
    assert list(_lines(product, bare)) == []


def test_the_license_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    assert project["readme"] == "README.md"


def test_test_modules_have_names_of_their_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
