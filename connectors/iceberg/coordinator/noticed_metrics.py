"""`NoticedMetrics`: the sink's metrics, of which those that a person may want to know become
notices when they turn."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence

from connect_py.api.metrics import PluginMetrics
from connectors.iceberg.coordinator.notices import NoticeKind, Notices
from connectors.iceberg.protocol.commit_request import CommitOutcome
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics


class NoticedMetrics(IcebergMetrics):
    """Any thread."""

    def __init__(
        self, metrics: PluginMetrics, notices: Notices, stale_seconds: float | None
    ) -> None:
        """`stale_seconds`: the lag from which on a table is stale; None: never."""
        super().__init__(metrics)
        self._notices = notices
        self._stale_seconds = stale_seconds
        self._lock = threading.Lock()
        self._on: set[Hashable] = set()  # what is so now

    def _turned(self, what: Hashable, now: bool) -> bool:
        """Whether it was not so before. What is not so at first is no turn."""
        with self._lock:
            if (what in self._on) == now:
                return False
            (self._on.add if now else self._on.discard)(what)
            return True

    def committed(self, table: str, outcome: CommitOutcome) -> None:
        super().committed(table, outcome)
        if outcome.snapshot_id is not None and outcome.failed:
            text = f"rows are not as expected: {', '.join(outcome.failed)}"
            self._notices.tell(
                NoticeKind.NOT_AS_EXPECTED,
                table,
                text,
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
        if self._turned(("unpublished", table), commits):
            kind = NoticeKind.UNPUBLISHED if commits else NoticeKind.PUBLISHED
            text = "readers do not see the last commits" if commits else "readers see all commits"
            self._notices.tell(kind, table, text)

    def pending_change(self, table: str, change: str, *, pending: bool) -> None:
        super().pending_change(table, change, pending=pending)
        if self._turned(("pending", table, change), pending):
            kind = NoticeKind.SCHEMA_CHANGE_PENDING if pending else NoticeKind.SCHEMA_CHANGE_DONE
            text = f"rows wait for a user to {change}" if pending else f"no rows wait to {change}"
            self._notices.tell(kind, table, text, change=change)

    def waiting(self, reason: str, table: str, why: str | None) -> None:
        super().waiting(reason, table, why)
        if self._turned(("waiting", reason, table), why is not None):
            kind = NoticeKind.WORKING if why is None else NoticeKind.WAITING
            self._notices.tell(kind, table, why or "it works again", waits_for=reason)

    def remaining(self, offsets: int) -> None:
        super().remaining(offsets)
        if self._turned("remaining", offsets == 0):
            text = (
                "all rows before iceberg.ext.stop-at are committed"
                if not offsets
                else "rows are read again"
            )
            self._notices.tell(NoticeKind.STOPPING if not offsets else NoticeKind.WORKING, "", text)

    def age(self, table: str, through_seconds: float, lag_seconds: float) -> None:
        super().age(table, through_seconds, lag_seconds)
        if self._stale_seconds is None:
            return
        stale = lag_seconds > self._stale_seconds
        if self._turned(("stale", table), stale):
            kind = NoticeKind.STALE if stale else NoticeKind.FRESH
            text = f"{lag_seconds:.0f} s old" if stale else "as fresh as it may be"
            self._notices.tell(kind, table, text, lag_seconds=round(lag_seconds, 1))
