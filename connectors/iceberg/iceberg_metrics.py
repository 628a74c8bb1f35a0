"""`IcebergMetrics`: what the sink measures beyond what every sink does."""

from __future__ import annotations

from connect_py.api.metrics import PluginMetrics
from connectors.iceberg.commit_request import CommitOutcome

_COMMITS = "Commits to tables, by how they ended."
_SECONDS = "Seconds that commits to tables took."


class IcebergMetrics:
    """Of one task; the coordinator's are updated on its table thread."""

    def __init__(self, metrics: PluginMetrics) -> None:
        self._metrics = metrics
        self._staged_cycles = metrics.gauge(
            "iceberg_staged_cycles", "Cycles that the task has reported and that are not committed yet."
        )

    def staged(self, cycles: int) -> None:
        """So many cycles wait for their commit."""
        self._staged_cycles.set(cycles)

    def committed(self, table: str, outcome: CommitOutcome) -> None:
        """An attempt to commit ended."""
        engine = {"table": table, "engine": outcome.engine.value}
        counts = outcome.counts
        ended = {**engine, "outcome": outcome.status.value}
        self._metrics.counter("iceberg_commits_total", _COMMITS, ended).increment()
        self._metrics.counter("iceberg_commit_seconds_total", _SECONDS, engine).increment(counts.milliseconds / 1000)
        if outcome.because:
            chosen = {**engine, "reason": outcome.because}
            self._metrics.counter(
                "iceberg_engine_choices_total", "Commits by engine, and why it was taken.", chosen
            ).increment()
        if outcome.snapshot_id is None:
            return
        for name, doc, value in (
            ("iceberg_added_rows_total", "Rows in data files that commits added.", counts.added_rows),
            ("iceberg_replaced_rows_total", "Rows that commits replaced or removed.", counts.replaced_rows),
            ("iceberg_added_files_total", "Data files that commits added.", counts.added_files),
            (
                "iceberg_unknown_values_total",
                "Rows with a value that the source did not send and no table had: it is null.",
                counts.unmatched_patches,
            ),
            (
                "iceberg_older_changes_total",
                "Changes that came after a later one, and were left out.",
                counts.older_changes,
            ),
        ):
            self._metrics.counter(name, doc, {"table": table}).increment(value)

    def age(self, table: str, through_seconds: float, lag_seconds: float) -> None:
        """How old a table is."""
        through = self._metrics.gauge(
            "iceberg_valid_through_seconds", "Every change until then is in the table: seconds since 1970.",
            {"table": table},
        )  # fmt: skip
        through.set(through_seconds)
        lag = self._metrics.gauge(
            "iceberg_lag_seconds", "How old the table is: 0 while it holds all that its topics have.", {"table": table}
        )
        lag.set(lag_seconds)

    def unrouted(self, topic: str, rows: int) -> None:
        """Rows of a topic went to no table."""
        self._metrics.counter(
            "iceberg_unrouted_rows_total", "Rows that no table takes, or only one that does not exist.",
            {"topic": topic},
        ).increment(rows)  # fmt: skip

    def held_change(self, table: str, change: str, *, held: bool) -> None:
        """Rows of a table wait for a change of its schema, or no longer do."""
        self._metrics.gauge(
            "iceberg_held_changes", "Changes of tables that rows wait for: 1, or 0 once they no longer do.",
            {"table": table, "change": change},
        ).set(int(held))  # fmt: skip

    def coordinator_begins(self) -> None:
        """A coordinator begins, or tries to."""
        self._metrics.counter(
            "iceberg_coordinator_beginnings_total", "Times that a coordinator began, or tried to."
        ).increment()

    def waiting(self, reason: str, table: str, *, waits: bool) -> None:
        """Rows wait because something does not work now, or do no longer. No table: those of all."""
        self._metrics.gauge(
            "iceberg_waiting", "Rows wait because something does not work: 1, or 0 once it does again.",
            {"reason": reason, "table": table},
        ).set(int(waits))  # fmt: skip

    def driver_replaced(self) -> None:
        """Spark's driver died, and another one takes its place."""
        self._metrics.counter(
            "iceberg_driver_replacements_total", "Spark drivers that died and were replaced."
        ).increment()
