"""The maintainer's command that makes a lock from a few root artifacts and all they need at run time.

    python -m connect_py.embedded.make_jar_lock org.apache.kafka:kafka_2.13:4.1.1 \\
        org.apache.logging.log4j:log4j-slf4j-impl:2.24.3 > connect_py/embedded/locks/broker.lock

With `--alone` first, the lock names the roots and nothing else. Otherwise Ivy resolves once with pom files,
jars and bundles alike (with `jar` alone, libraries packed as OSGi bundles are silently left out). Review the
difference like any other change: from then on these digests are what every machine insists on. How each
shipped lock was made stands in its first lines.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from connect_py.embedded.ivy import Coordinates, fetch, fetch_transitively
from connect_py.embedded.jar_lock import Jar, JarLock, lock_text, sha256_of


def make_lock(roots: Sequence[str], *, alone: bool = False) -> str:
    """Return the text of a lock for `group:artifact:version` roots, and what they need unless `alone`.

    Raises:
        ValueError: A root has another form.
        IvyError, JavaNotFoundError: As for `fetch_transitively`.
    """
    coordinates = [_coordinates(root) for root in roots]
    with tempfile.TemporaryDirectory(prefix="connect-py-lock-") as folder:
        (fetch if alone else fetch_transitively)("a new lock", coordinates, Path(folder))
        jars = [_jar(file) for file in sorted(Path(folder).iterdir())]
    alone_note = "# alone\n" if alone else ""
    text = alone_note + "".join(f"# root: {root}\n" for root in roots) + lock_text(jars)
    JarLock.parse("new", text)  # two versions of one artifact would be refused here, not on a user's machine
    return text


def _coordinates(root: str) -> Coordinates:
    parts = root.split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"expected group:artifact:version, found {root!r}")
    return parts[0], parts[1], parts[2], ""


def _jar(file: Path) -> Jar:
    """The names Ivy gave the file, read back: group--artifact--version[--variant].jar."""
    group, artifact, version, *variant = file.name.removesuffix(".jar").split("--")
    return Jar(group, artifact, version, sha256_of(file), *variant)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.stdout.write(make_lock([a for a in arguments if a != "--alone"], alone="--alone" in arguments))
