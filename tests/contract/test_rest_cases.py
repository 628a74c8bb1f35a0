"""The numbered conformance cases of the REST API, and the tests that ask them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CASES = range(1, 54)
FILES = (
    "contract/test_rest_*.py",
    "contract/test_offsets_rest.py",
    "acceptance/test_rest_*.py",
    "acceptance/test_offsets_file_stream.py",
)
_LIST = re.compile(r"Cases? ((?:\d+(?:, | and )?)+)")


def numbers() -> Iterator[int]:
    for pattern in FILES:
        for path in (Path(__file__).parent.parent).glob(pattern):
            for item in ast.walk(ast.parse(path.read_text())):
                if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
                    told = (
                        re.match(r"test_case_(\d+)_", item.name),
                        _LIST.match(ast.get_docstring(item) or ""),
                    )
                    for found in filter(None, told):
                        yield from map(int, re.findall(r"\d+", found[1]))


def test_every_case_has_a_test_that_names_it() -> None:
    assert sorted(set(CASES) - set(numbers())) == []
