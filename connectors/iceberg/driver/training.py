"""Commits on a private table: a JVM loads and compiles the classes that the commits of connectors
need.

The training run of the class archive and the warm-up of the driver share them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.protocol.commit_request import SNAPSHOT_ID, CommitRequest, CommitStatus
from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, TopicLedger, look_up
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.table_metadata import WRITE_MODES
from connectors.iceberg.staging.staged_file_name import table_digits
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import StagedFile, StagedKind, WriteMode

_LEDGER: Final = "connect-py.ledger.training"


def training_config(folder: Path) -> SparkConfig:
    """Return the settings of a session whose catalog and tables are in this folder."""
    return SparkConfig(
        catalog="training",
        catalog_properties={
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        },
    )


def training_steps(lake: LakeSession, table: str, version: int) -> Iterator[None]:
    """Create a table of this format version, append, merge, and clean up. Yields after each step.

    Args:
        lake: A session with `training_config`.
        table: A new table in the namespace `shop`, without the namespace.
        version: Format version of the table.

    Raises:
        RuntimeError: A commit failed.
    """
    name = f"shop.{table}"
    modes = "".join(f", '{key}'='merge-on-read'" for key in WRITE_MODES)
    lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS training.shop")
    lake.spark.sql(
        f"CREATE TABLE training.{name} (id bigint NOT NULL, text string, price decimal(10, 2), at "
        f"timestamp) TBLPROPERTIES ('format-version'='{version}'{modes})"
    )
    yield
    for first in (0, 50, 70):  # an append, then commits that replace rows
        request = _request(lake, name, first)
        yield
        outcome = lake.commit(request)
        if outcome.status is not CommitStatus.COMMITTED:
            raise RuntimeError(f"training commit failed: {outcome.reason}")
        yield
    lake.evolve(name, [SchemaChange(ChangeKind.ADD, ("more",), '"string"')])
    yield
    lake.remove_files(name, lake.load(name, _LEDGER).description.uuid, "connect-training-", 1)
    yield


def _request(lake: LakeSession, name: str, first: int) -> CommitRequest:
    """Stage a hundred rows."""
    loaded = lake.load(name, _LEDGER)
    expected, commit_id = look_up(loaded.view).version, str(uuid.uuid4())
    rows = lake.spark.range(first, first + 100).selectExpr(
        "id",
        "concat('row ', id) AS text",
        "CAST(1 AS decimal(10, 2)) AS price",
        "timestamp_micros(id) AS at",
    )
    # clean-up looks at it
    folder = f"connect-training-0-a.{table_digits(expected.uuid)}.{commit_id}"
    files = [
        StagedFile(
            StagedKind.ROWS, file.location(), file.recordCount(), file.fileSizeInBytes(), 0, 0
        )
        for file in lake.table(name).write(rows, folder)
    ]
    ledger = Ledger(
        Epoch(0, "training"), commit_id, 1, expected.uuid, "", {"shop": TopicLedger("", {})}
    )
    template = LedgerProperty.template(ledger, {}, SNAPSHOT_ID)
    return CommitRequest(
        name,
        commit_id,
        expected,
        _LEDGER,
        template,
        {_LEDGER: ledger.to_json()},
        files,
        WriteMode.MERGE,
        ["id"],
    )
