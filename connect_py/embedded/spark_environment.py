"""What a process needs to know to start Spark: which Java, which jars beside pyspark's own, which
JVM options."""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
from pathlib import Path

from connect_py.embedded.cache_directory import cache_directory
from connect_py.embedded.class_data_archive import ClassDataArchive
from connect_py.embedded.jar_lock import JarLock, JarLockError
from connect_py.embedded.java_runtime import JavaRuntime, find_java

log = logging.getLogger(__name__)

JAVA_VARIABLE = "CONNECT_PY_JAVA"
JARS_VARIABLE = "CONNECT_PY_SPARK_JARS"
OPTIONS_VARIABLE = "CONNECT_PY_SPARK_JAVA_OPTIONS"
CLASSES_VARIABLE = "CONNECT_PY_SPARK_CLASSES"
# set instead of the others: why there is no Spark, and the remedy
PROBLEM_VARIABLE = "CONNECT_PY_SPARK_PROBLEM"


def spark_environment(*more: str) -> dict[str, str]:
    """Return what `SparkGateway` reads, for export to the processes that start Spark.

    `more` names locks whose jars follow Spark's, also where the variable is set already.

    CONNECT_PY_JAVA is an executable, CONNECT_PY_SPARK_JARS paths joined by `os.pathsep`,
    CONNECT_PY_SPARK_JAVA_OPTIONS options in shell quoting (perhaps none), CONNECT_PY_SPARK_CLASSES
    a folder for a class that is compiled once. A variable that is already set is returned as it is:
    an image that carries its own Java and jars downloads nothing.

    Raises:
        JavaNotFoundError, IvyError, JarLockError: As for `find_java` and `JarLock.resolve`.
    """
    names = (JAVA_VARIABLE, JARS_VARIABLE, OPTIONS_VARIABLE, CLASSES_VARIABLE)
    given = {name: os.environ.get(name, "") for name in names}
    ours = not given[JAVA_VARIABLE] and not given[JARS_VARIABLE]
    found = {
        JARS_VARIABLE: given[JARS_VARIABLE] or os.pathsep.join(map(str, spark_jars())),
        JAVA_VARIABLE: given[JAVA_VARIABLE] or str(find_java().path),
        CLASSES_VARIABLE: str(cache_directory() / "classes"),
    }
    if ours:
        found[OPTIONS_VARIABLE] = shlex.join(spark_archive().options())
    environment = {name: given[name] or found.get(name, "") for name in names}
    jars = [
        environment[JARS_VARIABLE],
        *(str(jar) for name in more for jar in JarLock.shipped(name).resolve()),
    ]
    return {**environment, JARS_VARIABLE: os.pathsep.join(jars)}


def spark_jars() -> list[Path]:
    """The jars beside pyspark's own: those of lock `spark`, and behind them those of lock `s3` if
    they were fetched.

    S3 takes an SDK that is as large as all of Iceberg, so a user who needs it fetches it by name.
    Behind the others it does no harm: an archive of loaded classes fits every class path that
    begins with its own. Damaged ones are left out with a warning, and not fetched again: most sinks
    do without, and may have no way to the network.
    """
    jars = JarLock.shipped("spark").resolve()
    try:
        jars += JarLock.shipped("s3").fetched_jars()
    except (JarLockError, OSError) as error:
        log.warning("S3's library is left out, `connect-py jars s3` fetches it again: %s", error)
    return jars


def spark_archive(java: JavaRuntime | None = None) -> ClassDataArchive:
    """The archive of Iceberg's and Spark's classes for the Java and the jars that
    `spark_environment` finds."""
    spec = importlib.util.find_spec("pyspark")  # looks it up without importing it
    bundled = (
        sorted((Path(spec.origin).parent / "jars").glob("*.jar")) if spec and spec.origin else []
    )
    return ClassDataArchive(
        "iceberg", java or find_java(), (*bundled, *JarLock.shipped("spark").resolve())
    )
