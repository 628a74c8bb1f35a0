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
    """What Java threw, as text: the JVM may be gone when it is read."""


class TableMissingError(TableError):
    """The catalog answers, and knows no such table."""


class TableNotCreatedError(TableError):
    """The catalog knows no such table, and the rows that are there cannot create it. Other rows
    may."""


class TableForbiddenError(TableError):
    """The catalog answers, and refuses us this table."""


class TableUnsuitableError(TableError):
    """The table exists but cannot take what is asked, and trying again will not help."""


class DuplicateKeyError(TableError):
    """Two staged rows of one cycle carry the same key, and nothing says which one is newer."""


class ExpectationFailedError(TableError):
    """Rows of a commit are not as `iceberg.ext.expect.<name>` with the action `fail` expects;
    nothing was committed."""

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
