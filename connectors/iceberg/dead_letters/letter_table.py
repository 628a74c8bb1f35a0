"""`LetterTable`: reads the dead letters of a connector from their table."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connect_py.api.command import command_services
from connect_py.api.errors import ConfigError, ConnectError
from connectors.iceberg.config import DEAD_LETTER_TABLE, IcebergSinkConfig
from connectors.iceberg.dead_letters.letter import Letter, Place
from connectors.iceberg.spark.errors import TableMissingError
from connectors.iceberg.spark.lake_client import LakeClient
from connectors.iceberg.spark.spark_config import worker_spark_config

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan

ROWS = 1000  # of a batch, that are Python objects at once
_REASON = "_dlq_reason"  # a table of one's own may lack it


@dataclass(frozen=True, slots=True)
class LetterTable:
    """Asks the catalog through a JVM where the table is now, and reads it in this process, deleted rows left out.

    Raises, from every method:
        ConfigError: The connector keeps no dead letters in a table.
        ConnectError: The catalog or the storage does not answer, or refuses.
    """

    config: IcebergSinkConfig

    def read(self, *columns: str) -> pa.Table:
        """These columns of all letters; no rows when the table does not exist yet."""
        scan = self._scan()
        if scan is None:
            return pa.table({})
        try:
            found: pa.Table = scan.select(*columns).to_arrow()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return found

    def letters(
        self, places: Collection[Place] = (), topic: str | None = None, reason: str | None = None
    ) -> Iterator[Letter]:
        """The letters of these records, if any are named, of this topic and this reason; none when there is no table.

        One data file at a time, and of each only the rows that are asked for; files without any are left alone.
        """
        scan = self._scan()
        if scan is None or (reason is not None and _REASON not in scan.projection().column_names):
            return
        from pyiceberg.io.pyarrow import ArrowScan

        rows = _asked_for(places, topic, reason)
        try:
            files = ArrowScan(scan.table_metadata, scan.io, scan.projection(), rows)
            for file in scan.filter(rows).plan_files():
                for batch in files.to_record_batches([file]):  # given all, it reads ahead as fast as it can
                    for start in range(0, batch.num_rows, ROWS):
                        yield from map(Letter.of, batch.slice(start, ROWS).to_pylist())
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _scan(self) -> DataScan | None:
        """Of the branch that letters are committed to; None: there is no table."""
        config, name = self.config, self.config.dead_letter_table
        if name is None:
            raise ConfigError(DEAD_LETTER_TABLE, "is not set: this connector keeps no dead letters in a table")
        services = command_services()
        try:
            with LakeClient(services, worker_spark_config(config, services.worker_settings)) as lake:
                location, io = lake.metadata(name)
        except TableMissingError:
            return None
        from pyiceberg.table import StaticTable

        try:
            scan = StaticTable.from_metadata(location, io).scan()
            branch = config.table(name).commit_branch
            return scan if branch is None else scan.use_ref(branch)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ConnectError:
        return ConnectError(f"table {self.config.dead_letter_table} cannot be read: {error}")


def _asked_for(places: Collection[Place], topic: str | None, reason: str | None) -> BooleanExpression:
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
