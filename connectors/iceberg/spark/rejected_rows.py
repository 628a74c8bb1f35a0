"""Rows that an expectation left out, kept in a table of their own, exactly once.

Before the swap they are written to a file that no table has. The swap of the commit names it in a property of the
table. After the swap the rows are appended to the table of rejected rows, in one commit that names the commit they come
from. A crash in between leaves the property: the next commit on the table looks for that name first, and appends the
rows if it is not there.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.schema.table import StagedFile, StagedKind
from connectors.iceberg.spark.expectation_check import NAMES
from connectors.iceberg.spark.java_errors import translating
from connectors.iceberg.spark.sql_names import literal, quoted, relation
from connectors.iceberg.spark.staged_rows import content_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connectors.iceberg.protocol.commit_request import CommitRequest
    from connectors.iceberg.protocol.table_metadata import TableMetadata
    from connectors.iceberg.spark.cycle_table import CycleTable
    from connectors.iceberg.spark.iceberg_java import JavaCatalog, JavaTable

log = logging.getLogger(__name__)

REJECTED: Final = "connect-py.rejected."  # and the connect group id: property that names the file; empty: none
_COMMIT_KEY: Final = "connect-py.rejected-by"  # in the summary of a snapshot of rejected rows: `<group> <commit id>`
_COMMIT, _AT = "_commit", "_rejected_at"
_FIELD: Final = {"id": 2_000_000_020, "name": NAMES, "required": False, "type": "string"}
_LOOKED_AT: Final = 100  # newest snapshots of the table of rejected rows


def rejected_key(property_key: str) -> str:
    """The property of the connector whose ledger has this key."""
    return REJECTED + property_key.rpartition("ledger.")[2]


def write_rejected(cycle: CycleTable, rows: DataFrame) -> dict[str, str]:
    """Write rows with `NAMES` to a file; returns the property to set with the commit."""
    request = cycle.request
    file = cycle.write_unbound(rows, [_FIELD])
    found = StagedFile(
        StagedKind.CHANGES, str(file.location()), int(file.recordCount()), int(file.fileSizeInBytes()), 0, 0
    )
    text = json.dumps({"commit": request.commit_id, "path": found.path, "rows": found.rows, "size": found.size})
    return {rejected_key(request.property_key): text}


class RejectedRows:
    """Appends what the last commits left out; of one session."""

    def __init__(self, spark: SparkSession, catalog: JavaCatalog, catalog_name: str) -> None:
        self._spark = spark
        self._catalog = catalog
        self._catalog_name = catalog_name
        self._settled: set[str] = set()  # texts of the property that are known to be done with

    def settle(self, table: JavaTable, request: CommitRequest, properties: Mapping[str, str]) -> None:
        """Append the rows that the table's properties name, unless that was done.

        Raises:
            ConnectError: It does not work now; the rows stay in their file.
        """
        text = properties.get(rejected_key(request.property_key), "")
        if not text or text in self._settled:
            return
        with translating(request.rejected_table):
            self._append(table, request, json.loads(text))
        self._settled.add(text)

    def _append(self, table: JavaTable, request: CommitRequest, named: Mapping[str, Any]) -> None:
        name = request.rejected_table
        by = f"{request.property_key.rpartition('ledger.')[2]} {named['commit']}"
        there = self._metadata(name)
        if there is not None and _has(there, by):
            return
        file = StagedFile(StagedKind.CHANGES, named["path"], named["rows"], named["size"], 0, 0)
        with table.staged([content_file(file)], [_FIELD]) as staged:
            columns = [*table.metadata().column_names(), NAMES]
            rows = self._spark.table(staged).selectExpr(
                *map(quoted, columns), f"{literal(named['commit'])} AS {_COMMIT}", f"current_timestamp() AS {_AT}"
            )
            into = relation(self._catalog_name, name)
            if there is None:  # without rows: the append that names its commit is the only one that brings any
                made = rows.limit(0).writeTo(into).using("iceberg").tableProperty("format-version", "2")
                made.tableProperty("write.spark.accept-any-schema", "true").create()
            append = rows.writeTo(into).option("mergeSchema", "true").option("check-ordering", "false")
            append.option("check-nullability", "false").option(f"snapshot-property.{_COMMIT_KEY}", by).append()
        log.info("table %s: %d rows were rejected and are in %s", request.table, named["rows"], name)
        table.delete_file(named["path"])

    def _metadata(self, name: str) -> TableMetadata | None:
        try:
            with translating(name):
                return self._catalog.load(name).metadata()
        except TableMissingError:
            return None


def _has(metadata: TableMetadata, by: str) -> bool:
    """Whether the rows of this commit are in the table."""
    newest = itertools.islice(metadata.ancestors(metadata.head(MAIN)), _LOOKED_AT)
    return any(snapshot["summary"].get(_COMMIT_KEY) == by for snapshot in newest)
