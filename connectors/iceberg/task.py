"""`IcebergSinkTask`: stages rows as Parquet, and does what the coordinator says about them.

Everything happens on the task thread. A poll is taken whole or, partition by partition, not at all: its rows are
converted as they come, and staged at its end together with its dead letters, because rows of one partition that went
to several topics come one batch after the other. Then, and on every idle call of `put`, the channel is read.
`TaskState` decides; the parts in `sink_task` carry out. Task 0 also owns the coordinator.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from connect_py.api.task import SinkTask, SinkTaskContext
from connectors.iceberg.channel.channel_topic import ChannelReader, ChannelWriter, create_channel
from connectors.iceberg.channel.control_events import EventPublisher, EventWriter
from connectors.iceberg.config.allowed_settings import check_allowed
from connectors.iceberg.config.keys import FAIL_AFTER_WAITING
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.worker_defaults import with_worker_catalog
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.table_manager import TableManager
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.faults import fault_point
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.notices.outlets import Outlets
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.sink_task.channel_turn import ChannelTurn
from connectors.iceberg.sink_task.key_change_stops import KeyChangeStops
from connectors.iceberg.sink_task.poll import Poll
from connectors.iceberg.sink_task.row_intake import RowIntake
from connectors.iceberg.sink_task.table_needs import TableNeeds
from connectors.iceberg.sink_task.task_actions import TaskActions, now_ms
from connectors.iceberg.staging.key_changes import KeyChangeWaits
from connectors.iceberg.staging.stage import Stage

log = logging.getLogger(__name__)

STOP_SECONDS = 4.0  # for the coordinator; the worker allows 5 s for the whole task


class IcebergSinkTask(SinkTask):
    """One task of the Iceberg sink."""

    def start(self, props: Mapping[str, str]) -> None:
        props = with_worker_catalog(props, self.context.worker_settings)
        config = self._config = IcebergSinkConfig.parse(props)
        context, metrics = self.context, IcebergMetrics(self.context.metrics)
        name = f"{config.connector}-{context.task}"
        context.bound_waiting(config.fail_after_waiting_ms, FAIL_AFTER_WAITING)
        state = self._state = TaskState(
            name, context.start_number, lambda: uuid.uuid4().hex, max_staged_cycles=config.max_staged_cycles
        )
        stage = self._stage = Stage(config, name, context.partition_count)
        poll = self._poll = Poll()
        waits = KeyChangeWaits(config.key_change_wait_ms)
        create_channel(context.client_config, config.channel_topic)
        self._reader = ChannelReader(context.client_config, config.channel_topic)
        self._reader.start_at_end()
        self._writer = ChannelWriter(context.client_config, config.channel_topic)
        actions = self._actions = TaskActions(context, state, stage, poll, self._writer)
        needs = TableNeeds(config, state, stage, actions, metrics)
        dead_letters = DeadLetterRows(config.connector, context.task, props)
        self._intake = RowIntake(context, config, state, stage, poll, actions, needs, waits, dead_letters)
        self._stops = KeyChangeStops(context, state, stage, poll, actions, waits, null_unknown=config.null_unknown)
        self._coordinator = None
        if context.task == 0:
            check_allowed(props, context.worker_settings)
            self._coordinator = _coordinator(config, context)
        self._turn = ChannelTurn(
            context, state, stage, self._reader, self._writer, actions, self._stops, metrics, self._coordinator,
            max_staged_bytes=config.max_staged_bytes,
        )  # fmt: skip
        self._offered = False  # offsets went to the group

    def stop(self) -> None:
        coordinator = getattr(self, "_coordinator", None)
        if coordinator is not None:
            coordinator.stop(STOP_SECONDS)
        for name in ("_writer", "_reader", "_stage"):
            blocked = getattr(self, name, None)  # a failed start may not have come this far
            if blocked is not None:
                blocked.close()

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self._actions.assign(partitions)

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._stops.end(partition)
        self._actions.carry_out(self._state.revoke(partitions))

    def position_lost(self, partition: TopicPartition) -> bool:
        """Nothing is passed over in silence: the coordinator knows whether a table still needs what is gone."""
        log.warning("the log of %s does not hold the next offset any more; the coordinator is asked again", partition)
        self._actions.carry_out(self._state.position_lost(partition, now_ms()))
        return True

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            self._intake.take_records(records)
        else:
            self._turn.take()

    def put_batch(self, batch: Batch) -> None:
        self._intake.take(batch)

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        self._intake.take_dead_letter(dead_letter)

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Stage what the poll brought, and its dead letters: from now on everything below `consumed` is handled."""
        self._actions.guard.check()
        self._intake.convert_dead_letters(consumed)
        consumed = self._stops.limit(consumed)
        with self._actions.guard:
            for table, rows, firsts in self._poll.converted:
                if rows is not None:
                    self._stage.add(rows)
                for tp, first in firsts.items():
                    self._state.handled(tp, table, first)
        for tp, following in consumed.items():
            if self._state.is_reading(tp):
                self._state.advance(tp, following, self._poll.latest.get(tp))
        self._poll.clear()
        self._stops.hold()
        self._turn.take()

    def pre_commit(self, current: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The floor of every partition, with our mark: the group follows the tables and never leads."""
        if self._offered:  # the framework begins no commit before it knows how the last one ended
            fault_point("after_group_commit")
        for tp, following in current.items():
            if self._state.is_reading(tp):
                self._state.advance(tp, following)  # rows that transformations dropped are handled too
        self._turn.take()
        fault_point("before_group_commit")
        offsets = self._state.offsets_to_commit()
        self._offered = bool(offsets)
        return {tp: OffsetAndMetadata(at.offset, at.mark.to_text()) for tp, at in offsets.items() if at.mark}


def _coordinator(config: IcebergSinkConfig, context: SinkTaskContext) -> Coordinator:
    """The coordinator, started."""
    outlets = Outlets.of(config, context)
    writer = EventWriter(context.client_config, config.control_topic, config.kafka)
    events = EventPublisher(config.connect_group, config.catalog_name, writer)
    tables = TableManager(config, events, outlets.metrics, context, outlets.lineage)
    tables.request()
    coordinator = Coordinator(config, context, tables, events, outlets.metrics, outlets.all())
    coordinator.start()
    return coordinator
