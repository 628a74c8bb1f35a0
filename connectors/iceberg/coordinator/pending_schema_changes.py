"""`PendingSchemaChanges`: reports schema changes that await approval, in logs and metrics."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.table.schema_change import SchemaChange

log = logging.getLogger(__name__)


class PendingSchemaChanges:
    """Reports the pending schema changes of tables. Calls for the same table must not overlap."""

    def __init__(self, metrics: IcebergMetrics) -> None:
        self._metrics = metrics
        self._pending: dict[str, frozenset[SchemaChange]] = {}

    def hold(self, table: str, changes: Sequence[SchemaChange]) -> None:
        """Record that rows wait for these changes, and log new changes."""
        # different tasks may request different changes
        pending = self._pending.get(table, frozenset()) | frozenset(changes)
        if pending != self._pending.get(table):
            self._pending[table] = pending
            log.warning(
                "table %s: rows wait until a user allows the sink to %s, or changes the table",
                table,
                ", or ".join(sorted(map(str, pending))),
                extra={"action": "schema_change_held", "table": table},
            )
        for change in pending:
            self._metrics.pending_change(table, str(change), pending=True)

    def release(self, table: str) -> None:
        """Remove the pending changes of a table that was changed.

        Tasks that still require a change request it again.
        """
        for change in self._pending.pop(table, frozenset()):
            self._metrics.pending_change(table, str(change), pending=False)
