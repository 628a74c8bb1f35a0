"""Jars by lock: which files, with which SHA-256; fetched once per user, checked at every use.

A lock is a text file with one `group:artifact:version sha256:<hex>` per line and `#` comments; a
variant of an artifact (Maven's classifier) is a fourth part, `group:artifact:version:variant`, and
a file that is not a jar ends with its extension, `group:artifact:version@tar.gz`. The cache keeps
one folder per content of a lock, so an upgrade never disturbs what runs, and a folder is renamed
into place only after every file in it was counted and hashed. With a matching folder neither Java
nor the network is touched.

How a lock is made stands in `make_jar_lock`.
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


class JarLockError(Exception):
    """A lock does not parse, or what was fetched is not what the lock names."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One file of a lock."""

    group: str
    artifact: str
    version: str
    sha256: str  # lower-case hex
    variant: str = ""  # Maven's classifier
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """The name in the cache: two groups may ship an artifact of one name, so the group is in
        it."""
        return f"{'--'.join(filter(None, self.coordinates[:4]))}.{self.extension}"

    @property
    def coordinates(self) -> Coordinates:
        """What Maven calls the file."""
        return self.group, self.artifact, self.version, self.variant, self.extension

    def __str__(self) -> str:
        suffix = "" if self.extension == "jar" else f"@{self.extension}"
        return ":".join(filter(None, self.coordinates[:4])) + suffix


@dataclass(frozen=True, slots=True)
class JarLock:
    """The files that belong together, in the order of the lock file."""

    name: str
    jars: tuple[Jar, ...]

    @staticmethod
    def shipped(name: str) -> JarLock:
        """Return the lock `name` that comes with this package: one of `SHIPPED_LOCKS`."""
        text = (
            resources.files("connect_py.embedded")
            .joinpath("locks", f"{name}.lock")
            .read_text("utf-8")
        )
        return JarLock.parse(name, text)

    @staticmethod
    def parse(name: str, text: str) -> JarLock:
        """Read a lock's text.

        Raises:
            JarLockError: A line has another form, or a jar is named twice.
        """
        jars: list[Jar] = []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line.strip())
            if found is None:
                raise JarLockError(
                    f"{name}.lock, line {number}: expected group:artifact:version sha256:<hex>"
                )
            named = found["group"], found["artifact"], found["version"], found["digest"]
            jars.append(Jar(*named, found["variant"] or "", found["extension"] or "jar"))
        if len({(jar.group, jar.artifact, jar.variant, jar.extension) for jar in jars}) != len(
            jars
        ):
            raise JarLockError(f"{name}.lock names an artifact twice")
        return JarLock(name, tuple(jars))

    @property
    def fetched(self) -> bool:
        """Whether this user's cache has a folder of this lock, and `resolve` needs no network;
        nothing is hashed."""
        return self._folder(None).is_dir()

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that change with any file's name or digest; comments do not count."""
        lines = "\n".join(sorted(f"{jar.file_name} {jar.sha256}" for jar in self.jars))
        return hashlib.sha256(lines.encode()).hexdigest()[:12]

    def resolve(self, cache: Path | None = None) -> list[Path]:
        """Return the jars as files, in lock order, fetching those of a lock not seen before.

        Takes seconds to minutes the first time (progress on stderr), a tenth of a second later.
        Processes may call this at the same moment: one fetches, the others wait for it.

        Raises: JarLockError: A fetched file is missing, unexpected or has another digest. Nothing
            is kept. IvyError: The files could not be fetched. JavaNotFoundError: Fetching needs
            Java and there is none. TimeoutError: Another process has been fetching for a quarter of
            an hour.
        """
        folder = self._folder(cache)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not self._matches(folder):
            with exclusive(folder.parent / f"{self.name}.flock", _OTHER_PROCESS_SECONDS):
                if not self._matches(folder):
                    self._fill(folder)
        return [folder / jar.file_name for jar in self.jars]

    def fetched_jars(self) -> list[Path]:
        """Return the jars of this user's cache in lock order, none if it has no folder of them;
        nothing is fetched.

        Raises:
            JarLockError: They are not what the lock names.
            OSError: They cannot be read.
        """
        folder = self._folder(None)
        if not self.fetched:
            return []
        if wrong := self.complaints(folder):
            raise JarLockError(
                f"the jars of {self.name}.lock in {folder} are damaged: {'; '.join(wrong)}"
            )
        return [folder / jar.file_name for jar in self.jars]

    def complaints(self, folder: Path) -> list[str]:
        """What is wrong with a folder that should hold exactly this lock's jars; empty if nothing
        is."""
        present = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        wrong = [
            f"{name} is not in the lock"
            for name in sorted(present - {jar.file_name for jar in self.jars})
        ]
        for jar in self.jars:
            if jar.file_name not in present:
                wrong.append(f"{jar} is missing")
            elif (digest := sha256_of(folder / jar.file_name)) != jar.sha256:
                wrong.append(f"{jar} has sha256 {digest}, expected {jar.sha256}")
        return wrong

    def _folder(self, cache: Path | None) -> Path:
        return (cache or cache_directory()) / "jars" / f"{self.name}-{self.fingerprint}"

    def _matches(self, folder: Path) -> bool:
        return folder.is_dir() and not self.complaints(folder)

    def _fill(self, folder: Path) -> None:
        """Fetch beside the final place, check, rename: a crash leaves at most a folder that no
        process reads."""
        for left in folder.parent.glob(f".{self.name}-*"):
            shutil.rmtree(left, ignore_errors=True)  # of a process that died; we hold the lock
        scratch = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=folder.parent))
        try:
            fetched = scratch / "jars"
            fetch(self.name, [jar.coordinates for jar in self.jars], fetched)
            if wrong := self.complaints(fetched):
                raise JarLockError(f"the jars of {self.name}.lock were refused: {'; '.join(wrong)}")
            if folder.exists():
                os.rename(folder, scratch / "damaged")
            os.rename(fetched, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def sha256_of(file: Path) -> str:
    """Return the file's SHA-256 as lower-case hex."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def lock_text(jars: Iterable[Jar]) -> str:
    """Return the lines of a lock, sorted, so that two makings of one lock compare equal."""
    return "".join(f"{line}\n" for line in sorted(f"{jar} sha256:{jar.sha256}" for jar in jars))
