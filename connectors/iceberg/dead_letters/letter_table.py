"""`LetterTable`: reads the dead letters of a connector from their table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from connect_py.api.errors import ConfigError, ConnectError
from connectors.iceberg.config import DEAD_LETTER_TABLE, IcebergSinkConfig
from connectors.iceberg.dead_letters.letter import Letter
from connectors.iceberg.spark.catalog import TableCatalog
from connectors.iceberg.spark.errors import TableMissingError
from connectors.iceberg.spark.session import SparkConfig, SparkDriver


@dataclass(frozen=True, slots=True)
class LetterTable:
    """Asks the catalog through a JVM where the table is now, and reads it in this process, deleted rows left out."""

    config: IcebergSinkConfig

    def read(self, *, only: tuple[str, ...] | None = None) -> pa.Table:
        """All letters, or these columns of theirs; no rows when the table does not exist yet.

        Raises:
            ConfigError: The connector keeps no dead letters in a table.
            ConnectError: The catalog or the storage does not answer, or refuses.
        """
        config, name = self.config, self.config.dead_letter_table
        if name is None:
            raise ConfigError(DEAD_LETTER_TABLE, "is not set: this connector keeps no dead letters in a table")
        spark = SparkConfig(config.catalog_name, config.catalog, config.hadoop_settings(), config.spark, quick_jvm=True)
        try:
            with SparkDriver(spark) as driver:
                location, io = TableCatalog(driver).metadata(name)
        except TableMissingError:
            return pa.table({})
        from pyiceberg.table import StaticTable

        try:
            scan = StaticTable.from_metadata(location, io).scan(selected_fields=only or ("*",))
            branch = config.table(name).commit_branch
            found: pa.Table = (scan if branch is None else scan.use_ref(branch)).to_arrow()
        except (OSError, ValueError) as error:
            raise ConnectError(f"table {name} cannot be read: {error}") from error
        return found

    def letters(self) -> list[Letter]:
        """All of them. Errors as for `read`."""
        return [Letter.of(row) for row in self.read().to_pylist()]
