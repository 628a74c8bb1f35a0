"""`IcebergSinkTask`: stages rows as Parquet, and does what the coordinator says about them.

Everything happens on the task thread. A poll is taken whole or, partition by partition, not at all: its rows are
converted as they come, and staged at its end together with its dead letters, because rows of one partition that went
to several topics come one batch after the other. Then, and on every idle call of `put`, the channel is read.
`TaskState` decides; the modules of `polls` carry out. Task 0 also owns the coordinator.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import NotColumnar, RetriableError
from connect_py.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from connect_py.api.task import SinkTask
from connectors.iceberg.channel.channel_topic import ChannelReader, ChannelWriter, create_channel
from connectors.iceberg.channel.control_events import EventPublisher, EventWriter
from connectors.iceberg.config.sink_config import FAIL_AFTER_WAITING, IcebergSinkConfig
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.table_manager import TableManager
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.faults import fault_point
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.polls.channel_turn import ChannelTurn
from connectors.iceberg.polls.key_change_holds import KeyChangeHolds
from connectors.iceberg.polls.poll import TaskParts, now_ms
from connectors.iceberg.polls.row_conversion import RowConversion
from connectors.iceberg.polls.task_actions import TaskActions
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.schemaless_lists import evened
from connectors.iceberg.staging.stage import Stage

log = logging.getLogger(__name__)

STOP_SECONDS = 4.0  # for the coordinator; the worker allows 5 s for the whole task


class IcebergSinkTask(SinkTask):
    """One task of the Iceberg sink."""

    def start(self, props: Mapping[str, str]) -> None:
        config = IcebergSinkConfig.parse(props)
        context = self.context
        metrics = IcebergMetrics(context.metrics)
        name = f"{config.connector}-{context.task}"
        cycles = config.max_staged_cycles
        self._state = TaskState(name, context.start_number, lambda: uuid.uuid4().hex, max_staged_cycles=cycles)
        self._stage = Stage(config, name, context.partition_count)
        self._offered = False  # offsets went to the group
        context.bound_waiting(config.fail_after_waiting_ms, FAIL_AFTER_WAITING)
        create_channel(context.client_config, config.channel_topic)
        self._reader = ChannelReader(context.client_config, config.channel_topic)
        self._reader.start_at_end()
        self._writer = ChannelWriter(context.client_config, config.channel_topic)
        parts = TaskParts(config, context, metrics, self._state, self._stage, self._writer)
        self._poll = parts.poll
        self._actions = TaskActions(parts)
        self._key_changes = KeyChangeHolds(parts, self._actions)
        dead_letter_rows = DeadLetterRows(config.connector, context.task, props)
        self._rows = RowConversion(parts, self._actions, self._key_changes, dead_letter_rows)
        self._coordinator = self._start_coordinator(parts) if context.task == 0 else None
        self._turn = ChannelTurn(parts, self._actions, self._key_changes, self._reader, self._coordinator)

    def _start_coordinator(self, parts: TaskParts) -> Coordinator:
        config, context = parts.config, parts.context
        writer = EventWriter(context.client_config, config.control_topic, config.kafka)
        events = EventPublisher(config.connect_group, config.catalog_name, writer)
        tables = TableManager(config, events, parts.metrics, context)
        tables.request()
        coordinator = Coordinator(config, context, tables, events, parts.metrics)
        coordinator.start()
        return coordinator

    def stop(self) -> None:
        coordinator = getattr(self, "_coordinator", None)
        if coordinator is not None:
            coordinator.stop(STOP_SECONDS)
        for name in ("_writer", "_reader", "_stage"):
            closing = getattr(self, name, None)  # a failed start may not have come this far
            if closing is not None:
                closing.close()

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        described = self._actions.topic_ids({p.topic for p in partitions})
        topic_ids = described or {}  # described again while partitions wait to be attached
        try:
            committed = self.context.committed(partitions)
        except RetriableError as error:  # marks only spare a detour: the coordinator reads them too
            log.warning("the group's offsets are not known now: %s", error)
            committed = {}
        marks = {p: OffsetMetadata.from_text(at.metadata) for p, at in committed.items()}
        foreign = [p for p, mark in marks.items() if mark is None]
        if foreign:
            log.warning(
                "the group's offsets of %s were not committed by this connector: once its tables have a ledger, "
                "these say where it reads, and offsets that other tools set do not count",
                ", ".join(map(str, foreign)),
            )  # fmt: skip
        ids = {p: topic_ids.get(p.topic, "") for p in partitions}
        self._actions.carry_out(self._state.assign(ids, {p: marks.get(p) for p in partitions}, now_ms()))

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._key_changes.end(partition)
        self._actions.carry_out(self._state.revoke(partitions))

    def position_lost(self, partition: TopicPartition) -> bool:
        """Nothing is passed over in silence: the coordinator knows whether a table still needs what is gone."""
        log.warning("the log of %s does not hold the next offset any more; the coordinator is asked again", partition)
        self._actions.carry_out(self._state.position_lost(partition, now_ms()))
        return True

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            self._turn.take()
            return
        try:
            batches = Batch.of(records)
        except NotColumnar:
            self._put_unlike(records)
            return
        for batch in batches:
            self.put_batch(batch)

    def _put_unlike(self, records: Sequence[SinkRecord]) -> None:
        """Put records some of which have no column form as they are, and report those that cannot be given one."""
        try:
            batches = Batch.of(evened(records))
        except NotColumnar as error:
            if len(records) == 1:
                self._rows.report_shapeless(records[0], error)
                return
            middle = len(records) // 2
            self.put(records[:middle])
            self.put(records[middle:])
            return
        for batch in batches:
            self.put_batch(batch)

    def put_batch(self, batch: Batch) -> None:
        """Convert the rows that their tables still need; hold a partition whose rows cannot be staged yet."""
        self._rows.put_batch(batch)

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Keep a dead letter until its poll ends; records of partitions that wait come again."""
        self._rows.put_dead_letter(dead_letter)

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Stage what the poll brought, and its dead letters: from now on everything below `consumed` is handled."""
        self._actions.check_whole()
        self._rows.convert_dead_letters(consumed)
        consumed = self._key_changes.stop_at_unread_pairs(consumed)
        self._rows.stage()
        for tp, following in consumed.items():
            if self._state.is_reading(tp):
                self._state.advance(tp, following, self._poll.latest.get(tp))
        self._poll.clear()
        self._key_changes.hold_at_unread_pairs()
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
