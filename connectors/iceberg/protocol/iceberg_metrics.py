"""`IcebergMetrics`: metrics of the Iceberg sink, in addition to the metrics that all sinks have."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from connect_py.api.metrics import PluginMetrics
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitStatus

DESCRIPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "iceberg_added_files_total": "Data files that commits added.",
        "iceberg_added_rows_total": "Rows in data files that commits added.",
        "iceberg_commit_seconds_total": "Duration of commits in seconds.",
        "iceberg_commits_total": "Commit attempts, by outcome.",
        "iceberg_coordinator_beginnings_total": "Attempts to start a coordinator.",
        "iceberg_driver_replacements_total": "Spark drivers that replaced a terminated driver.",
        "iceberg_engine_choices_total": "Commits by engine and the reason for its choice.",
        "iceberg_expectations_failed_total": "Commits that violated an expectation.",
        "iceberg_held_changes": "1 if rows wait for a schema change, otherwise 0.",
        "iceberg_lag_seconds": "Lag of a table behind its topics. 0 if it has all records.",
        "iceberg_last_commit_seconds": "Unix time of the last commit to a table.",
        "iceberg_maintenance_seconds_total": "Duration of maintenance actions in seconds.",
        "iceberg_maintenance_total": "Maintenance actions, by outcome.",
        "iceberg_messages_total": "Notices and lineage events that were sent, failed, or dropped.",
        "iceberg_older_changes_total": "Changes dropped because the table had a newer change.",
        "iceberg_replaced_rows_total": "Rows that commits replaced or deleted.",
        "iceberg_schema_changes_total": "Schema changes by the sink.",
        "iceberg_staged_cycles": "Cycles reported by the task that are not committed yet.",
        "iceberg_stop_at_remaining_offsets": "Remaining offsets before iceberg.ext.stop-at.",
        "iceberg_table_data_files": "Data files in the current snapshot.",
        "iceberg_table_delete_files": "Delete files and deletion vectors in the current snapshot.",
        "iceberg_table_excessive": "1 if a table has more than 5,000 snapshots or 500 small files.",
        "iceberg_table_small_files": "Data files smaller than 75% of the target size.",
        "iceberg_table_snapshots": "Snapshots in the metadata of a table.",
        "iceberg_unexpected_rows_total": "Rows that violated an expectation.",
        "iceberg_unknown_values_total": "Rows with nulls for values that were not available.",
        "iceberg_unpublished": "1 if commits await approval, otherwise 0.",
        "iceberg_unrouted_rows_total": "Rows routed to no table or to a table that does not exist.",
        "iceberg_valid_through_seconds": "Unix time through which a table has all changes.",
        "iceberg_waiting": "1 if rows wait because of a failure, otherwise 0.",
    }
)


class IcebergMetrics:
    """Metrics of one task. Thread-safe."""

    def __init__(
        self, metrics: PluginMetrics, now_seconds: Callable[[], float] = time.time
    ) -> None:
        self._metrics = metrics
        self._now_seconds = now_seconds
        self._staged_cycles = metrics.gauge(
            "iceberg_staged_cycles", DESCRIPTIONS["iceberg_staged_cycles"]
        )

    def _add(self, name: str, increment: float = 1, **labels: str) -> None:
        self._metrics.counter(name, DESCRIPTIONS[name], labels).increment(increment)

    def _set(self, name: str, value: float, **labels: str) -> None:
        self._metrics.gauge(name, DESCRIPTIONS[name], labels).set(value)

    # Tasks

    def staged(self, cycles: int) -> None:
        """Set the number of reported cycles that are not committed yet."""
        self._staged_cycles.set(cycles)

    def unrouted(self, topic: str, rows: int) -> None:
        """Count rows from a topic that have no table."""
        self._add("iceberg_unrouted_rows_total", rows, topic=topic)

    # Commits

    def committed(self, table: str, outcome: CommitOutcome) -> None:
        """Record a completed commit attempt."""
        counts, engine = outcome.counts, outcome.engine.value
        self._add("iceberg_commits_total", table=table, engine=engine, outcome=outcome.status.value)
        seconds = counts.milliseconds / 1000
        self._add("iceberg_commit_seconds_total", seconds, table=table, engine=engine)
        if outcome.because:
            self._add(
                "iceberg_engine_choices_total", table=table, engine=engine, reason=outcome.because
            )
        if outcome.snapshot_id is None:
            return
        self._set("iceberg_last_commit_seconds", self._now_seconds(), table=table)
        for expectation, rows in outcome.failed.items():
            self._add("iceberg_expectations_failed_total", table=table, expectation=expectation)
            self._add("iceberg_unexpected_rows_total", rows, table=table, expectation=expectation)
        if outcome.failed or outcome.unpublished:
            self.unpublished(table, commits=outcome.unpublished)
        self._add("iceberg_added_rows_total", counts.added_rows, table=table)
        self._add("iceberg_replaced_rows_total", counts.replaced_rows, table=table)
        self._add("iceberg_added_files_total", counts.added_files, table=table)
        self._add("iceberg_unknown_values_total", counts.unmatched_patches, table=table)
        self._add("iceberg_older_changes_total", counts.older_changes, table=table)

    def not_committed(self, table: str, status: CommitStatus) -> None:
        """Record a failed commit attempt whose engine may be unknown."""
        self._add("iceberg_commits_total", table=table, engine="", outcome=status.value)

    def unpublished(self, table: str, *, commits: bool) -> None:
        """Set whether commits to a table await approval."""
        self._set("iceberg_unpublished", int(commits), table=table)

    def evolved(self, table: str, changes: Sequence[str]) -> None:
        """Count schema changes that the sink made to a table."""
        self._add("iceberg_schema_changes_total", len(changes), table=table)

    def pending_change(self, table: str, change: str, *, pending: bool) -> None:
        """Set whether rows for a table wait for a schema change."""
        self._set("iceberg_held_changes", int(pending), table=table, change=change)

    # Maintenance

    def table_state(self, table: str, data_files: int, delete_files: int, snapshots: int) -> None:
        """Set a table's file and snapshot counts."""
        self._set("iceberg_table_data_files", data_files, table=table)
        self._set("iceberg_table_delete_files", delete_files, table=table)
        self._set("iceberg_table_snapshots", snapshots, table=table)

    def small_files(self, table: str, files: int) -> None:
        """Set the number of small data files in a table."""
        self._set("iceberg_table_small_files", files, table=table)

    def excessive(self, table: str, objects: str, *, is_excessive: bool) -> None:
        """Set whether a table has too many snapshots or small files."""
        self._set("iceberg_table_excessive", int(is_excessive), table=table, objects=objects)

    def maintained(self, table: str, action: str, outcome: str, seconds: float) -> None:
        """Record a completed maintenance action."""
        self._add("iceberg_maintenance_total", table=table, action=action, outcome=outcome)
        self._add("iceberg_maintenance_seconds_total", seconds, table=table, action=action)

    # Coordinator

    def coordinator_begins(self) -> None:
        """Count the start of a coordinator, whether or not it succeeds."""
        self._add("iceberg_coordinator_beginnings_total")

    def driver_replaced(self) -> None:
        """Count a Spark driver that replaces a terminated one."""
        self._add("iceberg_driver_replacements_total")

    def age(self, table: str, through_seconds: float, lag_seconds: float) -> None:
        """Set the freshness of a table."""
        self._set("iceberg_valid_through_seconds", through_seconds, table=table)
        self._set("iceberg_lag_seconds", lag_seconds, table=table)

    def waiting(self, reason: str, table: str, why: str | None) -> None:
        """Set whether rows for a table are waiting.

        Args:
            reason: The blocked step: `begin`, `open`, or `commit`.
            table: The table, or empty for all tables.
            why: The current error, or None if no rows are waiting.
        """
        self._set("iceberg_waiting", int(why is not None), reason=reason, table=table)

    def remaining(self, offsets: int) -> None:
        """Set the number of remaining offsets before a bounded connector stops."""
        self._set("iceberg_stop_at_remaining_offsets", offsets)

    def message_ended(self, kind: str, outcome: str) -> None:
        """Count a notice or lineage event by its outcome."""
        self._add("iceberg_messages_total", kind=kind, outcome=outcome)
