"""`IcebergSinkTask`: stages rows as Parquet, and does what the coordinator says about them.

Everything happens on the task thread. A poll is taken whole or, partition by partition, not at all:
its rows are converted as they come, and staged at its end together with its dead letters, because
rows of one partition that went to several topics come one batch after the other. Then, and on every
idle call of `put`, the channel is read. `TaskState` decides; the parts in `sink_task` carry out.
Task 0 also owns the coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from connect_py.api.task import SinkTask
from connectors.iceberg.config.allowed_settings import check_allowed
from connectors.iceberg.config.keys import FAIL_AFTER_WAITING
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.worker_defaults import with_worker_catalog
from connectors.iceberg.coordinator.channel_topic import (
    ChannelReader,
    ChannelWriter,
    create_channel,
)
from connectors.iceberg.coordinator.start import started_coordinator
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.task.channel_turn import ChannelTurn
from connectors.iceberg.task.task_actions import now_ms
from connectors.iceberg.task.task_parts import TaskParts

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
        stage = self._stage = Stage(config, name, context.partition_count)
        create_channel(context.client_config, config.channel_topic)
        self._reader = ChannelReader(context.client_config, config.channel_topic)
        self._reader.start_at_end()
        self._writer = ChannelWriter(context.client_config, config.channel_topic)
        parts = self._parts = TaskParts.of(
            config, props, context, name, stage, self._writer, metrics
        )
        self._state, self._actions = parts.state, parts.actions
        self._coordinator = None
        if context.task == 0:
            check_allowed(props, context.worker_settings)
            self._coordinator = started_coordinator(config, context)
        self._turn = ChannelTurn(
            context,
            parts.state,
            stage,
            self._reader,
            self._writer,
            parts.actions,
            parts.stops,
            metrics,
            self._coordinator,
            max_staged_bytes=config.max_staged_bytes,
        )
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
            self._parts.stops.end(partition)
        self._actions.carry_out(self._state.revoke(partitions))

    def position_lost(self, partition: TopicPartition) -> bool:
        """Nothing is passed over in silence: the coordinator knows whether a table still needs what
        is gone."""
        log.warning(
            "the log of %s does not hold the next offset any more; the coordinator is asked again",
            partition,
        )
        self._actions.carry_out(self._state.position_lost(partition, now_ms()))
        return True

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            self._parts.intake.take_records(records)
        else:
            self._turn.take()

    def put_batch(self, batch: Batch) -> None:
        self._parts.intake.take(batch)

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        self._parts.intake.take_dead_letter(dead_letter)

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        self._parts.end_poll(consumed)
        self._turn.take()

    def pre_commit(
        self, current: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The floor of every partition, with our mark: the group follows the tables and never
        leads."""
        if self._offered:  # the framework begins no commit before it knows how the last one ended
            fault_point("after_group_commit")
        for tp, following in current.items():
            if self._state.is_reading(tp):
                # rows that transformations dropped are handled too
                self._state.advance(tp, following)
        self._turn.take()
        fault_point("before_group_commit")
        offsets = self._state.offsets_to_commit()
        self._offered = bool(offsets)
        return {
            tp: OffsetAndMetadata(at.offset, at.mark.to_text())
            for tp, at in offsets.items()
            if at.mark
        }
