"""`IcebergSinkTask`: stages rows as Parquet files and reports the files to the coordinator.

All code runs on the task thread. Rows are converted as they arrive and are staged at the end of the
poll, together with the poll's dead-letter records. They are not staged earlier because a partition
must be staged completely or not at all, and its rows arrive in several batches if a transformation
routes them to several topics. The channel topic is read at the end of each poll and on each `put`
call without records. `TaskState` makes the decisions, and `TaskActions` executes them. Task 0 also
owns the coordinator.
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
from connectors.iceberg.coordinator.start import start_coordinator
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.task.channel_turn import ChannelTurn
from connectors.iceberg.task.task_actions import now_ms
from connectors.iceberg.task.task_parts import TaskParts

log = logging.getLogger(__name__)

STOP_SECONDS = 4.0  # timeout for stopping the coordinator; the worker allows 5 s for the whole task


class IcebergSinkTask(SinkTask):
    """One task of the Iceberg sink."""

    def start(self, props: Mapping[str, str]) -> None:
        props = with_worker_catalog(props, self.context.worker_settings)
        config = self._config = IcebergSinkConfig.parse(props)
        context, metrics = self.context, IcebergMetrics(self.context.metrics)
        name = f"{config.connector}-{context.task}"
        context.bound_waiting(config.fail_after_waiting_ms, FAIL_AFTER_WAITING)
        staging = self._staging = StagingArea(config, name, context.partition_count)
        create_channel(context.client_config, config.channel_topic)
        self._reader = ChannelReader(context.client_config, config.channel_topic)
        self._reader.start_at_end()
        self._writer = ChannelWriter(context.client_config, config.channel_topic)
        parts = self._parts = TaskParts.of(
            config, props, context, name, staging, self._writer, metrics
        )
        self._state, self._actions, self._intake = parts.state, parts.actions, parts.intake
        self._coordinator = None
        if context.task == 0:
            check_allowed(props, context.worker_settings)
            self._coordinator = start_coordinator(config, context)
        self._turn = ChannelTurn(
            context,
            parts.state,
            staging,
            self._reader,
            self._writer,
            parts.actions,
            parts.features,
            metrics,
            self._coordinator,
            max_staged_bytes=config.max_staged_bytes,
        )
        self._has_offered_offsets = False  # whether `pre_commit` has returned offsets

    def stop(self) -> None:
        coordinator = getattr(self, "_coordinator", None)
        if coordinator is not None:
            coordinator.stop(STOP_SECONDS)
        for name in ("_writer", "_reader", "_staging"):
            resource = getattr(self, name, None)  # a failed start may not have created it
            if resource is not None:
                resource.close()

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self._actions.assign(partitions)

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            for feature in self._parts.features:
                feature.close(partition)
        self._actions.carry_out(self._state.revoke(partitions))

    def position_lost(self, partition: TopicPartition) -> bool:
        """Request the position again, because the tables may not need the deleted records."""
        log.warning(
            "the log of %s no longer contains the next offset; requesting the position from the "
            "coordinator again",
            partition,
        )
        self._actions.carry_out(self._state.position_lost(partition, now_ms()))
        return True

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            self._intake.put_records(records)
        else:
            self._turn.take()

    def put_batch(self, batch: Batch) -> None:
        self._intake.put_batch(batch)

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        self._intake.put_dead_letter(dead_letter)

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        self._intake.end_poll(consumed)
        self._turn.take()

    def pre_commit(
        self, current: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset up to which all tables contain the rows from each partition.

        The committed offsets of the consumer group never exceed these offsets.
        """
        # the framework starts a commit only after the previous commit has ended
        if self._has_offered_offsets:
            fault_point("after_group_commit")
        for tp, following in current.items():
            if self._state.is_reading(tp):
                # records that transformations dropped count as handled
                self._state.advance(tp, following)
        self._turn.take()
        fault_point("before_group_commit")
        offsets = self._state.offsets_to_commit()
        self._has_offered_offsets = bool(offsets)
        return {
            tp: OffsetAndMetadata(at.offset, at.mark.to_text())
            for tp, at in offsets.items()
            if at.mark
        }
