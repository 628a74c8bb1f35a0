"""`SourceProgress`: positions of partitions and tables in one epoch, with floors and rewinds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from connectors.iceberg.protocol.actions import (
    CoordinatorAction,
    EpochEndedError,
    Send,
    Stop,
    failed,
)
from connectors.iceberg.protocol.last_commits import LastCommits
from connectors.iceberg.protocol.ledger import Ledger, Lookup, TableVersion
from connectors.iceberg.protocol.messages import Attachment, Range, Release, Rewind, TableNeed
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import Bounds, Epoch, Position, TopicPartition
from connectors.iceberg.protocol.rules import PROTOCOL_RULES, ProtocolRules


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Settings for one run of a coordinator."""

    cluster: str  # ID of the Kafka cluster that contains the source topics
    start_number: int  # start number from the task's context (`SinkTaskContext.start_number`)
    commit_interval_ms: int
    commit_timeout_ms: int
    dynamic: bool = False  # True if rows may be routed to tables that are not in the configuration
    new_topic_allowed: bool = False  # True if a re-created topic is read from its start
    # True if rows for a table that cannot be opened are skipped, so the floor does not wait for it
    skip_missing: bool = False
    # same as `skip_missing`, but for tables that never existed and appear only in records
    skip_unknown: bool = False
    bounds: Bounds | None = None  # None if the connector does not stop automatically
    max_tries: int = 5  # maximum number of commit attempts per table and cycle
    retry_delay_ms: int = 500


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Topic ID and log ranges of all partitions, as described by the cluster."""

    id: str
    log_starts: tuple[int, ...]
    log_ends: tuple[int, ...] | None = None
    described_ms: int | None = None  # Unix time at which the ends were requested


@dataclass(frozen=True, slots=True)
class TableAge:
    """Freshness of a table."""

    through_ms: int | None  # Unix time up to which the table has all records, or None if unknown
    complete: bool  # True if the table has reached the known end of every partition


@dataclass(slots=True)
class PartitionState:
    """Progress of one partition in this epoch."""

    topic_id: str
    generation: int
    log_start: int
    applied: int  # end of the last range that a cycle has processed
    accepted: int  # end of the last accepted range
    # epoch number in the metadata that the group offset had when this epoch started
    mark_epoch: int | None = None
    rewind: int = 0
    # highest floor that was sent to tasks after each rewind, by rewind number; tasks may commit
    # these floors
    sent_floors: list[int] = field(default_factory=lambda: [0])
    described: bool = True  # False if the partition no longer exists, so no report is expected
    owned: bool = True  # False if the partition was added later and no task has attached it yet
    end: int = 0  # log end offset in the last description of the topic
    end_ms: int | None = None  # Unix time of that description
    through_ms: int | None = None  # Unix time of the latest record that a cycle has processed
    queue: deque[Range] = field(default_factory=deque)

    def update_end(self, info: TopicInfo, number: int) -> None:
        """Update the end of the log if the description contains it."""
        if info.log_ends is not None:
            self.end, self.end_ms = info.log_ends[number], info.described_ms


@dataclass(slots=True)
class TableState:
    """State of one table in this epoch."""

    version: TableVersion
    ledger: Ledger | None
    opened: dict[TopicPartition, Position]  # start positions of the table, stored in the property
    needs: dict[TopicPartition, int]  # offset from which the table needs rows (E)
    bases: dict[TopicPartition, int]  # `base` of the entries in the next ledger
    # True if commits must wait until the group offsets are at or below `needs` (rule 8 of the
    # commit protocol)
    awaits_lowered_group: bool
    answer: str | None = None
    missing: bool = False
    committed: bool = False  # True after the first commit in this epoch
    failures: int = 0  # consecutive failed cycles

    @property
    def uuid(self) -> str:
        """UUID of the table."""
        return self.version.uuid


class SourceProgress:
    """Partitions and tables of one epoch, shared by `CoordinatorState` and its parts."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        epoch: Epoch,
        rules: ProtocolRules = PROTOCOL_RULES,
    ) -> None:
        self.settings = settings
        self.rules = rules
        self.epoch = epoch
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.tables: dict[str, TableState] = {}
        self.commits = LastCommits()

    def begin(
        self,
        topics: Mapping[str, TopicInfo],
        group: Mapping[TopicPartition, GroupOffset],
        lookups: Mapping[str, Lookup],
        *,
        has_missing_table: bool,
    ) -> None:
        """Determine the start position of every partition."""
        for topic, info in topics.items():
            for number in range(len(info.log_starts)):
                partition = TopicPartition(topic, number)
                state = self._start(partition, info, group, lookups, has_missing_table)
                self.partitions[partition] = state
                state.update_end(info, number)

    def _start(
        self,
        partition: TopicPartition,
        info: TopicInfo,
        group: Mapping[TopicPartition, GroupOffset],
        lookups: Mapping[str, Lookup],
        has_missing_table: bool,
    ) -> PartitionState:
        """Start a partition at its group offset, the lowest ledger position, or the log start.

        The first available position applies. A group offset is available only if it has the sink's
        metadata (rule 4).
        """
        log_start = info.log_starts[partition.partition]
        ledgers = [lookup.ledger for lookup in lookups.values() if lookup.ledger]
        topic_ledgers = [
            ledger.topics[partition.topic] for ledger in ledgers if partition.topic in ledger.topics
        ]
        offset = group.get(partition)
        mark = offset.mark if offset else None
        recorded_ids = [topic.topic_id for topic in topic_ledgers]
        if mark is not None:
            recorded_ids.append(mark.topic_id)
        is_new_topic = not all(self.rules.is_same_topic(id_, info.id) for id_ in recorded_ids)
        if is_new_topic and not self.settings.new_topic_allowed:
            raise failed(
                f"topic {partition.topic} was deleted and created again (its ID is now {info.id}); "
                "to read the new topic from its start, set iceberg.ext.recreated-topic=restart"
            )
        optional_entries = [
            topic.partitions.get(partition.partition)
            for topic in topic_ledgers
            if self.rules.is_same_topic(topic.topic_id, info.id)
        ]
        entries = [entry for entry in optional_entries if entry is not None]
        has_all_tables = (
            entries
            and not has_missing_table
            and not self.settings.dynamic
            and len(entries) == len(lookups)
        )
        if offset and mark and self.rules.is_same_topic(mark.topic_id, info.id):
            first = offset.offset
            if self.rules.is_deleted(first, log_start):
                # harmless if all tables already have the deleted records
                if has_all_tables and all(e.generation == mark.generation for e in entries):
                    first = min(entry.next for entry in entries)
                self._check_log(partition, first, log_start)
            return PartitionState(
                info.id, mark.generation, log_start, first, first, mark.epoch.number
            )
        if (
            offset
            and mark is None
            and self.rules.accepts_offsets_without_metadata(
                has_ledger=bool(ledgers), has_metadata=any(o.mark for o in group.values())
            )
        ):
            first = max(offset.offset, log_start)
            return PartitionState(info.id, 0, log_start, first, first)
        generation = max(
            (entry.generation for entry in entries), default=mark.generation if mark else 0
        )
        lowest = min(
            (entry.next for entry in entries if entry.generation == generation), default=log_start
        )
        self._check_log(partition, lowest, log_start)
        start = lowest if has_all_tables else log_start
        return PartitionState(info.id, generation, log_start, start, start)

    def check_ends(self, name: str, lookup: Lookup, log_ends: Mapping[TopicPartition, int]) -> None:
        """Fail if a ledger is beyond the end of the log, because new rows would be dropped."""
        for partition, end in log_ends.items():
            state = self.partitions.get(partition)
            entry = (
                lookup.ledger.entry(partition, state.topic_id) if lookup.ledger and state else None
            )
            if state and entry and entry.generation == state.generation and entry.next > end:
                raise failed(
                    f"table {name}: the ledger contains {partition} up to offset {entry.next}, but "
                    f"the log ends at {end}, so new rows would be dropped; alter the offsets of "
                    "the connector to continue at the end of the log"
                )

    def describe(self, topics: Mapping[str, TopicInfo]) -> None:
        """Add new partitions from a description of the topics, and detect re-created topics."""
        added = []
        for topic, info in topics.items():
            for number, log_start in enumerate(info.log_starts):
                partition = TopicPartition(topic, number)
                state = self.partitions.get(partition)
                if state is None:
                    state = PartitionState(info.id, 0, log_start, log_start, log_start, owned=False)
                    self.partitions[partition] = state
                    added.append(partition)
                elif not self.rules.is_same_topic(info.id, state.topic_id):
                    raise EpochEndedError(Stop(f"topic {topic} was deleted and created again"))
                else:
                    state.log_start = log_start
                self.partitions[partition].update_end(info, number)
        for partition, state in self.partitions.items():
            current_info = topics.get(partition.topic)
            state.described = current_info is not None and partition.partition < len(
                current_info.log_starts
            )
        for partition in added:
            for table in self.tables.values():
                start = self.partitions[partition].applied
                table.needs[partition] = table.bases[partition] = start
                table.opened[partition] = Position(0, start)

    def attachment(self, partition: TopicPartition) -> Attachment:
        """Return the complete state of a partition for a task."""
        state = self.partitions[partition]
        needs = {
            name: TableNeed(table.uuid, table.needs[partition])
            for name, table in self.tables.items()
            if self.rules.is_open(is_missing=table.missing)
        }
        floor = self.floor_to_send(partition)
        bounds = self.settings.bounds
        bound = None if bounds is None else bounds.of(partition)
        return Attachment(
            state.topic_id, state.generation, state.accepted, floor, state.rewind, needs, bound
        )

    def floor_to_send(self, partition: TopicPartition) -> int:
        """Return a partition's floor, and record that it is sent.

        A task may commit the floor for the consumer group at any later time.
        """
        state = self.partitions[partition]
        floor = self.floor(partition)
        state.sent_floors[-1] = max(state.sent_floors[-1], floor)
        return floor

    def releases(self) -> dict[TopicPartition, Release]:
        """Return the floors of all partitions for the tasks."""
        return {p: Release(self.floor_to_send(p), s.rewind) for p, s in self.partitions.items()}

    def encoded_commits(self) -> str:
        """Return the encoded last commits of the tables for the offset metadata."""
        return self.commits.to_text(len(self.partitions))

    def floor(self, partition: TopicPartition) -> int:
        """Return the offset below which all opened tables are complete (rule 20)."""
        tables = self.tables.values()
        return self.rules.floor(
            self.partitions[partition].applied,
            [table.needs[partition] for table in tables if not table.missing],
            [table.needs[partition] for table in tables if table.missing],
        )

    def misses_rows(self, partition: TopicPartition, position: int, log_start: int) -> bool:
        """Return True if required rows have been deleted from the log (rules 28 and 35)."""
        bounds = self.settings.bounds
        is_required = bounds is None or position < bounds.of(partition).end
        return is_required and self.rules.is_deleted(position, log_start)

    def _check_log(self, partition: TopicPartition, position: int, log_start: int) -> None:
        """Fail if a position is below the start of the log (rule 28)."""
        if self.misses_rows(partition, position, log_start):
            raise failed(
                f"{partition} continues at offset {position}, but the log starts at {log_start}, "
                "so rows are lost; alter the offsets of the connector to continue at the log start"
            )

    def remaining(self) -> int:
        """Return the number of offsets between the floors and the bounds, or 0 without bounds."""
        bounds = self.settings.bounds
        if bounds is None:
            return 0
        return sum(
            max(0, bounds.of(partition).end - self.floor(partition))
            for partition in self.partitions
        )

    def is_below_sent_floor(self, needs: Mapping[TopicPartition, int]) -> bool:
        """Return True if a floor above an offset that a table needs has been sent (rule 8)."""
        return any(
            needed < max(self.partitions[partition].sent_floors)
            for partition, needed in needs.items()
        )

    def is_lowered(
        self, offset: GroupOffset | None, partition: TopicPartition, needed: int
    ) -> bool:
        """Return True if the group offset is and remains at or below the needed offset (rule 8).

        The owner has applied the rewind whose number is in the offset's metadata, so it no longer
        commits floors that it received before this rewind.
        """
        if offset is None or offset.mark is None:
            return False
        state, mark = self.partitions[partition], offset.mark
        if mark.epoch != self.epoch or mark.topic_id != state.topic_id:
            return False
        sent_floors = state.sent_floors[mark.rewind :]
        return self.rules.highest_committable(offset.offset, sent_floors) <= needed

    def is_behind(self, table: TableState) -> bool:
        """Return True if the ledger of a table does not reflect a deliberate rewind or skip yet.

        Such a table receives a commit even if there are no files.
        """
        if table.ledger is None:
            return False
        entries = [
            (table.ledger.entry(p, state.topic_id), state) for p, state in self.partitions.items()
        ]
        return any(
            entry is not None and entry.generation < state.generation for entry, state in entries
        )

    def rewind_where_needed(
        self, unopened: Mapping[TopicPartition, int] | None = None
    ) -> list[CoordinatorAction]:
        """Rewind partitions if a table needs rows from below the applied position (rule 20).

        Args:
            unopened: By partition, the offset to read again because its rows are for a table that
                has not been opened.
        """
        attachments: dict[TopicPartition, Attachment] = {}
        for partition, state in self.partitions.items():
            lowest = min(self.floor(partition), (unopened or {}).get(partition, state.applied))
            if self.rules.must_be_read_again(lowest, state.applied):
                state.applied = state.accepted = lowest
                state.through_ms = None
                state.queue.clear()
                state.rewind += 1
                state.sent_floors.append(0)
                attachments[partition] = self.attachment(partition)
        if not attachments:
            return []
        return [Send(Rewind(self.epoch, None, attachments, self.encoded_commits()))]

    def ages(self) -> dict[str, TableAge]:
        """Return the freshness of all existing tables, including tables that receive no rows."""
        return {name: self._age(table) for name, table in self.tables.items() if not table.missing}

    def _age(self, table: TableState) -> TableAge:
        """Return the freshness of a table.

        Unlike the time in a snapshot, the result also covers partitions that have not reported.
        """
        optional_times: list[int | None] = []
        complete = True
        for partition, state in self.partitions.items():
            if not state.described:
                continue
            needed = table.needs[partition]
            is_at_end = state.end_ms is not None and state.end <= needed
            complete = complete and is_at_end
            read_ms = state.through_ms if needed >= state.applied else None
            optional_times.append(latest(read_ms, state.end_ms if is_at_end else None))
        times = [time for time in optional_times if time is not None]
        is_known = bool(times) and len(times) == len(optional_times)
        return TableAge(min(times) if is_known else None, complete)


def latest(*times: int | None) -> int | None:
    """Return the latest of the known times, or None if no time is known."""
    return max((time for time in times if time is not None), default=None)
