"""How far partitions have come, and what tables need of them: the floors, the marks and the
rewinds."""

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
from connectors.iceberg.protocol.bounds import Bounds
from connectors.iceberg.protocol.last_commits import LastCommits
from connectors.iceberg.protocol.ledger import Ledger, Lookup, TableVersion
from connectors.iceberg.protocol.messages import Attachment, Range, Release, Rewind, TableNeed
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition
from connectors.iceberg.protocol.rules import PROTOCOL_RULES, ProtocolRules


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What does not change during a coordinator's life."""

    cluster: str  # id of the Kafka cluster of the source topics
    start_number: int  # the worker's count of starts of this connector
    commit_interval_ms: int
    commit_timeout_ms: int
    dynamic: bool = False  # routes may name tables that the configuration does not
    new_topic_allowed: bool = False  # a re-created topic is read from its start instead of stopping
    # a table that cannot be opened leaves the floor, its rows are counted and lost
    skip_missing: bool = False
    skip_unknown: bool = False  # so does one that was never there: only records named it
    bounds: Bounds | None = None  # None: the connector does not stop by itself
    max_tries: int = 5  # of one table's commit within a cycle
    retry_delay_ms: int = 500


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it: its id and the log range of every partition."""

    id: str
    log_starts: tuple[int, ...]
    log_ends: tuple[int, ...] | None = None
    described_ms: int | None = None  # since 1970: when it was asked for these ends


@dataclass(frozen=True, slots=True)
class TableAge:
    """How old a table is."""

    through_ms: int | None  # since 1970: every record up to then is in; None: not known
    complete: bool  # every partition's log was seen to end where the table stands


@dataclass(slots=True)
class PartitionState:
    """How far one partition has come in this epoch."""

    topic_id: str
    generation: int
    log_start: int
    applied: int  # end of the last range that went through a cycle
    accepted: int  # end of the last range that was accepted
    mark_epoch: int | None = None  # of the group's mark that it started from
    rewind: int = 0
    # by rewind number: the highest floor that tasks may commit
    sent: list[int] = field(default_factory=lambda: [0])
    described: bool = True  # False: the cluster no longer names it, so no report is waited for
    owned: bool = True  # False: added a while ago, and no task has asked for it yet
    end: int = 0  # of the log, when it was described last
    end_ms: int | None = None  # since 1970: when that was
    through_ms: int | None = None  # since 1970: the latest record that went through a cycle
    queue: deque[Range] = field(default_factory=deque)

    def note_end(self, info: TopicInfo, number: int) -> None:
        if info.log_ends is not None:
            self.end, self.end_ms = info.log_ends[number], info.described_ms


@dataclass(slots=True)
class TableState:
    """What this epoch knows of one table."""

    version: TableVersion
    ledger: Ledger | None
    opened: dict[TopicPartition, Position]  # where the table began, for the property
    needs: dict[TopicPartition, int]  # E: the offset from which rows are still needed
    bases: dict[TopicPartition, int]  # where the next ledger's entries begin
    # opened below what the group may hold: no commit before the group is seen at or below `needs`
    guarded: bool
    answer: str | None = None
    missing: bool = False
    committed: bool = False  # by this epoch
    failures: int = 0  # cycles in a row

    @property
    def uuid(self) -> str:
        return self.version.uuid


class SourceProgress:
    """The partitions and tables of one epoch, shared by `CoordinatorState`, its cycle and the
    opening of tables."""

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
        unknown: bool,
    ) -> None:
        """Find out where every partition starts. `unknown`: some table does not exist."""
        for topic, info in topics.items():
            for number in range(len(info.log_starts)):
                partition = TopicPartition(topic, number)
                found = self._start(partition, info, group, lookups, unknown)
                self.partitions[partition] = found
                found.note_end(info, number)

    def _start(
        self,
        partition: TopicPartition,
        info: TopicInfo,
        group: Mapping[TopicPartition, GroupOffset],
        lookups: Mapping[str, Lookup],
        unknown: bool,
    ) -> PartitionState:
        """Where a partition starts: the group's mark, else the ledgers, else the log (rule 4)."""
        log_start = info.log_starts[partition.partition]
        ledgers = [found.ledger for found in lookups.values() if found.ledger]
        offset = group.get(partition)
        mark = offset.mark if offset else None
        topic_ledgers = [
            ledger.topics[partition.topic] for ledger in ledgers if partition.topic in ledger.topics
        ]
        recorded_ids = [topic.topic_id for topic in topic_ledgers]
        if mark is not None:
            recorded_ids.append(mark.topic_id)
        other_topic = not all(self.rules.is_same_topic(id_, info.id) for id_ in recorded_ids)
        if other_topic and not self.settings.new_topic_allowed:
            raise failed(
                f"topic {partition.topic} was deleted and created again (id {info.id} is not the "
                "one that was read before): allow the new topic to read it from its start"
            )
        entries = [
            topic.partitions.get(partition.partition)
            for topic in topic_ledgers
            if self.rules.is_same_topic(topic.topic_id, info.id)
        ]
        known = [entry for entry in entries if entry is not None]
        whole = known and not unknown and not self.settings.dynamic and len(known) == len(lookups)
        if offset and mark and self.rules.is_same_topic(mark.topic_id, info.id):
            first = offset.offset
            if self.rules.is_deleted(
                first, log_start
            ):  # the group is behind: do the tables have what retention removed?
                if whole and all(e.generation == mark.generation for e in known):
                    first = min(entry.next for entry in known)
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
            first = max(offset.offset, log_start)  # a migration
            return PartitionState(info.id, 0, log_start, first, first)
        generation = max(
            (entry.generation for entry in known), default=mark.generation if mark else 0
        )
        lowest = min(
            (entry.next for entry in known if entry.generation == generation), default=log_start
        )
        self._check_log(partition, lowest, log_start)
        start = lowest if whole else log_start
        return PartitionState(info.id, generation, log_start, start, start)

    def check_ends(self, name: str, lookup: Lookup, log_ends: Mapping[TopicPartition, int]) -> None:
        """Refuse a ledger above the end of the log: rows written from now on would count as
        known."""
        for partition, end in log_ends.items():
            state = self.partitions.get(partition)
            entry = (
                lookup.ledger.entry(partition, state.topic_id) if lookup.ledger and state else None
            )
            if state and entry and entry.generation == state.generation and entry.next > end:
                raise failed(
                    f"table {name} holds {partition} up to offset {entry.next}, but the log ends "
                    f"at {end}, so that new "
                    "rows would count as known: alter the connector's offsets to go on from the end"
                )

    def describe(self, topics: Mapping[str, TopicInfo]) -> None:
        """Take what the cluster says of the topics: partitions may have been added, a topic
        replaced."""
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
                self.partitions[partition].note_end(info, number)
        for partition, state in self.partitions.items():
            info_now = topics.get(partition.topic)
            state.described = info_now is not None and partition.partition < len(
                info_now.log_starts
            )
        for partition in added:
            for table in self.tables.values():
                start = self.partitions[partition].applied
                table.needs[partition] = table.bases[partition] = start
                table.opened[partition] = Position(0, start)

    def attachment(self, partition: TopicPartition) -> Attachment:
        state = self.partitions[partition]
        needs = {
            name: TableNeed(table.uuid, table.needs[partition])
            for name, table in self.tables.items()
            if not table.missing
        }
        floor = self.floor_to_send(partition)
        bounds = self.settings.bounds
        bound = None if bounds is None else bounds.of(partition)
        return Attachment(
            state.topic_id, state.generation, state.accepted, floor, state.rewind, needs, bound
        )

    def floor_to_send(self, partition: TopicPartition) -> int:
        """The floor, for a task: from now on it may be in the group."""
        state = self.partitions[partition]
        floor = self.floor(partition)
        state.sent[-1] = max(state.sent[-1], floor)
        return floor

    def releases(self) -> dict[TopicPartition, Release]:
        return {p: Release(self.floor_to_send(p), s.rewind) for p, s in self.partitions.items()}

    def commits_text(self) -> str:
        return self.commits.to_text(len(self.partitions))

    def floor(self, partition: TopicPartition) -> int:
        """The position below which all opened tables are complete (rule 20); a missing table still
        holds it."""
        return self.rules.floor(
            self.partitions[partition].applied,
            [table.needs[partition] for table in self.tables.values() if not table.missing],
            [table.needs[partition] for table in self.tables.values() if table.missing],
        )

    def misses_rows(self, partition: TopicPartition, position: int, log_start: int) -> bool:
        """Whether rows from a position on were wanted that the log does not hold any more (rules 28
        and 35)."""
        bounds = self.settings.bounds
        is_wanted = bounds is None or position < bounds.of(partition).end
        return is_wanted and self.rules.is_deleted(position, log_start)

    def _check_log(self, partition: TopicPartition, position: int, log_start: int) -> None:
        """Refuse a position below the start of the log (rule 28)."""
        if self.misses_rows(partition, position, log_start):
            raise failed(
                f"{partition} goes on at offset {position}, but the log starts at {log_start}: "
                "rows are lost. Alter the connector's offsets to go on from there"
            )

    def remaining(self) -> int:
        """How many offsets lie between the floors and the bounds; 0 also where there are no
        bounds."""
        bounds = self.settings.bounds
        if bounds is None:
            return 0
        return sum(
            max(0, bounds.of(partition).end - self.floor(partition))
            for partition in self.partitions
        )

    def is_below_a_sent_floor(self, needs: Mapping[TopicPartition, int]) -> bool:
        """Whether a floor that this epoch sent before a rewind lies above such needs (rule 8)."""
        return any(
            needed < max(self.partitions[partition].sent) for partition, needed in needs.items()
        )

    def is_lowered(
        self, offset: GroupOffset | None, partition: TopicPartition, needed: int
    ) -> bool:
        """Whether no owner of the group's offsets can pass `needed`, now or by a floor that it
        received last (rule 8).

        The owner follows the rewind that its mark names: floors sent before that one are forgotten.
        """
        if offset is None or offset.mark is None:
            return False
        state, mark = self.partitions[partition], offset.mark
        if mark.epoch != self.epoch or mark.topic_id != state.topic_id:
            return False
        return self.rules.highest_committable(offset.offset, state.sent[mark.rewind :]) <= needed

    def is_behind(self, table: TableState) -> bool:
        """Whether a user's rewind or skip is not in the table's ledger yet; a commit without files
        takes it there."""
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
        """A table needs rows from below what went through: drop the queue, read again from there
        (rule 20)."""
        rewound: dict[TopicPartition, Attachment] = {}
        for partition, state in self.partitions.items():
            lowest = min(self.floor(partition), (unopened or {}).get(partition, state.applied))
            if self.rules.must_be_read_again(lowest, state.applied):
                state.applied = state.accepted = lowest
                state.through_ms = None
                state.queue.clear()
                state.rewind += 1
                state.sent.append(0)
                rewound[partition] = self.attachment(partition)
        return [Send(Rewind(self.epoch, None, rewound, self.commits_text()))] if rewound else []

    def ages(self) -> dict[str, TableAge]:
        """How old tables are now, also those for which no rows come."""
        return {name: self._age(table) for name, table in self.tables.items() if not table.missing}

    def _age(self, table: TableState) -> TableAge:
        """As `_valid_through`, for what the table holds now, and as far as is known of partitions
        that are late."""
        times: list[int | None] = []
        complete = True
        for partition, state in self.partitions.items():
            if not state.described:
                continue
            needed = table.needs[partition]
            ended = state.end_ms is not None and state.end <= needed
            complete = complete and ended
            read_ms = state.through_ms if needed >= state.applied else None
            times.append(latest(read_ms, state.end_ms if ended else None))
        known = [time for time in times if time is not None]
        return TableAge(min(known) if known and len(known) == len(times) else None, complete)


def latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)
