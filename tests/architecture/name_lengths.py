"""How many words the names of tests have: a name that says too little or a whole story is listed. Run by `make lint`.

python tests/architecture/name_lengths.py --all    lists the names
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FEWEST, MOST = 5, 12  # six to ten words are what we aim at
# Names of before the rule; documentation cites some of them. Lower this when some get another name.
OLDER = 493


def names() -> Iterator[str]:
    """Each test whose name has too few or too many words, with its file and line."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                words = node.name.count("_")
                if not FEWEST <= words <= MOST:
                    yield f"{path.relative_to(TESTS.parent)}:{node.lineno}: {node.name} has {words} words"


def main(show: bool) -> int:
    """Print the names if asked or if they are more than before the rule; returns 1 if they are more."""
    found = list(names())
    more = len(found) > OLDER
    if show or more:
        print(*found, sep="\n")
    print(f"{len(found)} tests have names of fewer than {FEWEST} or more than {MOST} words, at most {OLDER} may")
    return int(more)


if __name__ == "__main__":
    sys.exit(main("--all" in sys.argv[1:]))
