"""`NoticeOutlet`: sends notices to operators when sink metrics change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from connect_py.api.metrics import PluginMetrics
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.coordinator.control_events import EventWriter
from connectors.iceberg.coordinator.outlet import Outlet
from connectors.iceberg.protocol.commit_request import CommitOutcome
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg_tools.outlets.notices import NoticeKind, Notices, to_webhook


class NoticedMetrics(IcebergMetrics):
    """Records the metrics of one task and sends notices when they change. Thread-safe."""

    def __init__(
        self, metrics: PluginMetrics, notices: Notices, stale_seconds: float | None
    ) -> None:
        """Create the metrics of a task.

        Args:
            stale_seconds: A table is stale if its lag exceeds this value. If None, tables are never
                considered stale.
        """
        super().__init__(metrics)
        self._notices = notices
        self._stale_seconds = stale_seconds
        self._lock = threading.Lock()
        self._conditions: set[Hashable] = set()  # conditions that are currently true

    def committed(self, table: str, outcome: CommitOutcome) -> None:
        super().committed(table, outcome)
        if outcome.snapshot_id is not None and outcome.failed:
            self._notices.tell(
                NoticeKind.NOT_AS_EXPECTED,
                table,
                f"rows violate expectations: {', '.join(outcome.failed)}",
                expectations=dict(outcome.failed),
                snapshot=outcome.snapshot_id,
            )

    def evolved(self, table: str, changes: Sequence[str]) -> None:
        super().evolved(table, changes)
        self._notices.tell(
            NoticeKind.SCHEMA_CHANGED, table, ", ".join(changes), changes=list(changes)
        )

    def unpublished(self, table: str, *, commits: bool) -> None:
        super().unpublished(table, commits=commits)
        self._notice_change(
            ("unpublished", table),
            commits,
            table,
            (NoticeKind.UNPUBLISHED, "readers do not see the latest commits"),
            (NoticeKind.PUBLISHED, "readers see all commits"),
        )

    def pending_change(self, table: str, change: str, *, pending: bool) -> None:
        super().pending_change(table, change, pending=pending)
        self._notice_change(
            ("pending", table, change),
            pending,
            table,
            (NoticeKind.SCHEMA_CHANGE_PENDING, f"rows are waiting for a user to {change}"),
            (NoticeKind.SCHEMA_CHANGE_DONE, f"rows are no longer waiting for a user to {change}"),
            change=change,
        )

    def waiting(self, reason: str, table: str, why: str | None) -> None:
        super().waiting(reason, table, why)
        self._notice_change(
            ("waiting", reason, table),
            why is not None,
            table,
            (NoticeKind.WAITING, why or ""),
            (NoticeKind.WORKING, "rows are no longer waiting"),
            waits_for=reason,
        )

    def remaining(self, offsets: int) -> None:
        super().remaining(offsets)
        self._notice_change(
            "remaining",
            offsets == 0,
            "",
            (NoticeKind.STOPPING, "all rows before iceberg.ext.stop-at are committed"),
            (NoticeKind.WORKING, "some rows before iceberg.ext.stop-at are not committed"),
        )

    def age(self, table: str, through_seconds: float, lag_seconds: float) -> None:
        super().age(table, through_seconds, lag_seconds)
        if self._stale_seconds is not None:
            self._notice_change(
                ("stale", table),
                lag_seconds > self._stale_seconds,
                table,
                (NoticeKind.STALE, f"the table lags by {lag_seconds:.0f} s"),
                (NoticeKind.FRESH, "the lag is within the limit again"),
                lag_seconds=round(lag_seconds, 1),
            )

    def _notice_change(
        self,
        condition: Hashable,
        is_true: bool,
        table: str,
        started: tuple[NoticeKind, str],
        ended: tuple[NoticeKind, str],
        **details: Any,
    ) -> None:
        """Send a notice if a condition has changed. Conditions are initially false."""
        with self._lock:
            if (condition in self._conditions) == is_true:
                return
            (self._conditions.add if is_true else self._conditions.discard)(condition)
        kind, text = started if is_true else ended
        self._notices.tell(kind, table, text, **details)


class NoticeOutlet(Outlet):
    """Sends the notices that `NoticedMetrics` creates."""

    def __init__(
        self, metrics: PluginMetrics, notices: Notices, stale_seconds: float | None
    ) -> None:
        """Create an outlet with the arguments of `NoticedMetrics`."""
        self._notices = notices
        self._metrics = NoticedMetrics(metrics, notices, stale_seconds)

    def observe(self, metrics: IcebergMetrics) -> IcebergMetrics:
        return self._metrics

    def close(self, seconds: float) -> None:
        self._notices.close(seconds)


def open_notices(
    config: IcebergSinkConfig, context: SinkTaskContext, metrics: IcebergMetrics
) -> NoticeOutlet:
    """Open an outlet that sends notices to the configured webhook and topic."""
    senders: list[Callable[[bytes], None]] = []
    if config.notices_topic is not None:
        writer = EventWriter(context.client_config, config.notices_topic, config.kafka)
        senders.append(lambda notice: writer.write(config.connector.encode(), notice))
    if config.notices_webhook is not None:
        senders.append(to_webhook(config.notices_webhook))
    notices = Notices(
        config.connector, senders, lambda outcome: metrics.message_ended("notices", outcome)
    )
    stale_seconds = None if config.stale_after_ms is None else config.stale_after_ms / 1000
    return NoticeOutlet(context.metrics, notices, stale_seconds)
