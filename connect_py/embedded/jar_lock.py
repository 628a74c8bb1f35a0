"""Locked jars: files with SHA-256 digests, downloaded once per user and verified on every use.

A lock is a text file with one `group:artifact:version sha256:<hex>` per line, and `#` comments. An
optional fourth part is a Maven classifier, as in `group:artifact:version:classifier`. A file that
is not a jar has a suffix with its extension, as in `group:artifact:version@tar.gz`.

The cache contains one folder per version of a lock, so an upgrade never affects running processes.
A folder is renamed to its final name only after all of its files have been verified. If the folder
exists, neither Java nor the network is used.

See `make_jar_lock` for how locks are created.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from connect_py.api.errors import ConnectError
from connect_py.embedded.cache_directory import cache_directory, exclusive
from connect_py.embedded.ivy import Coordinates, fetch

_LINE = re.compile(
    r"(?P<group>[^\s:]+):(?P<artifact>[^\s:]+):(?P<version>[^\s:@]+)(:(?P<variant>[^\s:@]+))?"
    r"(@(?P<extension>[a-z][a-z.]*))? "
    r"sha256:(?P<digest>[0-9a-f]{64})"
)
SHIPPED_LOCKS = (
    "broker",
    "spark",
    "s3",
    "spark-kafka",
    "connect",
    "debezium",
    "registry",
    "transforms",
    "peers",
)
_OTHER_PROCESS_SECONDS = 900.0


class JarLockError(ConnectError):
    """A lock is invalid, or files do not match it."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One file in a lock."""

    group: str
    artifact: str
    version: str
    sha256: str  # lower-case hex
    variant: str = ""  # Maven classifier
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """File name in the cache.

        It includes the group, because artifacts in different groups may have the same name.
        """
        return f"{'--'.join(filter(None, self.coordinates[:4]))}.{self.extension}"

    @property
    def coordinates(self) -> Coordinates:
        """Maven coordinates of the file."""
        return self.group, self.artifact, self.version, self.variant, self.extension

    def __str__(self) -> str:
        suffix = "" if self.extension == "jar" else f"@{self.extension}"
        return ":".join(filter(None, self.coordinates[:4])) + suffix


@dataclass(frozen=True, slots=True)
class JarLock:
    """A set of files, in the order in which the lock lists them."""

    name: str
    jars: tuple[Jar, ...]

    @staticmethod
    def shipped(name: str) -> JarLock:
        """Return a lock that this package contains, one of `SHIPPED_LOCKS`."""
        text = (
            resources.files("connect_py.embedded")
            .joinpath("locks", f"{name}.lock")
            .read_text("utf-8")
        )
        return JarLock.parse(name, text)

    @staticmethod
    def parse(name: str, contents: str) -> JarLock:
        """Parse a lock.

        Raises:
            JarLockError: A line is invalid, or the lock contains an artifact twice.
        """
        jars: list[Jar] = []
        for number, line in enumerate(contents.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise JarLockError(
                    f"{name}.lock, line {number}: expected group:artifact:version sha256:<hex>"
                )
            coordinates = match["group"], match["artifact"], match["version"], match["digest"]
            jars.append(Jar(*coordinates, match["variant"] or "", match["extension"] or "jar"))
        if len({(jar.group, jar.artifact, jar.variant, jar.extension) for jar in jars}) != len(
            jars
        ):
            raise JarLockError(f"{name}.lock contains an artifact twice")
        return JarLock(name, tuple(jars))

    @property
    def fetched(self) -> bool:
        """True if this user's cache contains the files, so `resolve` does not need the network.

        Digests are not verified.
        """
        return self._folder(None).is_dir()

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that depend on all file names and digests, but not on comments."""
        lines = "\n".join(sorted(f"{jar.file_name} {jar.sha256}" for jar in self.jars))
        return hashlib.sha256(lines.encode()).hexdigest()[:12]

    def resolve(self, cache: Path | None = None) -> list[Path]:
        """Return the paths of the files in lock order, downloading the files if necessary.

        The first call for a version of a lock takes seconds to minutes, with progress on stderr.
        Later calls take a tenth of a second. If several processes call this method at the same
        time, one of them downloads the files and all others wait.

        Raises:
            JarLockError: A downloaded file is missing, unexpected, or has a different digest.
                Nothing is stored.
            IvyError: The files could not be downloaded.
            JavaNotFoundError: A download requires Java, and none is available.
            TimeoutError: Another process has been downloading for 15 minutes.
        """
        folder = self._folder(cache)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not self._matches(folder):
            with exclusive(folder.parent / f"{self.name}.flock", _OTHER_PROCESS_SECONDS):
                if not self._matches(folder):
                    self._fill(folder)
        return [folder / jar.file_name for jar in self.jars]

    def fetched_jars(self) -> list[Path]:
        """Return the cached jars in lock order, or an empty list if they are not cached.

        This method never downloads anything.

        Raises:
            JarLockError: The files do not match the lock.
            OSError: The files cannot be read.
        """
        folder = self._folder(None)
        if not self.fetched:
            return []
        if problems := self.complaints(folder):
            raise JarLockError(
                f"the jars of {self.name}.lock in {folder} are damaged: {'; '.join(problems)}"
            )
        return [folder / jar.file_name for jar in self.jars]

    def complaints(self, folder: Path) -> list[str]:
        """Return the differences between a folder and this lock. Empty if they match."""
        present = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        problems = [
            f"{name} is not in the lock"
            for name in sorted(present - {jar.file_name for jar in self.jars})
        ]
        for jar in self.jars:
            if jar.file_name not in present:
                problems.append(f"{jar} is missing")
            elif (digest := sha256_of(folder / jar.file_name)) != jar.sha256:
                problems.append(f"{jar} has sha256 {digest}, expected {jar.sha256}")
        return problems

    def _folder(self, cache: Path | None) -> Path:
        return (cache or cache_directory()) / "jars" / f"{self.name}-{self.fingerprint}"

    def _matches(self, folder: Path) -> bool:
        return folder.is_dir() and not self.complaints(folder)

    def _fill(self, folder: Path) -> None:
        """Download the files into a temporary folder, verify them, and rename the folder.

        A crash leaves behind at most a temporary folder, which is never used.
        """
        for leftover in folder.parent.glob(f".{self.name}-*"):
            # left behind by a killed process; nothing else can use it while this process holds the
            # lock
            shutil.rmtree(leftover, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=folder.parent))
        try:
            fetched = scratch / "jars"
            fetch(self.name, [jar.coordinates for jar in self.jars], fetched)
            if problems := self.complaints(fetched):
                raise JarLockError(
                    f"the downloaded jars of {self.name}.lock are invalid: {'; '.join(problems)}"
                )
            if folder.exists():
                os.rename(folder, scratch / "damaged")
            os.rename(fetched, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def sha256_of(file: Path) -> str:
    """Return the file's SHA-256 digest as lower-case hex."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def lock_text(jars: Iterable[Jar]) -> str:
    """Return the lines of a lock, sorted so that versions of the lock can be compared."""
    return "".join(f"{line}\n" for line in sorted(f"{jar} sha256:{jar.sha256}" for jar in jars))
