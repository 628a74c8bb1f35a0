"""One run of the JVM through what a coordinator does, so that Java can archive the classes it took.

    CONNECT_PY_JAVA=... CONNECT_PY_SPARK_JARS=... CONNECT_PY_SPARK_CLASSES=... \\
        python -m connectors.iceberg.spark.class_archive [--alone] -XX:ArchiveClassesAtExit=spark.jsa

Run as a program only, by whoever makes the archive (see `connect-py archives`): `--alone` for a JVM without Spark,
which does no SQL. Java writes the archive while it exits, which takes longer than the run itself. Our own classes are
compiled by a JVM before, so that they are loaded in the way that they will be, and no compiler is archived with them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, TableVersion, TopicLedger, look_up
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark.catalog import TableCatalog
from connectors.iceberg.spark.commit_request import SNAPSHOT_ID, CommitRequest, EngineName
from connectors.iceberg.spark.committer import TableCommitter
from connectors.iceberg.spark.gateway import SparkGateway
from connectors.iceberg.spark.session import LATE_SOURCES, SparkConfig, SparkDriver
from connectors.iceberg.staging.staged_file_name import table_digits
from connectors.iceberg.table import StagedFile, StagedKind, TableDescription, WriteMode

_EXIT_SECONDS = 180.0
_LEDGER = "connect-py.ledger.training"
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "text", "required": False, "type": "string"},
        {"id": 3, "name": "price", "required": False, "type": "decimal(10, 2)"},
        {"id": 4, "name": "at", "required": False, "type": "timestamptz"},
    ],
}


def run(java_options: Sequence[str], *, alone: bool) -> None:
    """Make tables in a SQLite catalog, append, replace rows and read them, in a JVM with these options."""
    with tempfile.TemporaryDirectory(prefix="connect-py-training-") as folder:
        config = SparkConfig(
            catalog="training",
            catalog_properties={
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            },
            quick_jvm=True,
            needs_spark=not alone,
        )
        with SparkDriver(config, log_path=Path(folder) / "compiler.log") as compiling:
            for sources in LATE_SOURCES:
                compiling.java(sources[0])
        launched: list[SparkGateway] = []

        def launch(options: Sequence[str], log_path: Path | None, with_spark: bool) -> SparkGateway:
            given = (*options, *java_options)
            launched.append(SparkGateway.from_environment(given, log_path, with_spark=with_spark))
            return launched[-1]

        driver = SparkDriver(config, launch, Path(folder) / "spark.log")
        driver.start()
        # Somebody who says something about file systems has Hadoop's, also on this machine.
        through_hadoop = dataclasses.replace(config, hadoop_properties={"training": "true"})
        second = SparkDriver(through_hadoop, lambda *_: launched[0])
        try:
            for version in (3, 2):
                _work(driver, f"shop.t{version}", version, alone=alone)
            second.start()
            _work(second, "shop.through_hadoop", 3, alone=True)
            if len(launched) > 1:
                raise RuntimeError("a JVM without Spark was not enough, and nothing is archived")
        finally:
            launched[-1].stop(_EXIT_SECONDS)
            second.stop()
            driver.stop()


def _work(driver: SparkDriver, name: str, version: int, *, alone: bool) -> None:
    catalog = TableCatalog(driver)
    catalog.create(name, json.dumps(_SCHEMA), None, {"format-version": str(version)})
    engines = [(EngineName.APPEND, 0), (EngineName.DELTA, 50), (EngineName.DELTA, 70), (EngineName.MERGE, 90)]
    for engine, first in engines[:-1] if alone else engines:
        loaded = catalog.load(name, _LEDGER)
        staged = _staged(loaded.description, first)
        expected = look_up(loaded.view).version
        TableCommitter(driver, catalog, engine).commit(_request(name, expected, staged))
    catalog.evolve(name, [SchemaChange(ChangeKind.ADD, ("more",), '"string"')])
    catalog.remove_files(name, catalog.load(name, _LEDGER).description.uuid, "connect-training-", 1)
    if not alone:
        driver.sql(f"SELECT * FROM training.{name}.snapshots")


def _request(name: str, expected: TableVersion, staged: StagedFile) -> CommitRequest:
    commit_id = str(uuid.uuid4())
    ledger = Ledger(Epoch(0, "training"), commit_id, 1, expected.uuid, "", {"shop": TopicLedger("", {})})
    template = LedgerProperty.template(ledger, {}, SNAPSHOT_ID)
    return CommitRequest(
        name, commit_id, expected, _LEDGER, template, {_LEDGER: ledger.to_json()}, [staged], WriteMode.MERGE, ["id"]
    )


def _staged(table: TableDescription, first: int) -> StagedFile:
    """A hundred rows as a task stages them."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    schema = schema_to_pyarrow(Schema.model_validate(_SCHEMA))
    rows = [{"id": number, "text": f"row {number}", "price": 1, "at": number} for number in range(first, first + 100)]
    name = f"connect-training-0-a.{table_digits(table.uuid)}.{uuid.uuid4().hex}.parquet"  # clean-up looks at it
    path = Path(table.data_location.removeprefix("file://")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return StagedFile(StagedKind.ROWS, f"file://{path}", len(rows), path.stat().st_size, 0, 0)


if __name__ == "__main__":
    run([word for word in sys.argv[1:] if word != "--alone"], alone="--alone" in sys.argv)
