"""`BatchIntake`: converts the records from a poll and stages them when the poll ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import BadRows, ConnectError, DataError, FailureReason, NotColumnar
from connect_py.api.record import SinkRecord, TopicPartition
from connect_py.api.task import SinkTaskContext
from connect_py.plurals import pluralize
from connectors.iceberg.conversion.columns import without_bad_rows
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed, Router
from connectors.iceberg.staging.schemaless_lists import column_batches
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.staging.table_stager import StagedRows
from connectors.iceberg.task.features import TaskFeature
from connectors.iceberg.task.pending_records import ConvertedRows, PendingRecords
from connectors.iceberg.task.table_requests import TableRequests
from connectors.iceberg.task.task_actions import Hold, TaskActions, epoch_of, place

log = logging.getLogger(__name__)

UNROUTED_SECONDS = 60.0  # interval between warnings about rows without a table


class BatchIntake:
    """Converts and stages the records of one task. Used by the task thread only.

    A batch is converted for either all of its tables or none. Bad rows are reported and removed
    first. A partition whose rows cannot be staged yet is held: it stops at the offset where the
    poll began, until the coordinator responds.
    """

    def __init__(
        self,
        context: SinkTaskContext,
        state: TaskState,
        staging: StagingArea,
        pending: PendingRecords,
        actions: TaskActions,
        requests: TableRequests,
        metrics: IcebergMetrics,
        router: Router,
        features: Sequence[TaskFeature],
    ) -> None:
        self._context = context
        self._state = state
        self._staging = staging
        self._pending = pending
        self._actions = actions
        self._requests = requests
        self._metrics = metrics
        self.router = router
        self._features = features
        self._unrouted = 0  # number of rows without a table since the task started
        self._next_warning = 0.0

    def put_records(self, records: Sequence[SinkRecord]) -> None:
        """Accept records as batches. Report records that cannot be represented as columns."""
        for batch in column_batches(records, self._report_not_columnar):
            self.put_batch(batch)

    def _report_not_columnar(self, record: SinkRecord, why: NotColumnar) -> None:
        """Report a record unless it has already been handled or its partition is held."""
        empty = record.replace(key_schema=None, key=None, value_schema=None, value=None)
        self._actions.guard.check()
        for batch in Batch.of([empty]):
            rest = self._readable(batch)
            if rest is not None:
                error = DataError(f"the record has no columnar form: {why}")
                self._report(rest, BadRows({0: error}), FailureReason.DOES_NOT_FIT)

    def put_batch(self, batch: Batch) -> None:
        """Convert the rows in a batch that their tables do not contain yet."""
        self._actions.guard.check()
        rest = self._readable(batch)
        while rest is not None:
            self._record_timestamps(rest)
            rest, holds = self._convert_all(rest)
            if rest is None or not holds:
                break
            rest = self._hold(rest, holds)

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Accept a dead-letter record.

        The record is dropped if its partition is held. It will be created again when the partition
        is read again.
        """
        partition, offset = dead_letter.origin.topic_partition, dead_letter.origin.offset
        limit = self._limit(partition)
        if (
            (limit is None or offset < limit)
            and self._state.is_reading(partition)
            and offset >= self._state.next_offset(partition)
        ):
            for feature in self._features:
                feature.put_dead_letter(dead_letter)

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Stage the records from the poll. Afterward, all offsets below `consumed` are handled."""
        self._actions.guard.check()
        for feature in self._features:
            consumed = feature.end_poll(consumed, self._convert)
        with self._actions.guard:
            for table, rows, firsts in self._pending.converted:
                if rows is not None:
                    self._staging.add(rows)
                for tp, first in firsts.items():
                    self._state.handled(tp, table, first)
        for tp, following in consumed.items():
            if self._state.is_reading(tp):
                self._state.advance(tp, following, self._pending.timestamps.get(tp))
        self._pending.clear()
        for feature in self._features:
            feature.poll_staged()

    def _readable(self, batch: Batch) -> Batch | None:
        """Return the rows that can be handled now, or None if there are none.

        Rows from held partitions are excluded because they will be read again. Rows below the
        task's position are excluded because the worker may repeat a batch after an error.
        """
        partitions, offsets = batch.origin.partitions, batch.origin.offsets
        keep: pa.BooleanArray | None = None
        for partition, first in _first_offsets(batch).items():
            limit = self._limit(partition)
            following = None
            if self._state.is_reading(partition):
                following = self._state.next_offset(partition)
                if first >= following and limit is None:
                    continue
            dropped = pc.equal(partitions, partition.partition)
            if following is not None:
                outside = pc.less(offsets, following)
                if limit is not None:
                    outside = pc.or_(outside, pc.greater_equal(offsets, limit))
                dropped = pc.and_(dropped, outside)
            keep = pc.invert(dropped) if keep is None else pc.and_not(keep, dropped)
        if keep is None or pc.all(keep).as_py():
            return batch
        return batch.where(keep) if pc.any(keep).as_py() else None

    def _limit(self, partition: TopicPartition) -> int | None:
        """Return the first offset to drop, or None (rules 29 and 35 of the commit protocol)."""
        limits = [feature.limit(partition) for feature in self._features]
        return min((limit for limit in limits if limit is not None), default=None)

    def _record_timestamps(self, batch: Batch) -> None:
        latest = pc.max(batch.timestamp).as_py()
        if latest is not None:
            timestamps = self._pending.timestamps
            for tp in batch.origin.next_offsets():
                timestamps[tp] = max(timestamps.get(tp, latest), latest)

    def _convert_all(self, batch: Batch) -> tuple[Batch | None, dict[int, Hold]]:
        """Convert all rows, or return the partitions that must be held.

        The returned batch excludes the rows that were reported as bad.
        """
        rest: Batch | None = batch
        while rest is not None:
            reason = FailureReason.UNROUTED
            try:
                routing = self.router.route(rest)
                for feature in self._features:
                    routing = feature.route(routing)
                reason = FailureReason.DOES_NOT_FIT
                holds = self._holds(routing.routed)
                if not holds:
                    self._pending.converted += [self._convert(item) for item in routing.routed]
                    if routing.unrouted:
                        self._count_unrouted(batch.topic, routing.unrouted)
                return rest, holds
            except BadRows as bad:
                rest = self._report(rest, bad, reason)
        return None, {}

    def _holds(self, routed: Sequence[Routed]) -> dict[int, Hold]:
        """Return the partitions that must be held.

        All tables that are not open are requested at once. A partition waits for the response to
        the last request, because responses arrive in request order.

        Raises:
            BadRows: A missing table cannot be created from some rows, or some rows need a schema
                change that was rejected.
        """
        holds: dict[int, Hold] = {}
        requests: list[Hold] = []
        for item in routed:
            origin, answer = item.batch.origin, self._state.answer(item.table)
            partitions = pc.unique(origin.partitions).to_pylist()
            closed = [
                p
                for p in partitions
                if self._state.filter_position(item.table, TopicPartition(origin.topic, p)) is None
            ]
            if closed or answer is None:
                requests.append(self._requests.hold(item))
                waiting = closed if answer is not None else partitions
                holds.update(dict.fromkeys(waiting, requests[-1]))
            if answer is not None and len(closed) < len(partitions):
                for feature in self._features:
                    if (hold := feature.hold(item, answer)) is not None:
                        holds = dict.fromkeys(partitions, hold) | holds
        for request in requests[:-1]:
            self._requests.send(request)
        return holds

    def _convert(self, item: Routed) -> ConvertedRows:
        """Convert the rows for a table, except rows at offsets that the table already contains.

        Raises:
            BadRows: Some rows do not fit. They are identified by their index in the routed batch.
        """
        origin = item.batch.origin
        firsts: dict[TopicPartition, int | None] = {}
        keep: pa.BooleanArray | None = None
        for partition, first in _first_offsets(item.batch).items():
            position = self._state.filter_position(item.table, partition)
            if position is None:
                raise ConnectError(f"table {item.table} is not open for {partition}")
            firsts[partition] = first
            if first < position:
                rows = pc.equal(origin.partitions, partition.partition)
                below = pc.and_(rows, pc.less(origin.offsets, position))
                keep = pc.invert(below) if keep is None else pc.and_not(keep, below)
                firsts[partition] = pc.min(origin.offsets.filter(pc.and_not(rows, below))).as_py()
        answer = self._state.answer(item.table)
        if answer is None:
            return ConvertedRows(item.table, None, firsts)
        if keep is not None:
            for feature in self._features:
                rows = feature.recheck(item, keep)
                if rows is not None and pc.any(rows).as_py():
                    self._convert_rows(item, answer, rows)
            if not pc.any(keep).as_py():
                return ConvertedRows(item.table, None, firsts)
        return ConvertedRows(item.table, self._convert_rows(item, answer, keep), firsts)

    def _convert_rows(self, item: Routed, answer: str, mask: pa.BooleanArray | None) -> StagedRows:
        rows = item if mask is None else item.where(mask)
        try:
            return self._staging.convert(item.table, answer, epoch_of(self._state), rows.batch)
        except BadRows as bad:
            raise rows.in_whole_batch(bad) from bad

    def _report(self, batch: Batch, bad: BadRows, reason: FailureReason) -> Batch | None:
        """Report bad rows and return the remaining rows, or None if none remain.

        The reporter raises an error if errors are not tolerated.
        """
        reporter = self._context.errant_record_reporter
        for row, error in sorted(bad.errors.items()):
            if isinstance(error, DataError):
                error.reason = error.reason or reason
            if reporter is None:
                raise DataError(f"{place(batch, row)}: {error}") from error
            reporter.report_row(batch, row, error)
        return without_bad_rows(batch, bad)

    def _count_unrouted(self, topic: str, rows: int) -> None:
        """Count rows without a table, and log a warning every `UNROUTED_SECONDS`."""
        self._unrouted += rows
        self._metrics.unrouted(topic, rows)
        now = time.monotonic()
        if now >= self._next_warning:
            self._next_warning = now + UNROUTED_SECONDS
            log.warning(
                "%s no table so far, most recently from topic %s; iceberg.ext.unrouted determines "
                "whether such rows are ignored, fail the task, or become dead-letter records",
                pluralize(self._unrouted, "row has", "rows have"),
                topic,
                extra={"action": "unrouted"},
            )

    def _hold(self, batch: Batch, holds: Mapping[int, Hold]) -> Batch | None:
        """Hold partitions and return the rows of the other partitions, or None if none remain."""
        origin = batch.origin
        for partition, hold in holds.items():
            self._actions.hold(TopicPartition(origin.topic, partition), hold)
        keep = pc.invert(pc.is_in(origin.partitions, value_set=pa.array(list(holds), pa.int32())))
        return batch.where(keep) if pc.any(keep).as_py() else None


def _first_offsets(batch: Batch) -> dict[TopicPartition, int]:
    """Return the lowest offset in each partition, which is the offset of its first row."""
    origin = batch.origin
    return {
        TopicPartition(origin.topic, number): origin.offsets[
            pc.index(origin.partitions, number).as_py()
        ].as_py()
        for number in pc.unique(origin.partitions).to_pylist()
    }
