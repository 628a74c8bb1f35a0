"""Says how many tests are run once more, and fails if they are too many for chance. Run by `make
test`.

python tests/second_go.py test-parts test-workers
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MOST = 3
CACHES = Path(__file__).parents[1] / ".pytest_cache"


def main(lanes: list[str]) -> int:
    """Print the tests of these lanes that failed; returns 1 if they are more than `MOST`."""
    failed: list[str] = []
    for lane in lanes:
        path = CACHES / lane / "v" / "cache" / "lastfailed"
        failed += json.loads(path.read_text()) if path.exists() else []
    if failed:
        print(
            f"make: {len(failed)} tests failed, at most {MOST} are run once more:",
            *failed,
            sep="\n  ",
        )
    return int(len(failed) > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
