"""Start-up archives of loaded classes (AppCDS): a JVM that has one starts in about half the time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from connect_py.embedded.cache_directory import cache_directory
from connect_py.embedded.java_runtime import JavaRuntime


@dataclass(frozen=True, slots=True)
class ClassDataArchive:
    """The archive for one class path on one Java. It may not exist, and nothing depends on it."""

    name: str
    java: JavaRuntime
    class_path: str

    @property
    def path(self) -> Path:
        """Where the archive is or would be; another Java or class path has another file."""
        known = f"{self.java.path.resolve()}\n{self.java.version}\n{self.class_path}"
        digest = hashlib.sha256(known.encode()).hexdigest()[:12]
        return cache_directory() / "archives" / f"{self.name}-{digest}.jsa"

    def options(self) -> list[str]:
        """The JVM options that use the archive if there is one; Java checks it and goes on without it."""
        return ["-Xshare:auto", f"-XX:SharedArchiveFile={self.path}"] if self.path.exists() else []
