"""`IcebergMetrics`: what the sink measures beyond what every sink does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from connect_py.api.metrics import PluginMetrics
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitStatus


class IcebergMetrics:
    """Metrics of one task. Any thread."""

    def __init__(
        self, metrics: PluginMetrics, now_seconds: Callable[[], float] = time.time
    ) -> None:
        self._metrics = metrics
        self._now_seconds = now_seconds
        doc = "Cycles that the task has reported and that are not committed yet."
        self._staged_cycles = metrics.gauge("iceberg_staged_cycles", doc)

    def _count(self, name: str, doc: str, labels: Mapping[str, str], by: float = 1) -> None:
        self._metrics.counter(name, doc, labels).increment(by)

    def _set(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        self._metrics.gauge(name, doc, labels).set(value)

    def staged(self, cycles: int) -> None:
        """So many cycles wait for their commit."""
        self._staged_cycles.set(cycles)

    def committed(self, table: str, outcome: CommitOutcome) -> None:
        """Record an attempt to commit that has just ended."""
        of_table, counts = {"table": table}, outcome.counts
        engine = {**of_table, "engine": outcome.engine.value}
        seconds = counts.milliseconds / 1000
        self._ended(engine, outcome.status)
        self._count(
            "iceberg_commit_seconds_total", "Seconds that commits to tables took.", engine, seconds
        )
        if outcome.because:
            chosen = {**engine, "reason": outcome.because}
            self._count(
                "iceberg_engine_choices_total", "Commits by engine, and why it was taken.", chosen
            )
        if outcome.snapshot_id is None:
            return
        latest = "When the last commit to the table ended: seconds since 1970."
        self._set("iceberg_last_commit_seconds", latest, of_table, self._now_seconds())
        for expectation, rows in outcome.failed.items():
            failed = {**of_table, "expectation": expectation}
            self._count(
                "iceberg_expectations_failed_total", "Commits that were not as expected.", failed
            )
            self._count(
                "iceberg_unexpected_rows_total", "Rows that were not as expected.", failed, rows
            )
        if outcome.failed or outcome.unpublished:
            self.unpublished(table, commits=outcome.unpublished)
        unknown = "Rows with a value that the source did not send and no table had: it is null."
        for name, doc, count in (
            (
                "iceberg_added_rows_total",
                "Rows in data files that commits added.",
                counts.added_rows,
            ),
            (
                "iceberg_replaced_rows_total",
                "Rows that commits replaced or removed.",
                counts.replaced_rows,
            ),
            ("iceberg_added_files_total", "Data files that commits added.", counts.added_files),
            ("iceberg_unknown_values_total", unknown, counts.unmatched_patches),
            (
                "iceberg_older_changes_total",
                "Changes that came after a later one, and were left out.",
                counts.older_changes,
            ),
        ):
            self._count(name, doc, of_table, count)

    def not_committed(self, table: str, status: CommitStatus) -> None:
        """Record a failed attempt to commit, possibly one without an engine."""
        self._ended({"table": table, "engine": ""}, status)

    def _ended(self, engine: Mapping[str, str], status: CommitStatus) -> None:
        ended = {**engine, "outcome": status.value}
        self._count(
            "iceberg_commits_total", "Attempts to commit to tables, by how they ended.", ended
        )

    def table_state(self, table: str, data_files: int, delete_files: int, snapshots: int) -> None:
        """Maintenance looked at a table."""
        for name, doc, value in (
            ("iceberg_table_data_files", "Data files of the table's head.", data_files),
            (
                "iceberg_table_delete_files",
                "Delete files of the table's head; vectors count each.",
                delete_files,
            ),
            ("iceberg_table_snapshots", "Snapshots that the table's metadata holds.", snapshots),
        ):
            self._set(name, doc, {"table": table}, value)

    def small_files(self, table: str, files: int) -> None:
        """Set the number of small data files of a table."""
        self._set(
            "iceberg_table_small_files",
            "Data files below 75 % of the target size.",
            {"table": table},
            files,
        )

    def excessive(self, table: str, objects: str, *, is_excessive: bool) -> None:
        """Set whether a table has too many objects of a kind: snapshots or small files."""
        doc = (
            "A table has more than 5,000 snapshots or 500 small files: 1, or 0 if it no longer has."
        )
        self._set(
            "iceberg_table_excessive", doc, {"table": table, "objects": objects}, int(is_excessive)
        )

    def unpublished(self, table: str, *, commits: bool) -> None:
        """Readers of a table do not see its last commits, or do."""
        doc = "Commits that readers do not see until a user decides: 1, or 0 if there are none."
        self._set("iceberg_unpublished", doc, {"table": table}, int(commits))

    def maintained(self, table: str, action: str, outcome: str, seconds: float) -> None:
        """Record a maintenance action that has ended."""
        of_action = {"table": table, "action": action}
        doc = "Maintenance actions, by how they ended."
        self._count("iceberg_maintenance_total", doc, {**of_action, "outcome": outcome})
        self._count(
            "iceberg_maintenance_seconds_total",
            "Seconds that maintenance actions took.",
            of_action,
            seconds,
        )

    def age(self, table: str, through_seconds: float, lag_seconds: float) -> None:
        """How old a table is."""
        through = "Every change until then is in the table: seconds since 1970."
        self._set("iceberg_valid_through_seconds", through, {"table": table}, through_seconds)
        lag = "How old the table is: 0 while it holds all that its topics have."
        self._set("iceberg_lag_seconds", lag, {"table": table}, lag_seconds)

    def unrouted(self, topic: str, rows: int) -> None:
        """Rows of a topic went to no table."""
        doc = "Rows that no table takes, or only one that does not exist."
        self._count("iceberg_unrouted_rows_total", doc, {"topic": topic}, rows)

    def pending_change(self, table: str, change: str, *, pending: bool) -> None:
        """Rows of a table wait for a change of its schema, or no longer do."""
        doc = "Changes of tables that rows wait for: 1, or 0 once they no longer do."
        self._set("iceberg_held_changes", doc, {"table": table, "change": change}, int(pending))

    def coordinator_begins(self) -> None:
        """Count the start of a coordinator, whether or not it succeeds."""
        self._count(
            "iceberg_coordinator_beginnings_total",
            "Times that a coordinator began, or tried to.",
            {},
        )

    def evolved(self, table: str, changes: Sequence[str]) -> None:
        """Count changes of a table's schema by the sink."""
        doc = "Changes of tables' schemas that the sink made."
        self._count("iceberg_schema_changes_total", doc, {"table": table}, len(changes))

    def message_ended(self, what: str, outcome: str) -> None:
        """Count a notice or lineage event by its outcome."""
        doc = "Notices and lineage events: sent, failed, or dropped because too many wait."
        self._count("iceberg_messages_total", doc, {"kind": what, "outcome": outcome})

    def waiting(self, reason: str, table: str, why: str | None) -> None:
        """Set whether rows of a table wait.

        Args:
            reason: The blocked step: `begin`, `open`, or `commit`.
            table: The table; empty: all tables.
            why: The current error; None: rows do not wait.
        """
        doc = "Rows wait because something does not work: 1, or 0 once it does again."
        self._set("iceberg_waiting", doc, {"reason": reason, "table": table}, int(why is not None))

    def remaining(self, offsets: int) -> None:
        """Set the number of offsets until a bounded connector stops."""
        doc = "Offsets between the tables and the bounds of iceberg.ext.stop-at."
        self._set("iceberg_stop_at_remaining_offsets", doc, {}, offsets)

    def driver_replaced(self) -> None:
        """Spark's driver died, and another one takes its place."""
        self._count(
            "iceberg_driver_replacements_total", "Spark drivers that died and were replaced.", {}
        )
