"""`DeadLetterTable`: reads and deletes a connector's dead-letter records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.service import SharedServices
from connectors.iceberg.catalog.sql_names import literal
from connectors.iceberg.config.keys import DEAD_LETTER_TABLE
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import TableMissingError
from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterRecord, RecordId

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan

DELETED = 5000  # maximum number of records per DELETE statement
ROWS = 1000  # number of rows that are converted to Python objects at once
_REASON = "_dlq_reason"  # missing in some tables that users created
_WITHOUT_RECORD = ("topic", "partition", "offset", "attempt", _REASON, "stage", "failed_at")


@dataclass(frozen=True, slots=True)
class DeadLetterTable:
    """Locates the table with a JVM and reads it in this process. Deleted rows are excluded.

    Every method may raise:
        ConfigError: The connector does not store dead-letter records in a table.
        ConnectError: The catalog or the storage is not available or rejects the request.
    """

    config: IcebergSinkConfig
    services: SharedServices

    def heads(self, limit: int | None = None) -> list[DeadLetterRecord]:
        """Return the records without keys, values, and headers.

        The list is empty if the table does not exist.

        Args:
            limit: Maximum number of records.
        """
        scan = self._scan(limit)
        if scan is None:
            return []
        columns = [name for name in _WITHOUT_RECORD if name in scan.projection().column_names]
        try:
            rows: pa.Table = scan.select(*columns).to_arrow()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return [DeadLetterRecord.of(row) for row in rows.to_pylist()]

    def delete(self, dead_letters: Iterable[DeadLetterRecord]) -> None:
        """Delete records, with one commit for every few thousand records."""
        name = self.config.dead_letter_table
        conditions = list(_conditions(dead_letters))
        if name is None or not conditions:
            return
        services = self.services
        with LakeClient(
            services, worker_spark_config(self.config, services.worker_settings)
        ) as client:
            for condition in conditions:
                client.delete_rows(name, condition, self.config.table(name).commit_branch)

    def records(
        self,
        record_ids: Collection[RecordId] = (),
        topic: str | None = None,
        reason: str | None = None,
    ) -> Iterator[DeadLetterRecord]:
        """Yield the records that match all filters, or none if the table does not exist.

        Data files are read one at a time, and files without matching rows are skipped.

        Args:
            record_ids: IDs of the records, or empty for all records.
            topic: Topic of the records, or None for all topics.
            reason: Reason for the failure, or None for all reasons.
        """
        scan = self._scan()
        if scan is None or (reason is not None and _REASON not in scan.projection().column_names):
            return
        from pyiceberg.io.pyarrow import ArrowScan

        rows = _row_filter(record_ids, topic, reason)
        try:
            files = ArrowScan(scan.table_metadata, scan.io, scan.projection(), rows)
            for file in scan.filter(rows).plan_files():
                # if it were passed all files at once, ArrowScan would read ahead without limit
                for batch in files.to_record_batches([file]):
                    for start in range(0, batch.num_rows, ROWS):
                        yield from map(DeadLetterRecord.of, batch.slice(start, ROWS).to_pylist())
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _scan(self, limit: int | None = None) -> DataScan | None:
        """Return a scan of the branch with the records, or None if the table does not exist."""
        config, name = self.config, self.config.dead_letter_table
        if name is None:
            raise ConfigError(
                DEAD_LETTER_TABLE,
                "is not set; this connector does not store dead-letter records in a table",
            )
        services = self.services
        try:
            with LakeClient(
                services, worker_spark_config(config, services.worker_settings)
            ) as lake:
                location, io = lake.metadata(name)
        except TableMissingError:
            return None
        from pyiceberg.table import StaticTable

        try:
            scan = StaticTable.from_metadata(location, io).scan(limit=limit)
            branch = config.table(name).commit_branch
            return scan if branch is None else scan.use_ref(branch)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ConnectError:
        return ConnectError(f"table {self.config.dead_letter_table} cannot be read: {error}")


def _conditions(dead_letters: Iterable[DeadLetterRecord]) -> Iterator[str]:
    """Yield SQL conditions that together match the records, with about `DELETED` records each."""
    by_file: dict[tuple[str, int, int], list[int]] = {}
    for each in dead_letters:
        by_file.setdefault((each.topic, each.partition, each.attempt), []).append(each.offset)
    parts: list[str] = []
    count = 0
    for (topic, partition, attempt), offsets in sorted(by_file.items()):
        for start in range(0, len(offsets), DELETED):
            some = sorted(offsets)[start : start + DELETED]
            attempt_condition = (
                "attempt = " + str(attempt) if attempt else "coalesce(attempt, 0) = 0"
            )
            parts.append(
                f"(topic = {literal(topic)} AND partition = {partition} AND {attempt_condition} "
                f"AND `offset` IN ({', '.join(map(str, some))}))"
            )
            count += len(some)
            if count >= DELETED:
                yield " OR ".join(parts)
                parts, count = [], 0
    if parts:
        yield " OR ".join(parts)


def _row_filter(
    record_ids: Collection[RecordId], topic: str | None, reason: str | None
) -> BooleanExpression:
    """Return the filter for the requested rows."""
    from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, EqualTo, In, Or

    equal: Any = EqualTo  # its type hints describe the JSON form instead of the accepted values
    within: Any = In
    offsets: dict[tuple[str, int], list[int]] = {}
    for name, partition, offset in record_ids:
        offsets.setdefault((name, partition), []).append(offset)
    rows = [
        And(equal("topic", name), equal("partition", partition), within("offset", some))
        for (name, partition), some in offsets.items()
    ]
    return And(
        Or(AlwaysFalse(), *rows) if rows else AlwaysTrue(),
        AlwaysTrue() if topic is None else equal("topic", topic),
        AlwaysTrue() if reason is None else equal(_REASON, reason),
    )
