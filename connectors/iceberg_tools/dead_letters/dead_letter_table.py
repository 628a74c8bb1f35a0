"""`LetterTable`: reads the dead letters of a connector from their table."""

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
from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterRecord, Place

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan

DELETED = 5000  # letters that one statement names
ROWS = 1000  # of a batch, that are Python objects at once
_REASON = "_dlq_reason"  # a table of one's own may lack it
_WITHOUT_RECORD = ("topic", "partition", "offset", "attempt", _REASON, "stage", "failed_at")


@dataclass(frozen=True, slots=True)
class DeadLetterTable:
    """Asks the catalog through a JVM where the table is now, and reads it in this process, deleted
    rows left out.

    Raises, from every method:
        ConfigError: The connector keeps no dead letters in a table.
        ConnectError: The catalog or the storage does not answer, or refuses.
    """

    config: IcebergSinkConfig
    services: SharedServices

    def heads(self, limit: int | None = None) -> list[DeadLetterRecord]:
        """All letters without key, value and headers, or so many; none when the table does not
        exist yet."""
        scan = self._scan(limit)
        if scan is None:
            return []
        there = [name for name in _WITHOUT_RECORD if name in scan.projection().column_names]
        try:
            found: pa.Table = scan.select(*there).to_arrow()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return [DeadLetterRecord.of(row) for row in found.to_pylist()]

    def delete(self, dead_letters: Iterable[DeadLetterRecord]) -> None:
        """Delete these letters, some thousands of them in each commit."""
        name = self.config.dead_letter_table
        conditions = list(_naming(dead_letters))
        if name is None or not conditions:
            return
        services = self.services
        with LakeClient(
            services, worker_spark_config(self.config, services.worker_settings)
        ) as client:
            for condition in conditions:
                client.delete_rows(name, condition, self.config.table(name).commit_branch)

    def records(
        self, places: Collection[Place] = (), topic: str | None = None, reason: str | None = None
    ) -> Iterator[DeadLetterRecord]:
        """The letters of these records, if any are named, of this topic and this reason; none when
        there is no table.

        One data file at a time, and of each only the rows that are asked for; files without any are
        left alone.
        """
        scan = self._scan()
        if scan is None or (reason is not None and _REASON not in scan.projection().column_names):
            return
        from pyiceberg.io.pyarrow import ArrowScan

        rows = _asked_for(places, topic, reason)
        try:
            files = ArrowScan(scan.table_metadata, scan.io, scan.projection(), rows)
            for file in scan.filter(rows).plan_files():
                # given all, it reads ahead as fast as it can
                for batch in files.to_record_batches([file]):
                    for start in range(0, batch.num_rows, ROWS):
                        yield from map(DeadLetterRecord.of, batch.slice(start, ROWS).to_pylist())
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _scan(self, limit: int | None = None) -> DataScan | None:
        """Of the branch that letters are committed to; None: there is no table."""
        config, name = self.config, self.config.dead_letter_table
        if name is None:
            raise ConfigError(
                DEAD_LETTER_TABLE, "is not set: this connector keeps no dead letters in a table"
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


def _naming(dead_letters: Iterable[DeadLetterRecord]) -> Iterator[str]:
    """Conditions in SQL that name letters, each some of them."""
    by_file: dict[tuple[str, int, int], list[int]] = {}
    for each in dead_letters:
        by_file.setdefault((each.topic, each.partition, each.attempt), []).append(each.offset)
    parts: list[str] = []
    count = 0
    for (topic, partition, attempt), offsets in sorted(by_file.items()):
        for start in range(0, len(offsets), DELETED):
            some = sorted(offsets)[start : start + DELETED]
            tried = "attempt = " + str(attempt) if attempt else "coalesce(attempt, 0) = 0"
            parts.append(
                f"(topic = {literal(topic)} AND partition = {partition} AND {tried} AND `offset` "
                f"IN ({', '.join(map(str, some))}))"
            )
            count += len(some)
            if count >= DELETED:
                yield " OR ".join(parts)
                parts, count = [], 0
    if parts:
        yield " OR ".join(parts)


def _asked_for(
    places: Collection[Place], topic: str | None, reason: str | None
) -> BooleanExpression:
    """What the rows are to fulfil."""
    from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, EqualTo, In, Or

    equal: Any = EqualTo  # its types tell of the fields of the JSON form, not of what it takes
    within: Any = In
    offsets: dict[tuple[str, int], list[int]] = {}
    for name, partition, offset in places:
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
