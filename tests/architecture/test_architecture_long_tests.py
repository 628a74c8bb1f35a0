"""Every long test has an existing sibling that runs in every run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
LEFT_TO = re.compile(r"@pytest\.mark\.long  # in every run: (.*)")
NAMES = re.compile(r"\btest_\w+(?:\.py)?")


def test_siblings_of_long_tests_run_in_every_run() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    texts = [path.read_text() for path in files]
    in_every_run = {name for text in texts for name in _not_long(text)}
    named = {
        name for text in texts for left in LEFT_TO.findall(text) for name in NAMES.findall(left)
    }
    assert len(named) > 20
    assert named - in_every_run - {path.name for path in files} == set()


def _not_long(text: str) -> set[str]:
    if re.search(r"^pytestmark = .*pytest\.mark\.long", text, re.MULTILINE):
        return set()
    return {
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        and not any(
            ast.unparse(decorator) == "pytest.mark.long" for decorator in node.decorator_list
        )
    }
