"""`RowConversion`: rows and dead letters of a poll, converted for their tables; bad rows are reported."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import BadRows, ConnectError, DataError, FailureReason, NotColumnar
from connect_py.api.record import SinkRecord, TopicPartition
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.polls.key_change_holds import KeyChangeHolds
from connectors.iceberg.polls.poll import BlockedPartition, ConvertedRows, TaskParts, first_offsets, place
from connectors.iceberg.polls.row_tables import RowTables
from connectors.iceberg.polls.task_actions import TaskActions
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.routing.router import Routed
from connectors.iceberg.staging.table_stager import StagedRows


class RowConversion:
    """Owned by the task thread. What it converts is kept in the poll; nothing is staged yet."""

    def __init__(
        self, parts: TaskParts, actions: TaskActions, key_changes: KeyChangeHolds, dead_letter_rows: DeadLetterRows
    ) -> None:
        self._config = parts.config
        self._context = parts.context
        self._state = parts.state
        self._stage = parts.stage
        self._poll = parts.poll
        self._actions = actions
        self._tables = RowTables(parts, actions)
        self._key_changes = key_changes
        self._dead_letter_rows = dead_letter_rows

    def put_batch(self, batch: Batch) -> None:
        """See `IcebergSinkTask.put_batch`."""
        self._actions.check_whole()
        rest = self._handleable(batch)
        while rest is not None:
            latest = pc.max(rest.timestamp).as_py()
            if latest is not None:
                for tp in rest.origin.next_offsets():
                    self._poll.latest[tp] = max(self._poll.latest.get(tp, latest), latest)
            rest, blocked = self._convert_rows(rest)
            if rest is None or not blocked:
                break
            rest = self._hold(rest, blocked)

    def report_shapeless(self, record: SinkRecord, why: NotColumnar) -> None:
        """Report a record, unless its turn is over or has not come."""
        empty = record.replace(key_schema=None, key=None, value_schema=None, value=None)
        self._actions.check_whole()
        for batch in Batch.of([empty]):
            rest = self._handleable(batch)
            if rest is not None:
                error = DataError(f"no column can hold the record: {why}")
                self._report(rest, BadRows({0: error}), FailureReason.DOES_NOT_FIT)

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """See `IcebergSinkTask.put_dead_letter`."""
        partition, offset = dead_letter.origin.topic_partition, dead_letter.origin.offset
        limit = self._key_changes.limit(partition)
        if limit is not None and offset >= limit:
            return
        if self._state.is_reading(partition) and offset >= self._state.next_offset(partition):
            self._poll.dead_letters.setdefault(partition, {})[offset] = dead_letter

    def stage(self) -> None:
        """Stage what was converted."""
        with self._actions.whole():
            for converted in self._poll.converted:
                if converted.rows is not None:
                    self._stage.add(converted.rows)
                for tp, first in converted.firsts.items():
                    self._state.handled(tp, converted.table, first)

    def _handleable(self, batch: Batch) -> Batch | None:
        """The rows that may be handled now.

        Partitions that wait for the coordinator will be read again; rows below the position come again when an error
        of ours made the worker repeat the batch.
        """
        partitions, offsets = batch.origin.partitions, batch.origin.offsets
        keep: pa.BooleanArray | None = None
        for partition, first in first_offsets(partitions, offsets).items():
            tp = TopicPartition(batch.origin.topic, partition)
            following = self._state.next_offset(tp) if self._state.is_reading(tp) else None
            limit = self._key_changes.limit(tp)
            if following is not None and first >= following and limit is None:
                continue
            dropped = pc.equal(partitions, partition)
            if following is not None:
                outside = pc.less(offsets, following)
                if limit is not None:
                    outside = pc.or_(outside, pc.greater_equal(offsets, limit))
                dropped = pc.and_(dropped, outside)
            keep = pc.invert(dropped) if keep is None else pc.and_not(keep, dropped)
        if keep is None:
            return batch
        return batch.where(keep) if pc.any(keep).as_py() else None

    def _convert_rows(self, batch: Batch) -> tuple[Batch | None, dict[int, BlockedPartition]]:
        """Convert a batch whole, or nothing of it; bad rows are reported and left out first.

        Returns the rows that are left, and the partitions that must be held: then nothing was converted.
        """
        rest: Batch | None = batch
        while rest is not None:
            reason = FailureReason.UNROUTED
            try:
                wanted, unrouted = self._tables.of(rest)
                reason = FailureReason.DOES_NOT_FIT
                blocked = self._tables.needs(wanted)
                if not blocked:
                    self._poll.converted += [self._convert(routed) for routed in wanted]
                    if unrouted:
                        self._tables.count_unrouted(batch.topic, unrouted)
                return rest, blocked
            except BadRows as bad:
                rest = self._report(rest, bad, reason)
        return None, {}

    def _convert(self, routed: Routed) -> ConvertedRows:
        """Convert one table's rows, those below its position left out by one comparison; nothing is staged yet.

        Raises:
            BadRows: By their index in the batch that was routed.
        """
        epoch, batch = self._actions.epoch(), routed.batch
        origin = batch.origin
        firsts: dict[TopicPartition, int | None] = {}
        keep: pa.BooleanArray | None = None
        for partition, first in first_offsets(origin.partitions, origin.offsets).items():
            tp = TopicPartition(origin.topic, partition)
            position = self._state.filter_position(routed.table, tp)
            if position is None:
                raise ConnectError(f"table {routed.table} is not open for {tp}")
            firsts[tp] = first
            if first < position:
                own = pc.equal(origin.partitions, partition)
                below = pc.and_(own, pc.less(origin.offsets, position))
                keep = pc.invert(below) if keep is None else pc.and_not(keep, below)
                firsts[tp] = pc.min(origin.offsets.filter(pc.and_not(own, below))).as_py()
        answer = self._state.answer(routed.table)
        if answer is None:
            return ConvertedRows(routed.table, None, firsts)
        if keep is None:
            return ConvertedRows(routed.table, self._convert_where(routed, answer, epoch, None), firsts)
        lacking = pc.and_not(self._dead_letters_lack(routed), keep)
        if pc.any(lacking).as_py():  # who died between the two commits left rows in the table, and no letters of others
            self._convert_where(routed, answer, epoch, lacking)
        if not pc.any(keep).as_py():
            return ConvertedRows(routed.table, None, firsts)
        return ConvertedRows(routed.table, self._convert_where(routed, answer, epoch, keep), firsts)

    def _dead_letters_lack(self, routed: Routed) -> pa.BooleanArray:
        """The rows whose letters, if they are bad, may not be in the dead letters' table yet."""
        table, origin = self._config.dead_letter_table, routed.batch.origin
        lacking: pa.BooleanArray = pa.repeat(pa.scalar(table is not None and routed.table != table), len(origin))
        if table is None:
            return lacking
        for partition in pc.unique(origin.partitions).to_pylist():
            position = self._state.filter_position(table, TopicPartition(origin.topic, partition))
            if position is not None:
                own = pc.equal(origin.partitions, partition)
                lacking = pc.and_not(lacking, pc.and_(own, pc.less(origin.offsets, position)))
        return lacking

    def _convert_where(self, routed: Routed, answer: str, epoch: Epoch, mask: pa.BooleanArray | None) -> StagedRows:
        """Convert some rows, or all. BadRows: by their index in the batch that was routed."""
        try:
            needed = routed.batch if mask is None else routed.batch.where(mask)
            return self._stage.convert(routed.table, answer, epoch, needed)
        except BadRows as bad:
            if mask is not None:
                kept = pc.indices_nonzero(mask).to_pylist()
                bad = BadRows({kept[row]: error for row, error in bad.errors.items()})
            raise routed.in_whole_batch(bad) from bad

    def _report(self, batch: Batch, bad: BadRows, reason: FailureReason) -> Batch | None:
        """Give bad rows to the reporter, which raises when nothing is tolerated; the rest goes on."""
        reporter = self._context.errant_record_reporter
        for row, error in sorted(bad.errors.items()):
            if isinstance(error, DataError):
                error.reason = error.reason or reason
            if reporter is None:
                raise DataError(f"{place(batch, row)}: {error}") from error
            reporter.report_row(batch, row, error)
        keep = [True] * len(batch)
        for row in bad.errors:
            keep[row] = False
        return batch.where(pa.array(keep)) if any(keep) else None

    def _hold(self, batch: Batch, blocked: Mapping[int, BlockedPartition]) -> Batch | None:
        """Stop these partitions where the poll began; return the rows of the others."""
        origin = batch.origin
        for partition, why in blocked.items():
            self._actions.hold_partition(TopicPartition(origin.topic, partition), why)
        keep = pc.invert(pc.is_in(origin.partitions, value_set=pa.array(list(blocked), pa.int32())))
        return batch.where(keep) if pc.any(keep).as_py() else None

    def convert_dead_letters(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Make rows of the poll's dead letters; a partition whose letters have no table yet is held."""
        table = self._config.dead_letter_table
        found: list[DeadLetter] = []
        for tp, dead_letters in list(self._poll.dead_letters.items()):
            if table is None or tp not in consumed or not self._state.is_reading(tp):
                continue
            if self._state.is_skipped(table):
                raise ConnectError(f"dead letters have nowhere to go: table {table} is left out as missing")
            if self._state.filter_position(table, tp) is None or self._state.answer(table) is None:
                self._actions.hold_partition(
                    tp, BlockedPartition(table, Need.CREATE, self._dead_letter_rows.creation(self._config))
                )
                continue
            start = self._state.next_offset(tp)
            found += [dead_letters[offset] for offset in sorted(dead_letters) if start <= offset < consumed[tp]]
        for batch in self._dead_letter_rows.batches(found):
            try:
                self._poll.converted.append(self._convert(Routed(table or "", batch)))
            except BadRows as bad:
                row, error = min(bad.errors.items())
                raise ConnectError(f"the dead letter of {place(batch, row)} does not fit its table: {error}") from error
