"""`ChannelTurn`: reads the channel, keeps time, and carries out what follows."""

from __future__ import annotations

import logging

from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.keys import MAX_STAGED_BYTES
from connectors.iceberg.coordinator.channel_topic import ChannelReader, ChannelWriter
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.retry_tracker import COORDINATOR, table_to_open
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.messages import CommitComplete, Need, OpenTable, TableOpened
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.table.table import TableRequest
from connectors.iceberg.task.key_change_stops import KeyChangeStops
from connectors.iceberg.task.table_needs import ASK_SECONDS
from connectors.iceberg.task.task_actions import TaskActions, now_ms

log = logging.getLogger(__name__)

_NO_ANSWER = "no answer yet; the status of task 0 may tell why"


class ChannelTurn:
    """Used by the task thread only: after every poll, and when a poll brings nothing."""

    def __init__(
        self,
        context: SinkTaskContext,
        state: TaskState,
        stage: Stage,
        reader: ChannelReader,
        writer: ChannelWriter,
        actions: TaskActions,
        stops: KeyChangeStops,
        metrics: IcebergMetrics,
        coordinator: Coordinator | None,
        *,
        max_staged_bytes: int,
    ) -> None:
        self._context = context
        self._state = state
        self._stage = stage
        self._reader = reader
        self._writer = writer
        self._actions = actions
        self._stops = stops
        self._metrics = metrics
        self._coordinator = coordinator
        self._awaited: frozenset[str] = frozenset()  # tables, as last reported
        self._max_staged_bytes = max_staged_bytes
        self._renewed_at = 0  # when credentials to the storage were last looked at

    def take(self) -> None:
        """Take one turn.

        Raises:
            ConnectError: The task must not go on.
        """
        self._actions.guard.check()
        if self._coordinator is not None:
            self._coordinator.check()
        self._writer.poll()
        now = now_ms()
        for message in self._reader.poll():
            self._actions.carry_out(self._state.on_message(message, now))
            if isinstance(message, TableOpened):
                self._stops.waits.answered(message.table)
            if isinstance(message, CommitComplete):
                # the group follows the tables at once, not a flush interval later
                self._context.request_commit()
        self._actions.carry_out(self._state.on_tick(now))
        self._tell_waiting()
        self._stops.check()
        self._renew_credentials(now)
        self._metrics.staged(self._state.staged_cycles)
        self._bound_staged_bytes()

    def _tell_waiting(self) -> None:
        """Say what keeps partitions of this task waiting; of task 0 the coordinator says more."""
        if self._coordinator is not None:
            return
        self._context.waits(COORDINATOR, None if self._state.is_attached() else _NO_ANSWER)
        awaited = self._state.awaited_tables()
        for table in self._awaited - awaited:
            self._context.waits(table_to_open(table), None)
        for table in awaited:
            self._context.waits(table_to_open(table), _NO_ANSWER)
        self._awaited = awaited

    def _bound_staged_bytes(self) -> None:
        """Read nothing while the open cycle holds as much as it may: the commit before it takes
        long."""
        staged, limit = self._stage.staged_bytes, self._max_staged_bytes
        paused = self._state.fill(full=staged >= limit)
        if paused and staged >= limit:
            log.warning(
                "%d bytes of rows wait for the next cycle, as many as %s allows: nothing is read "
                "until then",
                staged,
                MAX_STAGED_BYTES,
                extra={"action": "staging_full"},
            )
        self._actions.carry_out(paused)

    def _renew_credentials(self, now: int) -> None:
        """Have tables described anew before the storage credentials end that came with their
        descriptions."""
        epoch = self._state.epoch
        if epoch is None or now < self._renewed_at + ASK_SECONDS * 1000:
            return
        self._renewed_at = now
        self._stage.renew(self._state.answer)  # the answer may be there, and no row has come since
        expiring = self._stage.expiring()
        if expiring:
            nothing = TableRequest(None, "its rows are not known").to_text()
            self._writer.send(
                [
                    OpenTable(self._state.task, epoch, name, Need.EVOLVE, nothing)
                    for name in expiring
                ]
            )
