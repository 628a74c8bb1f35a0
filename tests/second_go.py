"""List the failed tests that are repeated, and fail if they are too many for chance. Run by `make
test`.

python tests/second_go.py test-parts test-workers
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MOST_FILES = 4  # a fixture that fails takes all tests of its file with it
CACHES = Path(__file__).parents[1] / ".pytest_cache"


def main(lanes: list[str]) -> int:
    """Print the failed tests; return 1 if they are in more than `MOST_FILES` files."""
    failed: list[str] = []
    for lane in lanes:
        path = CACHES / lane / "v" / "cache" / "lastfailed"
        failed += json.loads(path.read_text()) if path.exists() else []
    files = {test.partition("::")[0] for test in failed}
    if failed:
        print(
            f"make: {len(failed)} failed tests in {len(files)} files; those of at most "
            f"{MOST_FILES} files are repeated:",
            *failed,
            sep="\n  ",
        )
    return int(len(files) > MOST_FILES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
