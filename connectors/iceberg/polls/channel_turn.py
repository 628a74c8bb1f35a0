"""`ChannelTurn`: what a task does between polls, on its own thread."""

from __future__ import annotations

import logging

from connectors.iceberg.channel.channel_topic import ChannelReader
from connectors.iceberg.config.sink_config import MAX_STAGED_BYTES
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.retry_tracker import COORDINATOR, table_to_open
from connectors.iceberg.polls.key_change_holds import KeyChangeHolds
from connectors.iceberg.polls.poll import TaskParts, now_ms
from connectors.iceberg.polls.row_tables import ASK_SECONDS
from connectors.iceberg.polls.task_actions import TaskActions
from connectors.iceberg.protocol.messages import CommitComplete, Need, OpenTable, TableOpened
from connectors.iceberg.schema.table import TableRequest

log = logging.getLogger(__name__)


class ChannelTurn:
    """Owned by the task thread."""

    def __init__(
        self,
        parts: TaskParts,
        actions: TaskActions,
        key_changes: KeyChangeHolds,
        reader: ChannelReader,
        coordinator: Coordinator | None,
    ) -> None:
        self._config = parts.config
        self._context = parts.context
        self._state = parts.state
        self._stage = parts.stage
        self._metrics = parts.metrics
        self._writer = parts.writer
        self._actions = actions
        self._key_changes = key_changes
        self._reader = reader
        self._coordinator = coordinator
        self._awaited: frozenset[str] = frozenset()  # tables, as last reported
        self._renewed_at = 0  # when credentials to the storage were last looked at

    def take(self) -> None:
        """Read the channel, keep time, carry out."""
        self._actions.check_whole()
        if self._coordinator is not None:
            self._coordinator.check()
        self._writer.poll()
        now = now_ms()
        for message in self._reader.poll():
            self._actions.carry_out(self._state.on_message(message, now))
            if isinstance(message, TableOpened):
                self._key_changes.answered(message.table)
            if isinstance(message, CommitComplete):
                self._context.request_commit()  # the group follows the tables at once, not a flush interval later
        self._actions.carry_out(self._state.on_tick(now))
        self._show_waiting()
        self._key_changes.look_after()
        self._renew_credentials(now)
        self._metrics.staged(self._state.staged_cycles)
        self._bound_staging()

    def _show_waiting(self) -> None:
        """Say what keeps partitions of this task waiting; of task 0 the coordinator says more."""
        if self._coordinator is not None:
            return
        attached = self._state.is_attached()
        self._context.waits(COORDINATOR, None if attached else "no answer yet; the status of task 0 may tell why")
        awaited = self._state.awaited_tables()
        for table in self._awaited - awaited:
            self._context.waits(table_to_open(table), None)
        for table in awaited:
            self._context.waits(table_to_open(table), "no answer yet; the status of task 0 may tell why")
        self._awaited = awaited

    def _bound_staging(self) -> None:
        """Read nothing while the open cycle holds as much as it may: the commit before it takes long."""
        staged, limit = self._stage.staged_bytes, self._config.max_staged_bytes
        paused = self._state.fill(full=staged >= limit)
        if paused and staged >= limit:
            log.warning(
                "%d bytes of rows wait for the next cycle, as many as %s allows: nothing is read until then",
                staged, MAX_STAGED_BYTES, extra={"action": "staging_full"},
            )  # fmt: skip
        self._actions.carry_out(paused)

    def _renew_credentials(self, now: int) -> None:
        """Have tables described anew before the storage credentials end that came with their descriptions."""
        epoch = self._state.epoch
        if epoch is None or now < self._renewed_at + ASK_SECONDS * 1000:
            return
        self._renewed_at = now
        self._stage.renew(self._state.answer)  # the answer may be there, and no row has come since
        expiring = self._stage.expiring()
        if expiring:
            nothing = TableRequest(None, "its rows are not known").to_text()
            self._writer.send([OpenTable(self._state.task, epoch, name, Need.EVOLVE, nothing) for name in expiring])
