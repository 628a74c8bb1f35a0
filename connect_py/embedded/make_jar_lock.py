r"""Creates a lock file from root artifacts and their runtime dependencies.

Maintainers run it as a command:

    python -m connect_py.embedded.make_jar_lock org.apache.kafka:kafka_2.13:4.1.1 \
        org.apache.logging.log4j:log4j-slf4j-impl:2.24.3 > connect_py/embedded/locks/broker.lock

With `--alone` as the first argument, the lock contains only the roots. In that case, a root may
have a classifier or an extension, as in `group:artifact:version:classifier@tar.gz`. Otherwise, Ivy
resolves dependencies from POM files and includes the artifact types `jar` and `bundle`. (With `jar`
alone, libraries packaged as OSGi bundles would be silently omitted.) Review changes to a lock like
code, because every machine will require these digests. The first lines of each lock document how it
was created.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from connect_py.embedded.ivy import Coordinates, fetch, fetch_transitively
from connect_py.embedded.jar_lock import Jar, JarLock, lock_text, sha256_of


def make_lock(roots: Sequence[str], *, alone: bool = False) -> str:
    """Return a lock for the roots and, unless `alone` is set, their dependencies.

    Raises:
        ValueError: A root is invalid.
        IvyError, JavaNotFoundError: See `fetch_transitively`.
    """
    coordinates = [_coordinates(root) for root in roots]
    with tempfile.TemporaryDirectory(prefix="connect-py-lock-") as folder:
        (fetch if alone else fetch_transitively)("a new lock", coordinates, Path(folder))
        extensions = {extension for *_, extension in coordinates} | {"jar"}
        jars = [_jar(file, extensions) for file in sorted(Path(folder).iterdir())]
    alone_note = "# alone\n" if alone else ""
    contents = alone_note + "".join(f"# root: {root}\n" for root in roots) + lock_text(jars)
    # reject two versions of one artifact here instead of on a user's machine
    JarLock.parse("new", contents)
    return contents


def _coordinates(root: str) -> Coordinates:
    name, _, extension = root.partition("@")
    parts = name.split(":")
    if len(parts) not in (3, 4) or not all(parts):
        raise ValueError(f"expected group:artifact:version[:variant][@extension], found {root!r}")
    return parts[0], parts[1], parts[2], "".join(parts[3:]), extension or "jar"


def _jar(file: Path, extensions: Iterable[str]) -> Jar:
    """Parse a file name that Ivy created: group--artifact--version[--classifier].extension."""
    extension = next(each for each in extensions if file.name.endswith(f".{each}"))
    group, artifact, version, *variant = file.name.removesuffix(f".{extension}").split("--")
    return Jar(group, artifact, version, sha256_of(file), "".join(variant), extension)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.stdout.write(
        make_lock([a for a in arguments if a != "--alone"], alone="--alone" in arguments)
    )
