"""What the machine must have: Java and its libraries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from connect_py.api.check import Check, Finding, Verdict
from connect_py.embedded.jar_lock import JarLock, JarLockError
from connect_py.embedded.java_runtime import NEWEST, OLDEST, JavaNotFoundError, find_java
from connect_py.embedded.spark_environment import JARS_VARIABLE, JAVA_VARIABLE

_FOR_SPARK = "Iceberg sinks need it"


def machine_checks(*, java_needed: bool) -> list[Check]:
    """Checks that need no worker; what is missing fails if the connector needs Java."""
    missing = Verdict.FAIL if java_needed else Verdict.WARN
    return [Check("Java", lambda: java(missing), 30.0), Check("jars", lambda: jars(missing), 60.0)]


def java(missing: Verdict) -> Sequence[Finding]:
    """Which Java starts Spark."""
    if given := os.environ.get(JAVA_VARIABLE):
        if os.access(given, os.X_OK):
            return [Finding("Java", Verdict.OK, f"{given}, as {JAVA_VARIABLE} says")]
        mend = f"Set {JAVA_VARIABLE} to an executable, or unset it."
        return [
            Finding("Java", missing, f"{JAVA_VARIABLE}={given} is not an executable file", mend)
        ]
    try:
        found = find_java()
    except JavaNotFoundError as error:
        mend = f"Set JAVA_HOME to Java {OLDEST} to {NEWEST}, or pip install 'connect-py[java]'."
        return [Finding("Java", missing, f"{error} ({_FOR_SPARK})", mend)]
    return [Finding("Java", Verdict.OK, f"{found.version}: {found.path}")]


def jars(missing: Verdict) -> Sequence[Finding]:
    """Whether Spark's and Iceberg's libraries are on the machine, whole; nothing is fetched."""
    if given := os.environ.get(JARS_VARIABLE):
        absent = [path for path in given.split(os.pathsep) if not Path(path).is_file()]
        if absent:
            mend = f"Correct {JARS_VARIABLE}, or unset it."
            return [
                Finding(
                    "jars",
                    missing,
                    f"{JARS_VARIABLE} names files that are not there: {absent[0]}",
                    mend,
                )
            ]
        return [Finding("jars", Verdict.OK, f"as {JARS_VARIABLE} says")]
    try:
        found = JarLock.shipped("spark").fetched_jars()
    except JarLockError as error:
        return [Finding("jars", missing, str(error), "Fetch them again: connect-py jars spark")]
    if not found:
        return [
            Finding(
                "jars",
                missing,
                f"Spark's are not there ({_FOR_SPARK})",
                "Fetch them: connect-py jars spark",
            )
        ]
    return [Finding("jars", Verdict.OK, f"{len(found)} of Spark and Iceberg in {found[0].parent}")]
