"""One run of the JVM through what a Spark driver does, so that Java can archive the classes it took.

    CONNECT_PY_JAVA=... CONNECT_PY_SPARK_JARS=... CONNECT_PY_SPARK_CLASSES=... \\
        python -m connectors.iceberg.driver.class_archive -XX:ArchiveClassesAtExit=spark.jsa

Run as a program only, to make the archive (see `connect-py archives`). Java writes the archive while it exits,
which takes longer than the run itself. Our own class is compiled by a JVM before, so that it is loaded in the way that
it will be, and no compiler is archived with it.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from py4j.java_gateway import GatewayParameters, JavaGateway

from connectors.iceberg.catalog.own_classes import define_classes
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.gateway import SparkGateway
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.protocol.commit_request import SNAPSHOT_ID, CommitRequest, CommitStatus, EngineSettings
from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, TopicLedger, look_up
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.table_metadata import WRITE_MODES
from connectors.iceberg.schema.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.schema.table import StagedFile, StagedKind, WriteMode
from connectors.iceberg.staging.staged_file_name import table_digits

_EXIT_SECONDS: Final = 180.0
_LEDGER: Final = "connect-py.ledger.training"


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
        )
        with SparkGateway() as compiling:
            parameters = GatewayParameters(port=compiling.port, auth_token=compiling.secret)
            define_classes(JavaGateway(gateway_parameters=parameters))
        options = [*config.jvm_options(), *java_options]
        runtime = SparkRuntime(options, config.static_settings(), Path(folder) / "spark.log")
        try:
            for full_merge in (False, True):
                session = runtime.new_session(config.session_settings())
                lake = LakeSession(session, config.catalog, EngineSettings(full_merge=full_merge))
                for version in (3, 2):
                    _work(lake, f"shop.t{version}{full_merge}", version)
        finally:
            runtime.stop(_EXIT_SECONDS)


def _work(lake: LakeSession, name: str, version: int) -> None:
    modes = "".join(f", '{key}'='merge-on-read'" for key in WRITE_MODES)
    lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS training.shop")
    lake.spark.sql(
        f"CREATE TABLE training.{name} (id bigint NOT NULL, text string, price decimal(10, 2), at timestamp) "
        f"TBLPROPERTIES ('format-version'='{version}'{modes})"
    )
    for first in (0, 50, 70):  # an append, then commits that replace rows
        outcome = lake.commit(_request(lake, name, first))
        if outcome.status is not CommitStatus.COMMITTED:
            raise RuntimeError(f"nothing is archived: {outcome.reason}")
    lake.evolve(name, [SchemaChange(ChangeKind.ADD, ("more",), '"string"')])
    lake.remove_files(name, lake.load(name, _LEDGER).description.uuid, "connect-training-", 1)


def _request(lake: LakeSession, name: str, first: int) -> CommitRequest:
    """A hundred rows, staged."""
    loaded = lake.load(name, _LEDGER)
    expected, commit_id = look_up(loaded.view).version, str(uuid.uuid4())
    rows = lake.spark.range(first, first + 100).selectExpr(
        "id", "concat('row ', id) AS text", "CAST(1 AS decimal(10, 2)) AS price", "timestamp_micros(id) AS at"
    )
    folder = f"connect-training-0-a.{table_digits(expected.uuid)}.{commit_id}"  # clean-up looks at it
    files = [
        StagedFile(StagedKind.ROWS, file.location(), file.recordCount(), file.fileSizeInBytes(), 0, 0)
        for file in lake.table(name).write(rows, folder)
    ]
    ledger = Ledger(Epoch(0, "training"), commit_id, 1, expected.uuid, "", {"shop": TopicLedger("", {})})
    template = LedgerProperty.template(ledger, {}, SNAPSHOT_ID)
    return CommitRequest(
        name, commit_id, expected, _LEDGER, template, {_LEDGER: ledger.to_json()}, files, WriteMode.MERGE, ["id"]
    )


if __name__ == "__main__":
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it misses the JVM, for each Java object that is left
    run(sys.argv[1:])
