"""Checks for the machine: Java and its libraries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from connect_py.api.check import Check, Finding, Verdict
from connect_py.embedded.jar_lock import JarLock, JarLockError
from connect_py.embedded.java_runtime import NEWEST, OLDEST, JavaNotFoundError, find_java
from connect_py.embedded.spark_environment import JARS_VARIABLE, JAVA_VARIABLE

_FOR_SPARK = "required by Iceberg sinks"


def machine_checks(*, java_needed: bool) -> list[Check]:
    """Return the checks for Java and jars. A problem is a failure only if Java is required."""
    missing = Verdict.FAIL if java_needed else Verdict.WARN
    return [Check("Java", lambda: java(missing), 30.0), Check("jars", lambda: jars(missing), 60.0)]


def java(missing: Verdict) -> Sequence[Finding]:
    """Check which Java installation Spark will use."""
    if path := os.environ.get(JAVA_VARIABLE):
        if os.access(path, os.X_OK):
            return [Finding("Java", Verdict.OK, f"{path}, from {JAVA_VARIABLE}")]
        remedy = f"Set {JAVA_VARIABLE} to an executable, or unset it."
        return [
            Finding("Java", missing, f"{JAVA_VARIABLE}={path} is not an executable file", remedy)
        ]
    try:
        runtime = find_java()
    except JavaNotFoundError as error:
        remedy = f"Set JAVA_HOME to Java {OLDEST} to {NEWEST}, or pip install 'connect-py[java]'."
        return [Finding("Java", missing, f"{error} ({_FOR_SPARK})", remedy)]
    return [Finding("Java", Verdict.OK, f"{runtime.version}: {runtime.path}")]


def jars(missing: Verdict) -> Sequence[Finding]:
    """Check that the Spark and Iceberg libraries are complete. Nothing is downloaded."""
    if paths := os.environ.get(JARS_VARIABLE):
        absent = [path for path in paths.split(os.pathsep) if not Path(path).is_file()]
        if absent:
            remedy = f"Correct {JARS_VARIABLE}, or unset it."
            return [
                Finding(
                    "jars",
                    missing,
                    f"{JARS_VARIABLE} contains paths of missing files: {absent[0]}",
                    remedy,
                )
            ]
        return [Finding("jars", Verdict.OK, f"from {JARS_VARIABLE}")]
    try:
        files = JarLock.shipped("spark").fetched_jars()
    except JarLockError as error:
        return [Finding("jars", missing, str(error), "Download them again: connect-py jars spark")]
    if not files:
        return [
            Finding(
                "jars",
                missing,
                f"Spark's jars are missing ({_FOR_SPARK})",
                "Download them: connect-py jars spark",
            )
        ]
    return [
        Finding("jars", Verdict.OK, f"{len(files)} Spark and Iceberg jars in {files[0].parent}")
    ]
