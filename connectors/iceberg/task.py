"""`IcebergSinkTask`: stages rows as Parquet, and does what the coordinator says about them.

Everything happens on the task thread. A poll is taken whole or, partition by partition, not at all: its rows are
converted as they come, and staged at its end together with its dead letters, because rows of one partition that went
to several topics come one batch after the other. Then, and on every idle call of `put`, the channel is read.
`TaskState` decides; this module carries out. Task 0 also owns the coordinator.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import (
    BadRows,
    ConnectError,
    DataError,
    FailureReason,
    NotColumnar,
    NotFoundError,
    RetriableError,
)
from connect_py.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from connect_py.api.task import SinkTask
from connectors.iceberg.channel.channel_topic import ChannelReader, ChannelWriter, create_channel
from connectors.iceberg.channel.control_events import EventPublisher, EventWriter
from connectors.iceberg.config.sink_config import (
    CHANGELOG_SUFFIX,
    FAIL_AFTER_WAITING,
    MAX_STAGED_BYTES,
    UNKNOWN_VALUE,
    IcebergSinkConfig,
    Unrouted,
)
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.retry_tracker import COORDINATOR, table_to_open
from connectors.iceberg.coordinator.table_manager import TableManager
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.faults import fault_point
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.actions import (
    CloseFiles,
    DescribeTopics,
    Discard,
    Fail,
    Pause,
    RequestCommit,
    Resume,
    Seek,
    Send,
    TaskAction,
)
from connectors.iceberg.protocol.messages import CommitComplete, Need, OpenTable, TableOpened
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed, Router
from connectors.iceberg.schema.table import TableRequest
from connectors.iceberg.staging.key_changes import WAITING, KeyChangeWaits, UnreadPair
from connectors.iceberg.staging.schemaless_lists import evened
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.staging.table_stager import StagedRows

log = logging.getLogger(__name__)

ASK_SECONDS = 5.0  # between questions for a table that nothing waits for yet
UNROUTED_SECONDS = 60.0  # between warnings about rows without a table
STOP_SECONDS = 4.0  # for the coordinator; the worker allows 5 s for the whole task


class _Blocked(NamedTuple):
    """Why a partition must be held."""

    table: str
    need: Need
    request: str


class _Converted(NamedTuple):
    """One table's rows of a batch, ready to be staged."""

    table: str
    rows: StagedRows | None  # None: all were filtered away
    firsts: Mapping[TopicPartition, int | None]  # offset of the first row left, per partition met

    def without(self, partition: TopicPartition) -> _Converted:
        if partition not in self.firsts:
            return self
        firsts = {tp: first for tp, first in self.firsts.items() if tp != partition}
        return _Converted(self.table, None if self.rows is None else self.rows.without(partition), firsts)


@dataclass(slots=True)
class _Poll:
    """What the poll that is being worked on brought so far."""

    converted: list[_Converted] = field(default_factory=list)
    dead_letters: dict[TopicPartition, dict[int, DeadLetter]] = field(default_factory=dict)  # the last of each offset
    latest: dict[TopicPartition, int] = field(default_factory=dict)  # timestamp

    def drop(self, partition: TopicPartition) -> None:
        """Its rows come again, to us or to another task."""
        self.converted = [item.without(partition) for item in self.converted]
        self.dead_letters.pop(partition, None)
        self.latest.pop(partition, None)


class IcebergSinkTask(SinkTask):
    """One task of the Iceberg sink."""

    def start(self, props: Mapping[str, str]) -> None:
        config = IcebergSinkConfig.parse(props)
        context = self.context
        self._metrics = IcebergMetrics(context.metrics)
        self._config = config
        self._name = f"{config.connector}-{context.task}"
        cycles = config.max_staged_cycles
        self._state = TaskState(self._name, context.start_number, lambda: uuid.uuid4().hex, max_staged_cycles=cycles)
        self._router = Router(config)
        self._stage = Stage(config, self._name, context.partition_count)
        self._poll = _Poll()
        self._dead_letter_rows = DeadLetterRows(config.connector, context.task, props)
        self._unrouted = 0  # rows since the start that no table took
        self._tell_unrouted_at = 0.0
        self._ask_again_at: dict[str, float] = {}  # by table that was asked for ahead of need
        self._renewed_at = 0  # when credentials to the storage were last looked at
        self._broken = False  # what is staged is not what the state says: nothing is reported any more
        self._offered = False  # offsets went to the group
        self._coordinator: Coordinator | None = None
        self._key_waits = KeyChangeWaits(config.key_change_wait_ms)
        self._awaited: frozenset[str] = frozenset()  # tables, as last reported
        context.bound_waiting(config.fail_after_waiting_ms, FAIL_AFTER_WAITING)
        create_channel(context.client_config, config.channel_topic)
        self._reader = ChannelReader(context.client_config, config.channel_topic)
        self._reader.start_at_end()
        self._writer = ChannelWriter(context.client_config, config.channel_topic)
        if context.task == 0:
            writer = EventWriter(context.client_config, config.control_topic, config.kafka)
            events = EventPublisher(config.connect_group, config.catalog_name, writer)
            tables = TableManager(config, events, self._metrics, context)
            tables.request()
            self._coordinator = Coordinator(config, context, tables, events, self._metrics)
            self._coordinator.start()

    def stop(self) -> None:
        coordinator = getattr(self, "_coordinator", None)
        if coordinator is not None:
            coordinator.stop(STOP_SECONDS)
        for name in ("_writer", "_reader", "_stage"):
            blocked = getattr(self, name, None)  # a failed start may not have come this far
            if blocked is not None:
                blocked.close()

    # --- partitions

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        topic_ids = self._topic_ids({p.topic for p in partitions}) or {}  # asked again while we wait to be attached
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
        self._carry_out(self._state.assign(ids, {p: marks.get(p) for p in partitions}, _now_ms()))

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._end_key_wait(partition)
        self._carry_out(self._state.revoke(partitions))

    def position_lost(self, partition: TopicPartition) -> bool:
        """Nothing is passed over in silence: the coordinator knows whether a table still needs what is gone."""
        log.warning("the log of %s does not hold the next offset any more; the coordinator is asked again", partition)
        self._carry_out(self._state.position_lost(partition, _now_ms()))
        return True

    # --- rows

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            self._turn()
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
                self._report_shapeless(records[0], error)
                return
            middle = len(records) // 2
            self.put(records[:middle])
            self.put(records[middle:])
            return
        for batch in batches:
            self.put_batch(batch)

    def _report_shapeless(self, record: SinkRecord, why: NotColumnar) -> None:
        """Report a record, unless its turn is over or has not come."""
        empty = record.replace(key_schema=None, key=None, value_schema=None, value=None)
        self._check_whole()
        for batch in Batch.of([empty]):
            rest = self._handleable(batch)
            if rest is not None:
                error = DataError(f"no column can hold the record: {why}")
                self._report(rest, BadRows({0: error}), FailureReason.DOES_NOT_FIT)

    def put_batch(self, batch: Batch) -> None:
        """Convert the rows that their tables still need; hold a partition whose rows cannot be staged yet."""
        self._check_whole()
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

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Keep a letter until its poll ends; records of partitions that wait come again."""
        partition, offset = dead_letter.origin.topic_partition, dead_letter.origin.offset
        limit = self._key_waits.limit(partition)
        if limit is not None and offset >= limit:
            return
        if self._state.is_reading(partition) and offset >= self._state.next_offset(partition):
            self._poll.dead_letters.setdefault(partition, {})[offset] = dead_letter

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Stage what the poll brought, and its dead letters: from now on everything below `consumed` is handled."""
        self._check_whole()
        self._convert_dead_letters(consumed)
        consumed = self._stop_at_unread_pairs(consumed)
        self._broken = True
        for converted in self._poll.converted:
            self._add(converted)
        self._broken = False
        for tp, following in consumed.items():
            if self._state.is_reading(tp):
                self._state.advance(tp, following, self._poll.latest.get(tp))
        self._poll = _Poll()
        self._hold_at_unread_pairs()
        self._turn()

    # --- changed keys

    def _stop_at_unread_pairs(self, consumed: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Drop the poll's rows of partitions that have to stop within them; returns up to where the others are handled.

        A staged file cannot be cut: such a partition is read once more, up to the insert that has to wait.
        """
        found = self._unread_pairs()
        for partition, unread in found.items():
            self._key_waits.begin(partition, unread, _now_ms())
            self._carry_out([Seek(partition, self._state.next_offset(partition))])
        limits = {tp: self._key_waits.limit(tp) for tp in consumed}
        return {
            tp: following if (limit := limits[tp]) is None else min(following, limit)
            for tp, following in consumed.items() if tp not in found
        }  # fmt: skip

    def _unread_pairs(self) -> dict[TopicPartition, UnreadPair]:
        """By partition, the first insert of the poll whose delete was not read, nor is in what may be staged of it."""
        items = [item.rows for item in self._poll.converted if item.rows is not None and item.rows.pairs]
        found: dict[TopicPartition, UnreadPair] = {}
        while items:
            read = sum((item.deletes(found) for item in items), Counter[str]())
            more = {
                partition: unread
                for item in items
                for partition, unread in item.stager.unread(item, read + item.stager.known_pairs())
                if partition not in found or unread.offset < found[partition].offset
            }
            if not more:
                break
            found |= more
        return found

    def _hold_at_unread_pairs(self) -> None:
        for partition in self._key_waits.partitions():
            unread = self._key_waits.unread(partition)
            if self._state.is_reading(partition) and self._state.next_offset(partition) >= unread.offset:
                request = TableRequest(None, "a changed key").to_text()
                self._carry_out(self._state.hold(partition, unread.table, Need.PAIR, request, _now_ms()))
                self.context.waits(WAITING, f"{partition} stops at {unread.offset}: the delete of {unread.keys} comes")

    def _look_after_key_waits(self) -> None:
        """Go on with partitions whose delete was read; give up those that wait in vain."""
        if not self._key_waits:
            return
        self._stage.renew(self._state.answer)
        for partition in self._key_waits.read(self._stage.known_pairs, self._state.filter_position):
            self._end_key_wait(partition)
        at = self._state.read_to, self._state.committed_to
        for partition in self._key_waits.in_vain(_now_ms(), self._ends_of_others, *at):
            unread = self._key_waits.unread(partition)
            others = ", ".join(str(other.partition) for other in self._others(partition))
            why = (
                f"table {unread.table}: the key {unread.keys} was changed (old, new): {partition} has the insert at "
                f"offset {unread.offset}, which lacks values of the old row, and no delete of the old key was read "
                f"from the partitions {others or partition.partition}"
            )
            if not self._config.null_unknown:
                raise ConnectError(f"{why}; {UNKNOWN_VALUE}=null would go on without them")
            log.warning("%s: they are null", why, extra={"action": "values_unavailable", "table": unread.table})
            self._stage.stage_alone(unread.table, partition, unread.offset)
            self._end_key_wait(partition)

    def _end_key_wait(self, partition: TopicPartition) -> None:
        self._key_waits.end(partition)
        self._carry_out(self._state.release(partition))
        if not self._key_waits:
            self.context.waits(WAITING, None)

    def _others(self, partition: TopicPartition) -> list[TopicPartition]:
        count = self.context.partition_count(partition.topic)
        return [tp for n in range(count) if (tp := TopicPartition(partition.topic, n)) != partition]

    def _ends_of_others(self, partition: TopicPartition) -> Mapping[TopicPartition, int] | None:
        try:
            return {tp: end for tp, (_, end) in self.context.log_range(self._others(partition)).items()}
        except RetriableError as error:
            log.warning("the ends of topic %s are not known now: %s", partition.topic, error)
            return None

    def _convert_dead_letters(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Make rows of the poll's dead letters; a partition whose letters have no table yet is held."""
        table = self._config.dead_letter_table
        found: list[DeadLetter] = []
        for tp, dead_letters in list(self._poll.dead_letters.items()):
            if table is None or tp not in consumed or not self._state.is_reading(tp):
                continue
            if self._state.is_skipped(table):
                raise ConnectError(f"dead letters have nowhere to go: table {table} is left out as missing")
            if self._state.filter_position(table, tp) is None or self._state.answer(table) is None:
                self._hold_partition(tp, _Blocked(table, Need.CREATE, self._dead_letter_rows.creation(self._config)))
                continue
            start = self._state.next_offset(tp)
            found += [dead_letters[offset] for offset in sorted(dead_letters) if start <= offset < consumed[tp]]
        for batch in self._dead_letter_rows.batches(found):
            try:
                self._poll.converted.append(self._convert(Routed(table or "", batch)))
            except BadRows as bad:
                row, error = min(bad.errors.items())
                raise ConnectError(
                    f"the dead letter of {_place(batch, row)} does not fit its table: {error}"
                ) from error

    def _handleable(self, batch: Batch) -> Batch | None:
        """The rows that may be handled now.

        Partitions that wait for the coordinator will be read again; rows below the position come again when an error
        of ours made the worker repeat the batch.
        """
        partitions, offsets = batch.origin.partitions, batch.origin.offsets
        keep: pa.BooleanArray | None = None
        for partition, first in _first_offsets(partitions, offsets).items():
            tp = TopicPartition(batch.origin.topic, partition)
            following = self._state.next_offset(tp) if self._state.is_reading(tp) else None
            limit = self._key_waits.limit(tp)
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

    def _convert_rows(self, batch: Batch) -> tuple[Batch | None, dict[int, _Blocked]]:
        """Convert a batch whole, or nothing of it; bad rows are reported and left out first.

        Returns the rows that are left, and the partitions that must be held: then nothing was converted.
        """
        rest: Batch | None = batch
        while rest is not None:
            reason = FailureReason.UNROUTED
            try:
                routing = self._router.route(rest)
                wanted, lost = self._with_tables(self._with_changelogs(routing.routed))
                reason = FailureReason.DOES_NOT_FIT
                blocked = self._needs(wanted)
                if not blocked:
                    self._poll.converted += [self._convert(routed) for routed in wanted]
                    if routing.unrouted or lost:
                        self._count_unrouted(batch.topic, routing.unrouted + lost)
                return rest, blocked
            except BadRows as bad:
                rest = self._report(rest, bad, reason)
        return None, {}

    def _with_changelogs(self, routed: Sequence[Routed]) -> Sequence[Routed]:
        """The same rows once more for the tables that hold the changes of the others.

        Raises:
            ConnectError: A table's own name is one of a changelog, so what it holds would not be clear.
        """
        suffix = self._config.changelog_suffix
        if suffix is None:
            return routed
        for item in routed:
            if self._config.is_changelog(item.table):
                raise ConnectError(
                    f"rows are routed to {item.table}, whose name is one of a changelog: set another {CHANGELOG_SUFFIX}"
                )
        return [*routed, *(Routed(item.table + suffix, item.batch, item.rows) for item in routed)]

    def _with_tables(self, routed: Sequence[Routed]) -> tuple[list[Routed], int]:
        """What goes to tables that are there, and how many rows go to others: they count as those without a table.

        Raises:
            BadRows: Rows for missing tables, if those without a table are dead letters.
        """
        found, lost = [], 0
        for item in routed:
            if self._state.is_uncreated(item.table):
                rest = item.without_tombstones()  # which say nothing about a table that was never there
                if rest is not None:
                    found.append(rest)
            elif not self._state.is_skipped(item.table):
                found.append(item)
            elif self._config.unrouted is Unrouted.DLQ and not self._config.skip_missing:
                error = DataError(f"table {item.table} does not exist")
                raise item.in_whole_batch(BadRows(dict.fromkeys(range(len(item.batch)), error)))
            else:
                lost += len(item.batch)
        return found, lost

    def _count_unrouted(self, topic: str, rows: int) -> None:
        """Say now and then, not for every batch, that rows went nowhere."""
        self._unrouted += rows
        self._metrics.unrouted(topic, rows)
        now = time.monotonic()
        if now >= self._tell_unrouted_at:
            self._tell_unrouted_at = now + UNROUTED_SECONDS
            log.warning(
                "no table takes %d rows so far, the latest of topic %s; iceberg.ext.unrouted says what becomes of them",
                self._unrouted, topic, extra={"action": "unrouted"},
            )  # fmt: skip

    def _needs(self, routed: Sequence[Routed]) -> dict[int, _Blocked]:
        """Which partitions must be held, because a table is not open, or lacks columns.

        All tables that are not open are asked for at once. A partition waits for the last of them, because answers
        come in the order of the questions.

        Raises:
            BadRows: Rows that cannot create a missing table, or that need a change which makes dead letters.
        """
        epoch = self._epoch()
        blocked: dict[int, _Blocked] = {}
        closed_tables: list[_Blocked] = []
        for item in routed:
            if item.table == self._config.dead_letter_table:
                raise ConnectError(f"rows are routed to {item.table}, which is for dead letters")
            lacking: str | None = None
            topic = item.batch.origin.topic
            answer = self._state.answer(item.table)
            partitions = pc.unique(item.batch.origin.partitions).to_pylist()
            closed = [
                p for p in partitions if self._state.filter_position(item.table, TopicPartition(topic, p)) is None
            ]
            if closed or answer is None:
                if self._state.is_uncreated(item.table):
                    refused = self._stage.not_creating(item.table, item.batch)
                    if refused is not None:
                        raise item.in_whole_batch(refused)
                why = _Blocked(item.table, Need.CREATE, self._stage.creation(item.table, item.batch))
                closed_tables.append(why)
                blocked.update(dict.fromkeys(closed if answer is not None else partitions, why))
            if answer is not None and len(closed) < len(partitions):
                try:
                    lacking = self._stage.lacks(item.table, answer, epoch, item.batch)
                except BadRows as bad:
                    raise item.in_whole_batch(bad) from bad
            if lacking is not None:
                for partition in partitions:
                    blocked.setdefault(partition, _Blocked(item.table, Need.EVOLVE, lacking))
        for why in closed_tables[:-1]:
            self._ask_ahead(why)
        return blocked

    def _ask_ahead(self, why: _Blocked) -> None:
        """Ask for a table that no partition waits for yet; again only after a while."""
        now = time.monotonic()
        if now >= self._ask_again_at.get(why.table, now):
            self._ask_again_at[why.table] = now + ASK_SECONDS
            self._carry_out([Send(OpenTable(self._name, self._epoch(), why.table, why.need, why.request))])

    def _convert(self, routed: Routed) -> _Converted:
        """Convert one table's rows, those below its position left out by one comparison; nothing is staged yet.

        Raises:
            BadRows: By their index in the batch that was routed.
        """
        epoch, batch = self._epoch(), routed.batch
        origin = batch.origin
        firsts: dict[TopicPartition, int | None] = {}
        keep: pa.BooleanArray | None = None
        for partition, first in _first_offsets(origin.partitions, origin.offsets).items():
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
            return _Converted(routed.table, None, firsts)
        if keep is None:
            return _Converted(routed.table, self._convert_where(routed, answer, epoch, None), firsts)
        lacking = pc.and_not(self._dead_letters_lack(routed), keep)
        if pc.any(lacking).as_py():  # who died between the two commits left rows in the table, and no letters of others
            self._convert_where(routed, answer, epoch, lacking)
        if not pc.any(keep).as_py():
            return _Converted(routed.table, None, firsts)
        return _Converted(routed.table, self._convert_where(routed, answer, epoch, keep), firsts)

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

    def _add(self, converted: _Converted) -> None:
        if converted.rows is not None:
            self._stage.add(converted.rows)
        for tp, first in converted.firsts.items():
            self._state.handled(tp, converted.table, first)

    def _epoch(self) -> Epoch:
        epoch = self._state.epoch
        if epoch is None:
            raise ConnectError("rows are handled before any coordinator was heard of")
        return epoch

    def _report(self, batch: Batch, bad: BadRows, reason: FailureReason) -> Batch | None:
        """Give bad rows to the reporter, which raises when nothing is tolerated; the rest goes on."""
        reporter = self.context.errant_record_reporter
        for row, error in sorted(bad.errors.items()):
            if isinstance(error, DataError):
                error.reason = error.reason or reason
            if reporter is None:
                raise DataError(f"{_place(batch, row)}: {error}") from error
            reporter.report_row(batch, row, error)
        keep = [True] * len(batch)
        for row in bad.errors:
            keep[row] = False
        return batch.where(pa.array(keep)) if any(keep) else None

    def _hold(self, batch: Batch, blocked: Mapping[int, _Blocked]) -> Batch | None:
        """Stop these partitions where the poll began; return the rows of the others."""
        origin = batch.origin
        for partition, why in blocked.items():
            self._hold_partition(TopicPartition(origin.topic, partition), why)
        keep = pc.invert(pc.is_in(origin.partitions, value_set=pa.array(list(blocked), pa.int32())))
        return batch.where(keep) if pc.any(keep).as_py() else None

    def _hold_partition(self, partition: TopicPartition, why: _Blocked) -> None:
        """Stop a partition where the poll began, and forget what the poll brought of it."""
        self._poll.drop(partition)
        self._carry_out(self._state.hold(partition, why.table, why.need, why.request, _now_ms()))

    # --- offsets

    def pre_commit(self, current: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The floor of every partition, with our mark: the group follows the tables and never leads."""
        if self._offered:  # the framework begins no commit before it knows how the last one ended
            fault_point("after_group_commit")
        for tp, following in current.items():
            if self._state.is_reading(tp):
                self._state.advance(tp, following)  # rows that transformations dropped are handled too
        self._turn()
        fault_point("before_group_commit")
        offsets = self._state.offsets_to_commit()
        self._offered = bool(offsets)
        return {tp: OffsetAndMetadata(at.offset, at.mark.to_text()) for tp, at in offsets.items() if at.mark}

    # --- the channel

    def _turn(self) -> None:
        """Read the channel, keep time, carry out."""
        self._check_whole()
        if self._coordinator is not None:
            self._coordinator.check()
        self._writer.poll()
        now = _now_ms()
        for message in self._reader.poll():
            self._carry_out(self._state.on_message(message, now))
            if isinstance(message, TableOpened):
                self._key_waits.answered(message.table)
            if isinstance(message, CommitComplete):
                self.context.request_commit()  # the group follows the tables at once, not a flush interval later
        self._carry_out(self._state.on_tick(now))
        self._tell_waiting()
        self._look_after_key_waits()
        self._renew_credentials(now)
        self._metrics.staged(self._state.staged_cycles)
        self._bound_staging()

    def _tell_waiting(self) -> None:
        """Say what keeps partitions of this task waiting; of task 0 the coordinator says more."""
        if self._coordinator is not None:
            return
        attached = self._state.is_attached()
        self.context.waits(COORDINATOR, None if attached else "no answer yet; the status of task 0 may tell why")
        awaited = self._state.awaited_tables()
        for table in self._awaited - awaited:
            self.context.waits(table_to_open(table), None)
        for table in awaited:
            self.context.waits(table_to_open(table), "no answer yet; the status of task 0 may tell why")
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
        self._carry_out(paused)

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

    def _carry_out(self, actions: Iterable[TaskAction]) -> None:
        for action in actions:
            match action:
                case Send(message):
                    self._writer.send([message])
                case Pause(partitions):
                    self.context.pause(*partitions)
                case Resume(partitions):
                    self.context.resume(*partitions)
                case Seek(partition, offset):
                    self._poll.drop(partition)
                    self.context.offset({partition: offset})
                case Discard(partition):
                    self._poll.drop(partition)
                    self._stage.discard(partition)
                case RequestCommit():
                    self.context.request_commit()
                case DescribeTopics():
                    topic_ids = self._topic_ids()
                    if topic_ids is not None:
                        self._carry_out(self._state.on_topic_ids(topic_ids, _now_ms()))
                case CloseFiles(cycle):
                    self._close_files(cycle)
                case Fail(reason):
                    raise ConnectError(reason)

    def _close_files(self, cycle: int) -> None:
        """Step 2: describe the topics again, close the files, report.

        The topics come first: no row is read meanwhile, and once files are closed nothing may stand between them and
        their report. When the cluster does not answer, or keys to the storage have ended and newer ones are on their
        way, the cycle goes without us and a later one takes the rows.

        Raises:
            ConnectError: The storage refuses; the task must not go on, its rows are read again by the next one.
        """
        epoch, topic_ids = self._state.epoch, self._topic_ids()
        if epoch is None or topic_ids is None:
            return
        fault_point("before_close_files")
        self._broken = True
        try:
            self._stage.renew(self._state.answer)
            ended = self._stage.ended()
            staged = {} if ended else self._stage.close_cycle(cycle)
        except (OSError, ConnectError) as error:
            raise ConnectError(f"staged files of cycle {cycle} cannot be written: {error}") from error
        self._broken = False
        if ended:
            log.warning(
                "rows wait for another cycle: keys to the storage that the catalog lent for %s have ended, and newer "
                "ones are not here yet", ", ".join(ended), extra={"action": "keys_ended"},
            )  # fmt: skip
            return
        fault_point("after_close_files")
        self._carry_out(self._state.report(cycle, staged, topic_ids, _now_ms()))
        fault_point("after_report")

    def _check_whole(self) -> None:
        """Refuse to go on after a batch was staged, or a cycle closed, in part.

        Offsets given up in a closing commit are read again by the next task; a report of now would hide rows.
        """
        if self._broken:
            raise ConnectError("staging broke off earlier; the task must start again")

    def _topic_ids(self, topics: Iterable[str] | None = None) -> dict[str, str] | None:
        """The ids of these topics, ours unless given, as the cluster describes them now.

        A topic that is gone has an empty id, which no topic has. None: the cluster does not answer.
        """
        found = {}
        for topic in topics if topics is not None else {p.topic for p in self.context.assignment()}:
            try:
                found[topic] = self.context.topic_id(topic)
            except NotFoundError:
                found[topic] = ""
            except RetriableError as error:
                log.warning("topic %s cannot be described now: %s", topic, error)
                return None
        return found


def _place(batch: Batch, row: int) -> str:
    origin = batch.origin
    return f"topic '{origin.topic}' partition {origin.partitions[row]} at offset {origin.offsets[row]}"


def _first_offsets(partitions: pa.Int32Array, offsets: pa.Int64Array) -> dict[int, int]:
    """The offset of each partition's first row, which is its lowest."""
    return {p: offsets[pc.index(partitions, p).as_py()].as_py() for p in pc.unique(partitions).to_pylist()}


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
