"""Errors from table operations. Each class requires a different reaction."""

from __future__ import annotations

from collections.abc import Sequence

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.plurals import pluralize
from connectors.iceberg.table.schema_change import SchemaChange


class TableError(ConnectError):
    """An error that concerns one table. `table` is its name."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(f"table {table}: {why}")
        self.table = table
        self.why = why

    def __reduce__(self) -> tuple[type[TableError], tuple[str, str]]:
        """Support pickling, because errors are sent between processes."""
        return type(self), (self.table, self.why)


class JavaError(Exception):
    """The message of a Java exception, copied in case the JVM exits before it is read."""


class TableMissingError(TableError):
    """The catalog reports that the table does not exist."""


class TableNotCreatedError(TableError):
    """The table does not exist, and cannot be created from the rows that have been read so far.

    Later rows may contain the missing information.
    """


class TableForbiddenError(TableError):
    """The catalog denies access to the table."""


class TableUnsuitableError(TableError):
    """The table exists but does not support the request. A retry cannot succeed."""


class DuplicateKeyError(TableError):
    """Two staged rows in one cycle have the same key, and nothing defines their order."""


class ExpectationFailedError(TableError):
    """Rows in a commit violate an expectation with the action `fail`.

    Nothing was committed.
    """

    def __init__(self, table: str, failed: str) -> None:
        super().__init__(table, f"rows violate expectations: {failed}; nothing was committed")
        self.failed = failed

    def __reduce__(self) -> tuple[type[TableError], tuple[str, str]]:
        return type(self), (self.table, self.failed)


class SchemaChangesPendingError(TableError):
    """Rows wait for schema changes that require approval by a user."""

    def __init__(self, table: str, changes: Sequence[SchemaChange]) -> None:
        super().__init__(table, f"rows wait for approval to {', '.join(map(str, changes))}")
        self.changes = tuple(changes)

    def __reduce__(  # type: ignore[override]  # the superclass returns strings
        self,
    ) -> tuple[type[SchemaChangesPendingError], tuple[str, Sequence[SchemaChange]]]:
        return type(self), (self.table, self.changes)


class CatalogUnavailableError(RetriableError):
    """The catalog, the storage, or Spark does not respond at the moment."""


class SparkDiedError(CatalogUnavailableError):
    """The JVM of the driver has exited. `LakeClient.start` opens a session in the next JVM."""


class SparkLostError(ConnectError):
    """The driver is not running, and a retry cannot start it.

    For example, Java is missing, or several drivers exited in succession.
    """


class PairUnreadError(ConnectError):
    """The insert of a key change is staged, but the matching delete can no longer be read.

    If a primary key changes, Debezium emits the delete of the old key and the insert of the new
    key. The partition with the delete was revoked before the task read the delete.
    """

    def __init__(self, table: str, rows: int) -> None:
        super().__init__(
            f"table {table}: {pluralize(rows, 'row waits', 'rows wait')} for the delete of the old "
            "key, which must be read again"
        )
        self.args = (table, rows)
