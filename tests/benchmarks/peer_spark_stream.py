"""Structured Streaming that merges change events into an Iceberg table: an alternative to our
upserts.

    python tests/benchmarks/peer_spark_stream.py BOOTSTRAP TOPIC LAKE INTERVAL_MS

A typical program: parse, select the last change of each key, one `MERGE` per batch. It writes the
number of records in the table to `LAKE/progress`, and ends after SIGTERM.
"""

from __future__ import annotations

import ast
import os
import sys
import time
from pathlib import Path

from peer_java_sink import of_spark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own documentation calls them so

from connect_py.embedded.jar_lock import JarLock

TABLE = "lake.db.orders"
ROW = (
    "id BIGINT, customer_id INT, quantity INT, price DOUBLE, status STRING, sku STRING, comment "
    "STRING, email STRING, created_at BIGINT, updated_at BIGINT"
)
_MERGE = f"""
    MERGE INTO {TABLE} AS t USING changes AS c ON t.id = c.id
    WHEN MATCHED AND c.op = 'd' THEN DELETE
    WHEN MATCHED THEN UPDATE SET *
    WHEN NOT MATCHED AND c.op <> 'd' THEN INSERT *"""


def session(lake: Path) -> SparkSession:
    """A session on both cores with the catalog of the other contenders, and as few shuffled
    partitions as cores."""
    jars = [
        *JarLock.shipped("spark").resolve(),
        *filter(of_spark, JarLock.shipped("peers").resolve()),
    ]
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{lake / 'catalog.db'}",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": f"file://{lake / 'warehouse'}",
    }
    builder = SparkSession.builder.appName("peer")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def envelope(value: Column) -> Column:
    """Return the required fields of a change event."""
    return F.from_json(
        value.cast("string"), f"before STRUCT<id: BIGINT>, after STRUCT<{ROW}>, op STRING"
    )


def merge(batch: DataFrame, _number: int) -> None:
    """Merge one batch: the last change of each key by offset, because a key is always in one
    partition.
    """
    events = batch.where("value IS NOT NULL").select("offset", envelope(F.col("value")).alias("e"))
    last = (
        events.select(
            "offset", "e.op", F.coalesce("e.after.id", "e.before.id").alias("key"), "e.after"
        )
        .groupBy("key")
        .agg(F.max_by(F.struct("op", "after"), "offset").alias("c"))
    )
    changes = last.select(
        F.col("key").alias("id"), "c.op", *(f"c.after.{name}" for name in _names() if name != "id")
    )
    changes.createOrReplaceTempView("changes")
    batch.sparkSession.sql(_MERGE)


def _names() -> list[str]:
    return [column.split()[0] for column in ROW.split(",")]


def main() -> None:
    """Run until we are stopped."""
    bootstrap_servers, topic, folder, interval_ms = sys.argv[1:]
    lake = Path(folder)
    spark = session(lake)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql(
        f"CREATE TABLE {TABLE} ({ROW}) USING iceberg TBLPROPERTIES ('format-version'='3',"
        " 'write.merge.mode'='merge-on-read', 'write.distribution-mode'='none')"
    )
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(merge)
        .option("checkpointLocation", str(lake / "checkpoint"))
        .trigger(processingTime=f"{interval_ms} milliseconds")
        .start()
    )
    (lake / "progress").write_text("0")
    while query.isActive:
        time.sleep(0.5)
        progress = query.lastProgress
        # PySpark returns the string form of a dictionary that it parsed from Spark's JSON.
        ends = ast.literal_eval(progress["sources"][0]["endOffset"]) if progress else None
        if ends is not None:
            written = lake / "progress.new"
            written.write_text(str(sum(ends[topic].values())))
            written.rename(lake / "progress")
    raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main()
