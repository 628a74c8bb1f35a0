"""What a process needs to know to start Spark: which Java, and which jars beside pyspark's own."""

from __future__ import annotations

import os

from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.java_runtime import find_java

JAVA_VARIABLE = "CONNECT_PY_JAVA"
JARS_VARIABLE = "CONNECT_PY_SPARK_JARS"


def spark_environment() -> dict[str, str]:
    """Return CONNECT_PY_JAVA (an executable) and CONNECT_PY_SPARK_JARS (paths joined by `os.pathsep`).

    A variable that is already set is returned as it is: an image that carries its own Java or jars
    downloads nothing. The caller exports the answer to the processes that will start Spark.

    Raises:
        JavaNotFoundError, IvyError, JarLockError: As for `find_java` and `JarLock.resolve`.
    """
    java = os.environ.get(JAVA_VARIABLE) or str(find_java().path)
    jars = os.environ.get(JARS_VARIABLE) or os.pathsep.join(map(str, JarLock.shipped("spark").resolve()))
    return {JAVA_VARIABLE: java, JARS_VARIABLE: jars}
