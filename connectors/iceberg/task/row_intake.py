"""`RowIntake`: converts what a poll brings; holds partitions whose rows cannot be staged yet, and
reports bad rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import BadRows, ConnectError, DataError, FailureReason, NotColumnar
from connect_py.api.record import SinkRecord, TopicPartition
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed, Router, with_changelogs
from connectors.iceberg.staging.key_changes import KeyChangeWaits
from connectors.iceberg.staging.schemaless_lists import column_batches
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.task.poll import Poll
from connectors.iceberg.task.row_converter import TableRowsConverter, first_offsets
from connectors.iceberg.task.table_needs import BlockedBy, TableNeeds
from connectors.iceberg.task.task_actions import TaskActions


class RowIntake:
    """Used by the task thread only; what it converts goes to the poll."""

    def __init__(
        self,
        context: SinkTaskContext,
        config: IcebergSinkConfig,
        state: TaskState,
        stage: Stage,
        poll: Poll,
        actions: TaskActions,
        needs: TableNeeds,
        key_waits: KeyChangeWaits,
        dead_letter_rows: DeadLetterRows,
    ) -> None:
        self._context = context
        self._config = config
        self._state = state
        self._poll = poll
        self._actions = actions
        self._needs = needs
        self._key_waits = key_waits
        self._dead_letter_rows = dead_letter_rows
        self._converter = TableRowsConverter(state, stage, config.dead_letter_table)
        self.router = Router(config)

    def take_records(self, records: Sequence[SinkRecord]) -> None:
        """Take rows, even if some of them have no column form as they are; report those that cannot
        be given one."""
        for batch in column_batches(records, self._report_shapeless):
            self.take(batch)

    def _report_shapeless(self, record: SinkRecord, why: NotColumnar) -> None:
        """Report a record, unless its turn is over or has not come."""
        empty = record.replace(key_schema=None, key=None, value_schema=None, value=None)
        self._actions.guard.check()
        for batch in Batch.of([empty]):
            rest = self._handleable(batch)
            if rest is not None:
                error = DataError(f"no column can hold the record: {why}")
                self._report(rest, BadRows({0: error}), FailureReason.DOES_NOT_FIT)

    def take(self, batch: Batch) -> None:
        """Convert the rows that their tables still need; hold a partition whose rows cannot be
        staged yet."""
        self._actions.guard.check()
        rest = self._handleable(batch)
        while rest is not None:
            self._poll.saw(rest)
            rest, blocked = self._convert_rows(rest)
            if rest is None or not blocked:
                break
            rest = self._hold(rest, blocked)

    def take_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Keep a dead letter until its poll ends; records of partitions that wait come again."""
        partition, offset = dead_letter.origin.topic_partition, dead_letter.origin.offset
        limit = self._limit(partition)
        if limit is not None and offset >= limit:
            return
        if self._state.is_reading(partition) and offset >= self._state.next_offset(partition):
            self._poll.dead_letters.setdefault(partition, {})[offset] = dead_letter

    def convert_dead_letters(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Make rows of the poll's dead letters; a partition whose dead letters have no table yet
        waits."""
        table = self._config.dead_letter_table
        found: list[DeadLetter] = []
        for tp, dead_letters in list(self._poll.dead_letters.items()):
            if table is None or tp not in consumed or not self._state.is_reading(tp):
                continue
            if self._state.is_skipped(table):
                raise ConnectError(
                    f"dead letters have nowhere to go: table {table} is left out as missing"
                )
            if self._state.filter_position(table, tp) is None or self._state.answer(table) is None:
                creation = self._dead_letter_rows.creation(self._config)
                self._hold_partition(tp, BlockedBy(table, Need.CREATE, creation))
                continue
            start = self._state.next_offset(tp)
            found += [
                dead_letters[offset]
                for offset in sorted(dead_letters)
                if start <= offset < consumed[tp]
            ]
        for batch in self._dead_letter_rows.batches(found):
            try:
                self._poll.converted.append(self._converter.convert(Routed(table or "", batch)))
            except BadRows as bad:
                row, error = min(bad.errors.items())
                raise ConnectError(
                    f"the dead letter of {_place(batch, row)} does not fit its table: {error}"
                ) from error

    def _handleable(self, batch: Batch) -> Batch | None:
        """The rows that may be handled now.

        Partitions that wait for the coordinator will be read again; rows below the position come
        again when an error of ours made the worker repeat the batch.
        """
        partitions, offsets = batch.origin.partitions, batch.origin.offsets
        keep: pa.BooleanArray | None = None
        for partition, first in first_offsets(partitions, offsets).items():
            tp = TopicPartition(batch.origin.topic, partition)
            following = self._state.next_offset(tp) if self._state.is_reading(tp) else None
            limit = self._limit(tp)
            if following is not None and first >= following and limit is None:
                continue
            dropped = pc.equal(partitions, partition)
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
        """The offset from which on rows are dropped: they wait for a delete, or are not wanted
        (rules 29 and 35)."""
        limits = [self._key_waits.limit(partition), self._state.end(partition)]
        return min((limit for limit in limits if limit is not None), default=None)

    def _convert_rows(self, batch: Batch) -> tuple[Batch | None, dict[int, BlockedBy]]:
        """Convert a batch whole, or nothing of it; bad rows are reported and left out first.

        Returns the rows that are left, and the partitions that must be held: then nothing was
        converted.
        """
        rest: Batch | None = batch
        while rest is not None:
            reason = FailureReason.UNROUTED
            try:
                routing = self.router.route(rest)
                wanted, lost = self._needs.with_tables(
                    with_changelogs(self._config, routing.routed)
                )
                reason = FailureReason.DOES_NOT_FIT
                blocked = self._needs.blocked(wanted)
                if not blocked:
                    self._poll.converted += [self._converter.convert(routed) for routed in wanted]
                    if routing.unrouted or lost:
                        self._needs.count_unrouted(batch.topic, routing.unrouted + lost)
                return rest, blocked
            except BadRows as bad:
                rest = self._report(rest, bad, reason)
        return None, {}

    def _report(self, batch: Batch, bad: BadRows, reason: FailureReason) -> Batch | None:
        """Give bad rows to the reporter, which raises when nothing is tolerated; the rest goes
        on."""
        reporter = self._context.errant_record_reporter
        for row, error in sorted(bad.errors.items()):
            if isinstance(error, DataError):
                error.reason = error.reason or reason
            if reporter is None:
                raise DataError(f"{_place(batch, row)}: {error}") from error
            reporter.report_row(batch, row, error)
        keep = [row not in bad.errors for row in range(len(batch))]
        return batch.where(pa.array(keep)) if any(keep) else None

    def _hold(self, batch: Batch, blocked: Mapping[int, BlockedBy]) -> Batch | None:
        """Stop these partitions where the poll began; return the rows of the others."""
        origin = batch.origin
        for partition, why in blocked.items():
            self._hold_partition(TopicPartition(origin.topic, partition), why)
        keep = pc.invert(pc.is_in(origin.partitions, value_set=pa.array(list(blocked), pa.int32())))
        return batch.where(keep) if pc.any(keep).as_py() else None

    def _hold_partition(self, partition: TopicPartition, why: BlockedBy) -> None:
        """Stop a partition where the poll began, and forget what the poll brought of it."""
        self._poll.drop(partition)
        self._actions.hold(partition, *why)


def _place(batch: Batch, row: int) -> str:
    origin = batch.origin
    return (
        f"topic '{origin.topic}' partition {origin.partitions[row]} at offset {origin.offsets[row]}"
    )
