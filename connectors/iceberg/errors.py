"""What may go wrong between the coordinator and a table, one class per thing to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from connect_py.api.errors import ConnectError, RetriableError
from connectors.iceberg.table.schema_change import SchemaChange


class TableError(ConnectError):
    """Something about one table; `table` names it."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(f"table {table}: {why}")
        self.table = table
        self.why = why

    def __reduce__(self) -> tuple[type[TableError], tuple[str, str]]:
        """Errors travel between processes."""
        return type(self), (self.table, self.why)


class JavaError(Exception):
    """The message of a Java exception, as text: the JVM may have ended when it is read."""


class TableMissingError(TableError):
    """The catalog reports that the table does not exist."""


class TableNotCreatedError(TableError):
    """The table does not exist, and the rows so far cannot create it.

    Later rows may be able to.
    """


class TableForbiddenError(TableError):
    """The catalog denies access to the table."""


class TableUnsuitableError(TableError):
    """The table exists but does not support the request, which fails whenever it is repeated."""


class DuplicateKeyError(TableError):
    """Two staged rows of one cycle have the same key, and nothing defines their order."""


class ExpectationFailedError(TableError):
    """Rows of a commit violate an `iceberg.ext.expect.<name>` with the action `fail`.

    Nothing was committed.
    """

    def __init__(self, table: str, failed: str) -> None:
        super().__init__(table, f"rows are not as expected: {failed}; nothing was committed")
        self.failed = failed

    def __reduce__(self) -> tuple[type[TableError], tuple[str, str]]:
        return type(self), (self.table, self.failed)


class SchemaChangesPendingError(TableError):
    """Rows wait for changes of their table that the configuration does not allow without a
    user."""

    def __init__(self, table: str, changes: Sequence[SchemaChange]) -> None:
        super().__init__(table, "rows wait for it to " + ", ".join(map(str, changes)))
        self.changes = tuple(changes)

    def __reduce__(  # type: ignore[override]  # the superclass returns strings
        self,
    ) -> tuple[type[SchemaChangesPendingError], tuple[str, Sequence[SchemaChange]]]:
        return type(self), (self.table, self.changes)


class CatalogUnavailableError(RetriableError):
    """The catalog, the storage or Spark does not answer now."""


class SparkDiedError(CatalogUnavailableError):
    """The JVM of the driver is gone. `LakeClient.start` makes a session in the next one."""


class SparkLostError(ConnectError):
    """There is no driver, and trying again will not make one: Java is missing, or drivers died one
    after the other."""


class PairUnreadError(ConnectError):
    """Half of a change of a key is staged without the other: who had read the other gave its
    partition up meanwhile."""

    def __init__(self, table: str, rows: int) -> None:
        super().__init__(
            f"table {table}: {rows} rows wait for the delete of their old key, which is to be read "
            f"again"
        )
        self.args = (table, rows)
