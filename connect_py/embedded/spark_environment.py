"""Environment variables for processes that start Spark: Java, additional jars, and JVM options."""

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
# set instead of the other variables; states why Spark is not available, and the remedy
PROBLEM_VARIABLE = "CONNECT_PY_SPARK_PROBLEM"


def spark_environment(*more: str) -> dict[str, str]:
    """Return the environment variables that `SparkGateway` reads, for processes that start Spark.

    CONNECT_PY_JAVA is the path of the Java executable. CONNECT_PY_SPARK_JARS contains paths joined
    by `os.pathsep`. CONNECT_PY_SPARK_JAVA_OPTIONS contains shell-quoted options and may be empty.
    CONNECT_PY_SPARK_CLASSES is a folder for compiled classes. A variable that is already set is
    returned unchanged. Therefore, an image with its own Java and jars downloads nothing.

    `more` contains names of locks whose jars are appended to Spark's jars, even if
    CONNECT_PY_SPARK_JARS is already set.

    Raises:
        JavaNotFoundError, IvyError, JarLockError: See `find_java` and `JarLock.resolve`.
    """
    names = (JAVA_VARIABLE, JARS_VARIABLE, OPTIONS_VARIABLE, CLASSES_VARIABLE)
    configured = {name: os.environ.get(name, "") for name in names}
    is_default = not configured[JAVA_VARIABLE] and not configured[JARS_VARIABLE]
    defaults = {
        JARS_VARIABLE: configured[JARS_VARIABLE] or os.pathsep.join(map(str, spark_jars())),
        JAVA_VARIABLE: configured[JAVA_VARIABLE] or str(find_java().path),
        CLASSES_VARIABLE: str(cache_directory() / "classes"),
    }
    if is_default:
        defaults[OPTIONS_VARIABLE] = shlex.join(spark_archive().options())
    environment = {name: configured[name] or defaults.get(name, "") for name in names}
    jars = [
        environment[JARS_VARIABLE],
        *(str(jar) for name in more for jar in JarLock.shipped(name).resolve()),
    ]
    return {**environment, JARS_VARIABLE: os.pathsep.join(jars)}


def spark_jars() -> list[Path]:
    """Return the jars that pyspark lacks, from lock `spark` and, if cached, from lock `s3`.

    S3 requires an SDK that is as large as Iceberg and is therefore downloaded only on request. The
    S3 jars are at the end of the class path, because a class data archive matches every class path
    that starts with its own. Damaged S3 jars are omitted with a warning instead of being downloaded
    again, because most sinks do not need them and may not have network access.
    """
    jars = JarLock.shipped("spark").resolve()
    try:
        jars += JarLock.shipped("s3").fetched_jars()
    except (JarLockError, OSError) as error:
        log.warning(
            "omitting the S3 library; run `connect-py jars s3` to download it again: %s", error
        )
    return jars


def spark_archive(java: JavaRuntime | None = None) -> ClassDataArchive:
    """Return the class data archive that `spark_environment` uses for Spark and Iceberg."""
    spec = importlib.util.find_spec("pyspark")  # does not import pyspark
    bundled = (
        sorted((Path(spec.origin).parent / "jars").glob("*.jar")) if spec and spec.origin else []
    )
    return ClassDataArchive(
        "iceberg", java or find_java(), (*bundled, *JarLock.shipped("spark").resolve())
    )
