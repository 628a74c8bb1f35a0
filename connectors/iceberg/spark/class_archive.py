"""One run of Spark through what the coordinator does, so that Java can archive the classes it took.

    CONNECT_PY_JAVA=... CONNECT_PY_SPARK_JARS=... \\
        python -m connectors.iceberg.spark.class_archive -XX:ArchiveClassesAtExit=spark.jsa

Run as a program only, by whoever makes the archive (see `connect-py archives`). Java writes the archive
while it exits, which takes longer than the run itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from connectors.iceberg.spark.gateway import SparkGateway

_EXIT_SECONDS = 180.0
_OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def run(java_options: Sequence[str]) -> None:
    """Make a table in a SQLite catalog, append, merge both ways and read it, in a JVM with these options."""
    with tempfile.TemporaryDirectory(prefix="connect-py-training-") as folder:
        gateway = SparkGateway.from_environment((*_OPTIONS, *java_options), Path(folder) / "spark.log")
        try:
            os.environ.update(gateway.environment())
            _work(Path(folder))
        finally:
            gateway.stop(_EXIT_SECONDS)


def _work(folder: Path) -> None:
    from pyspark.sql import SparkSession  # here: it must find the gateway's address when it is loaded

    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.c": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.c.type": "jdbc",
        "spark.sql.catalog.c.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "spark.sql.catalog.c.jdbc.schema-version": "V1",
        "spark.sql.catalog.c.warehouse": str(folder / "warehouse"),
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sql("CREATE NAMESPACE c.d")
    for version, mode in ((3, "merge-on-read"), (2, "copy-on-write")):
        table = f"c.d.t{version}"
        spark.sql(
            f"CREATE TABLE {table} (id BIGINT, v STRING, d DECIMAL(10, 2), at TIMESTAMP) USING iceberg"
            f" TBLPROPERTIES ('format-version' = '{version}', 'write.merge.mode' = '{mode}')"
        )
        columns = "CAST(id * 1.5 AS DECIMAL(10, 2)) AS d, CAST(id AS TIMESTAMP) AS at"
        spark.sql(f"INSERT INTO {table} SELECT id, 'a', {columns} FROM range(100)")
        staged = folder / f"staged{version}"
        spark.sql(f"SELECT id, 'b' AS v, {columns} FROM range(50, 150)").write.parquet(str(staged))
        spark.read.parquet(str(staged)).createOrReplaceTempView("staged")
        spark.sql(
            f"MERGE INTO {table} AS target USING staged ON target.id = staged.id"
            " WHEN MATCHED AND staged.id % 10 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED THEN INSERT *"
        )
        spark.sql(
            f"SELECT target._file, target._pos FROM {table} AS target JOIN staged ON target.id = staged.id"
        ).toArrow()
        spark.sql(f"SELECT * FROM {table}.snapshots").collect()
    spark.stop()


if __name__ == "__main__":
    run(sys.argv[1:])
