"""`PendingSchemaChanges`: changes of tables that wait for a user, listed in the log and among the
metrics."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from connectors.iceberg.errors import TableError
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.table.schema_change import SchemaChange

log = logging.getLogger(__name__)


class SchemaChangesPendingError(TableError):
    """Rows of a table wait because the configuration lets only a person change it as they need."""

    def __init__(self, table: str, changes: Sequence[SchemaChange]) -> None:
        super().__init__(table, "rows wait for it to " + ", ".join(map(str, changes)))
        self.changes = tuple(changes)

    def __reduce__(  # type: ignore[override]  # the superclass returns strings
        self,
    ) -> tuple[type[SchemaChangesPendingError], tuple[str, Sequence[SchemaChange]]]:
        return type(self), (self.table, self.changes)


class PendingSchemaChanges:
    """Pending changes of one coordinator's tables. Calls for one table never overlap."""

    def __init__(self, metrics: IcebergMetrics) -> None:
        self._metrics = metrics
        self._pending: dict[str, frozenset[SchemaChange]] = {}

    def hold(self, table: str, changes: Sequence[SchemaChange]) -> None:
        """Rows wait for these changes; logged when they were not known yet."""
        # tasks ask for different ones
        now = self._pending.get(table, frozenset()) | frozenset(changes)
        if now != self._pending.get(table):
            self._pending[table] = now
            log.warning(
                "table %s: rows wait until a user lets it %s (change the table, or the "
                "configuration)",
                table,
                ", or ".join(sorted(map(str, now))),
                extra={"action": "schema_change_held", "table": table},
            )
        for change in now:
            self._metrics.pending_change(table, str(change), pending=True)

    def release(self, table: str) -> None:
        """The table has changed: a task that still lacks something asks again."""
        for change in self._pending.pop(table, frozenset()):
            self._metrics.pending_change(table, str(change), pending=False)
