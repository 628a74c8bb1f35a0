"""How many words the names of tests have: one that says too little or tells a whole story is refused."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FEWEST, MOST = 6, 10


def findings() -> Iterator[str]:
    """Each test whose name has too few or too many words, with its file and line."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                words = node.name.count("_")
                if not FEWEST <= words <= MOST:
                    yield f"{path.relative_to(TESTS.parent)}:{node.lineno}: {node.name} has {words} words"


def main() -> int:
    """Print what was found; returns 1 if anything was."""
    found = list(findings())
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
