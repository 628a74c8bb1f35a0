"""One run of the JVM through what a Spark driver does, so that Java can archive the classes it took.

    CONNECT_PY_JAVA=... CONNECT_PY_SPARK_JARS=... CONNECT_PY_SPARK_CLASSES=... \\
        python -m connectors.iceberg.spark.class_archive -XX:ArchiveClassesAtExit=spark.jsa

Run as a program only, to make the archive (see `connect-py archives`). Java writes the archive while it exits,
which takes longer than the run itself. Our own class is compiled by a JVM before, so that it is loaded in the way that
it will be, and no compiler is archived with it.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from py4j.java_gateway import GatewayParameters, JavaGateway

from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark.durable_files import force_local_files
from connectors.iceberg.spark.gateway import SparkGateway
from connectors.iceberg.spark.iceberg_java import JavaCatalog
from connectors.iceberg.spark.spark_runtime import SparkRuntime
from connectors.iceberg.spark_config import SparkConfig

_EXIT_SECONDS: Final = 180.0
_MODES: Final = ("write.merge.mode", "write.update.mode", "write.delete.mode")


def run(java_options: Sequence[str]) -> None:
    """Make tables in a SQLite catalog, append, merge, and change a schema, in a JVM with these options."""
    with tempfile.TemporaryDirectory(prefix="connect-py-training-") as folder:
        uri, warehouse = f"jdbc:sqlite:{folder}/catalog.db", f"file://{folder}/warehouse"
        config = SparkConfig("lake", {"type": "jdbc", "uri": uri, "warehouse": warehouse})
        with SparkGateway() as compiling:
            parameters = GatewayParameters(port=compiling.port, auth_token=compiling.secret)
            force_local_files(JavaGateway(gateway_parameters=parameters).jvm)
        options = [*config.jvm_options(), *java_options]
        runtime = SparkRuntime(options, config.static_settings(), Path(folder) / "spark.log")
        try:
            spark = runtime.new_session(config.session_settings())
            spark.sql("CREATE NAMESPACE lake.shop")
            for version in (3, 2):
                table = f"lake.shop.t{version}"
                modes = "".join(f", '{key}'='merge-on-read'" for key in _MODES)
                spark.sql(
                    f"CREATE TABLE {table} (id bigint NOT NULL, text string, price decimal(10, 2), at timestamp) "
                    f"TBLPROPERTIES ('format-version'='{version}'{modes})"
                )
                rows = "SELECT id, concat('row ', id) AS text, CAST(1 AS decimal(10, 2)) AS price, timestamp_micros(id)"
                spark.sql(f"INSERT INTO {table} {rows} FROM range(100)")
                spark.sql(f"ALTER TABLE {table} CREATE BRANCH work")
                matched = f"MERGE INTO {table}.branch_work t USING ({rows} AS at FROM range(50, 150)) s ON t.id = s.id "
                spark.sql(f"{matched} WHEN MATCHED THEN DELETE")
                spark.sql(f"{matched} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
                JavaCatalog(spark, "lake").load(f"shop.t{version}").evolve(
                    [SchemaChange(ChangeKind.ADD, ("more",), '"string"')]
                )
        finally:
            runtime.stop(_EXIT_SECONDS)


if __name__ == "__main__":
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it misses the JVM, for each Java object that is left
    run(sys.argv[1:])
