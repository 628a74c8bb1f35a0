"""`ChannelTurn`: handles coordinator messages and timers, and executes the resulting actions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.keys import MAX_STAGED_BYTES
from connectors.iceberg.coordinator.channel_topic import ChannelReader, ChannelWriter
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.retry_tracker import COORDINATOR, table_to_open
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.messages import CommitComplete, Need, OpenTable
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.table.table import TableRequest
from connectors.iceberg.task.features import TaskFeature
from connectors.iceberg.task.table_requests import RETRY_SECONDS
from connectors.iceberg.task.task_actions import TaskActions, now_ms

log = logging.getLogger(__name__)

_NO_ANSWER = "no response from the coordinator yet; the status of task 0 may show the reason"


class ChannelTurn:
    """Handles messages and timers after every poll. Used by the task thread only."""

    def __init__(
        self,
        context: SinkTaskContext,
        state: TaskState,
        staging: StagingArea,
        reader: ChannelReader,
        writer: ChannelWriter,
        actions: TaskActions,
        features: Sequence[TaskFeature],
        metrics: IcebergMetrics,
        coordinator: Coordinator | None,
        *,
        max_staged_bytes: int,
    ) -> None:
        self._context = context
        self._state = state
        self._staging = staging
        self._reader = reader
        self._writer = writer
        self._actions = actions
        self._features = features
        self._metrics = metrics
        self._coordinator = coordinator
        self._awaited_tables: frozenset[str] = frozenset()  # tables in the last report
        self._max_staged_bytes = max_staged_bytes
        self._renewed_at = 0  # time of the last credentials check

    def take(self) -> None:
        """Read the channel topic and execute all actions that are due.

        Raises:
            ConnectError: The task must fail.
        """
        self._actions.guard.check()
        if self._coordinator is not None:
            self._coordinator.check()
        self._writer.poll()
        now = now_ms()
        for message in self._reader.poll():
            self._actions.carry_out(self._state.on_message(message, now))
            for feature in self._features:
                feature.on_message(message)
            if isinstance(message, CommitComplete):
                # commit the group's offsets immediately instead of after the flush interval
                self._context.request_commit()
        self._actions.carry_out(self._state.on_tick(now))
        self._report_waiting()
        for feature in self._features:
            feature.check()
        self._renew_credentials(now)
        self._metrics.staged(self._state.staged_cycles)
        self._limit_staged_bytes()

    def _report_waiting(self) -> None:
        """Report the tables that this task is waiting for.

        Task 0 does not report them because its coordinator reports more details.
        """
        if self._coordinator is not None:
            return
        self._context.waits(COORDINATOR, None if self._state.is_attached() else _NO_ANSWER)
        awaited_tables = self._state.awaited_tables()
        for table in self._awaited_tables | awaited_tables:
            reason = _NO_ANSWER if table in awaited_tables else None
            self._context.waits(table_to_open(table), reason)
        self._awaited_tables = awaited_tables

    def _limit_staged_bytes(self) -> None:
        """Pause the partitions while the open cycle is at its maximum size.

        The cycle reaches this size if the previous commit is slow.
        """
        staged, limit = self._staging.staged_bytes, self._max_staged_bytes
        actions = self._state.fill(full=staged >= limit)
        if actions and staged >= limit:
            log.warning(
                "staged rows for the next cycle have reached %d bytes (%s=%d); pausing until the "
                "cycle closes",
                staged,
                MAX_STAGED_BYTES,
                limit,
                extra={"action": "staging_full"},
            )
        self._actions.carry_out(actions)

    def _renew_credentials(self, now: int) -> None:
        """Request new descriptions of tables whose vended credentials expire soon."""
        epoch = self._state.epoch
        if epoch is None or now < self._renewed_at + RETRY_SECONDS * 1000:
            return
        self._renewed_at = now
        # newer descriptions may have arrived since the last row was converted
        self._staging.renew(self._state.answer)
        request = TableRequest(None, "no rows").to_text()
        messages = [
            OpenTable(self._state.task, epoch, table, Need.EVOLVE, request)
            for table in self._staging.expiring()
        ]
        if messages:
            self._writer.send(messages)
