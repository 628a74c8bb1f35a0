"""One run of the JVM through what a Spark driver does, so that Java can archive the classes it took.

    CONNECT_PY_JAVA=... CONNECT_PY_SPARK_JARS=... CONNECT_PY_SPARK_CLASSES=... \\
        python -m connectors.iceberg.spark.class_archive -XX:ArchiveClassesAtExit=spark.jsa

Run as a program only, by whoever makes the archive (see `connect-py archives`). Java writes the archive while it exits,
which takes longer than the run itself. Our own class is compiled by a JVM before, so that it is loaded in the way that
it will be, and no compiler is archived with it.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from py4j.java_gateway import GatewayParameters, JavaGateway

from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, TableVersion, TopicLedger, look_up
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark.commit_engine import EngineSettings
from connectors.iceberg.spark.commit_request import SNAPSHOT_ID, CommitRequest, CommitStatus
from connectors.iceberg.spark.durable_files import force_local_files
from connectors.iceberg.spark.gateway import SparkGateway
from connectors.iceberg.spark.lake_session import LakeSession
from connectors.iceberg.spark.spark_config import SparkConfig
from connectors.iceberg.spark.spark_runtime import SparkRuntime
from connectors.iceberg.staging.staged_file_name import table_digits
from connectors.iceberg.table import StagedFile, StagedKind, TableDescription, WriteMode

_EXIT_SECONDS: Final = 180.0
_LEDGER: Final = "connect-py.ledger.training"
_MODES: Final = ("write.merge.mode", "write.update.mode", "write.delete.mode")
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "text", "required": False, "type": "string"},
        {"id": 3, "name": "price", "required": False, "type": "decimal(10, 2)"},
        {"id": 4, "name": "at", "required": False, "type": "timestamptz"},
    ],
}


def run(java_options: Sequence[str]) -> None:
    """Make tables in a SQLite catalog, append, merge, and clean up, in a JVM with these options."""
    with tempfile.TemporaryDirectory(prefix="connect-py-training-") as folder:
        config = SparkConfig(
            catalog="training",
            catalog_properties={
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            },
            quick_jvm=True,
        )
        with SparkGateway() as compiling:
            parameters = GatewayParameters(port=compiling.port, auth_token=compiling.secret)
            force_local_files(JavaGateway(gateway_parameters=parameters).jvm)
        options = [*config.jvm_options(), *java_options]
        runtime = SparkRuntime(options, config.static_settings(), Path(folder) / "spark.log")
        try:
            for full_merge in (False, True):
                session = runtime.new_session(config.session_settings())
                runtime.activate(session)
                lake = LakeSession(session, config.catalog, EngineSettings(full_merge=full_merge))
                for version in (3, 2):
                    _work(lake, f"shop.t{version}{full_merge}", version)
        finally:
            runtime.stop(_EXIT_SECONDS)


def _work(lake: LakeSession, name: str, version: int) -> None:
    properties = {"format-version": str(version), **dict.fromkeys(_MODES, "merge-on-read")}
    lake.create(name, json.dumps(_SCHEMA), None, properties)
    for first in (0, 50, 70):  # an append, then commits that replace rows
        loaded = lake.load(name, _LEDGER)
        staged = _staged(loaded.description, first)
        outcome = lake.commit(_request(name, look_up(loaded.view).version, staged))
        if outcome.status is not CommitStatus.COMMITTED:
            raise RuntimeError(f"nothing is archived: {outcome.reason}")
    lake.evolve(name, [SchemaChange(ChangeKind.ADD, ("more",), '"string"')])
    lake.remove_files(name, lake.load(name, _LEDGER).description.uuid, "connect-training-", 1)


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
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it misses the JVM, for each Java object that is left
    run(sys.argv[1:])
