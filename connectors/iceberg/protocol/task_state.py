"""`TaskState`: the task side of the commit protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    CommitComplete,
    CoordinatorMessage,
    EpochStarted,
    Message,
    Need,
    OpenTable,
    Range,
    Report,
    Rewind,
    StartCommit,
    TableNeed,
    TableOpened,
    TableRefused,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch, TopicPartition
from connectors.iceberg.protocol.rules import PROTOCOL_RULES, ProtocolRules
from connectors.iceberg.protocol.task_partition import TableQuestion, TaskPartition
from connectors.iceberg.table.table import StagedFile


class TaskState:
    """State machine of one task. Owned by the task thread; never waits and performs no I/O.

    Usage::

        actions = state.assign({partition: topic_id}, {partition: mark}, now_ms)
        # per batch and table: filter_position(table, partition)
        #   if None: hold() at the first row of the table
        #   otherwise: stage the rows at or above it, and call handled(partition, table, first)
        # after all tables: advance(partition, next_offset)
        # per message on the channel: on_message(); per poll: on_tick()
        # on CloseFiles: report()
        # in pre_commit: offsets_to_commit()
    """

    def __init__(
        self,
        task: str,
        start_number: int,
        new_nonce: Callable[[], str],
        *,
        max_staged_cycles: int = 2,
        ask_interval_ms: int = 5_000,
        rules: ProtocolRules = PROTOCOL_RULES,
    ) -> None:
        """Create a state without partitions.

        Args:
            task: Task name.
            start_number: Start number from the task's context. Coordinators from earlier starts
                are ignored.
            new_nonce: Returns globally unique strings.
            max_staged_cycles: Number of reported but uncommitted cycles above which a partition is
                paused.
            ask_interval_ms: Time after which unanswered requests are repeated.
            rules: Decisions that implement the protocol rules.
        """
        self.task = task
        self.epoch: Epoch | None = None
        self._start_number = start_number
        self._new_nonce = new_nonce
        self._max_staged = max_staged_cycles
        self._ask_interval_ms = ask_interval_ms
        self._rules = rules
        self._highest_epoch: Epoch | None = None  # in all offset metadata and messages
        self._cycle = 0  # last reported cycle of this epoch
        self._partitions: dict[TopicPartition, TaskPartition] = {}
        self._tables: dict[str, tuple[str, str]] = {}  # name -> (UUID, opaque answer)
        # tables whose rows are skipped; requested again in the next cycle
        self._skipped_tables: set[str] = set()
        # missing tables that cannot be created from some rows; requested again in the next cycle
        self._uncreated_tables: set[str] = set()
        self._floors: dict[TopicPartition, int] = {}  # includes partitions that other tasks own
        self._full = False  # True while the open ranges must not grow

    # Assignment

    def assign(
        self,
        topic_ids: Mapping[TopicPartition, str],
        marks: Mapping[TopicPartition, OffsetMetadata | None],
        now_ms: int,
    ) -> list[TaskAction]:
        """Add partitions. They are paused until the coordinator attaches them.

        See rule 10 of the commit protocol.

        Args:
            topic_ids: Current topic IDs.
            marks: Metadata of the committed group offsets.
            now_ms: The current time.
        """
        for mark in marks.values():
            if mark is not None and (
                self._highest_epoch is None or mark.epoch > self._highest_epoch
            ):
                self._highest_epoch = mark.epoch
        for partition, topic_id in topic_ids.items():
            mark = marks.get(partition)
            generation = mark.generation if mark is not None and mark.topic_id == topic_id else 0
            self._partitions[partition] = TaskPartition(
                topic_id, "", now_ms, least_generation=generation
            )
        if not topic_ids:
            return []
        return [Pause(frozenset(topic_ids)), *self._request_attachments(topic_ids, now_ms)]

    def revoke(self, partitions: Iterable[TopicPartition]) -> list[TaskAction]:
        """Remove partitions and drop their staged rows, which the next owner reads again."""
        return [Discard(p) for p in partitions if self._partitions.pop(p, None) is not None]

    def position_lost(self, partition: TopicPartition, now_ms: int) -> list[TaskAction]:
        """Handle an offset that is no longer in the log, due to retention or a re-created topic.

        If the task continued at the start of the log, it could skip rows without an error. Instead,
        it detaches the partition and requests its state again later. The coordinator fails if the
        tables do not have the deleted rows.
        """
        state = self._partitions.get(partition)
        if state is None or not state.attached:
            return []
        self._partitions[partition] = state.detached(now_ms)
        return [Discard(partition), *self._flow([partition])]

    # Rows

    def filter_position(self, table: str, partition: TopicPartition) -> int | None:
        """Return the offset below which rows for a table must be dropped.

        The result is None if the table is not open. The task must then call `hold` at its first
        row.
        """
        need = self._partitions[partition].needs.get(table)
        uuid, _ = self._tables.get(table, (None, None))
        return None if need is None or need.uuid != uuid else need.next

    def is_skipped(self, table: str) -> bool:
        """Return True if rows for a table are counted and skipped.

        Call this method before `filter_position`.
        """
        return table in self._skipped_tables

    def is_uncreated(self, table: str) -> bool:
        """Return True if a table is missing and cannot be created from some of its rows.

        The rows from which it cannot be created are bad records.
        """
        return table in self._uncreated_tables

    def answer(self, table: str) -> str | None:
        """Return the opaque answer (schema, location, ...) for an open table."""
        _, answer = self._tables.get(table, (None, None))
        return answer

    def is_reading(self, partition: TopicPartition) -> bool:
        """Return True if rows from a partition may be processed, False if they must be dropped."""
        state = self._partitions.get(partition)
        return state is not None and state.attached and state.hold is None

    def is_attached(self) -> bool:
        """Return True if all partitions are attached."""
        return all(state.attached for state in self._partitions.values())

    def end(self, partition: TopicPartition) -> int | None:
        """Return the offset at which a partition stops, or None if it has no bound."""
        state = self._partitions.get(partition)
        return state.bound.end if state is not None and state.bound is not None else None

    def awaited_tables(self) -> frozenset[str]:
        """Return the tables for which partitions are waiting."""
        return frozenset(
            state.hold.table for state in self._partitions.values() if state.hold is not None
        )

    def next_offset(self, partition: TopicPartition) -> int:
        """Return the offset below which all rows have been processed since the last seek.

        The framework may deliver rows again after an error. The task must drop rows below this
        offset, because they would be staged twice. Offsets above it that the task does not
        receive are not in the log.
        """
        return self._partitions[partition].next

    def handled(self, partition: TopicPartition, table: str, first: int | None) -> None:
        """Record rows for an open table. `first` is the first offset that passed the filter."""
        self._partitions[partition].handled(table, first)

    def advance(
        self, partition: TopicPartition, following: int, timestamp_ms: int | None = None
    ) -> None:
        """Record that all records below `following` were processed.

        `timestamp_ms` is the latest timestamp among these records.
        """
        self._partitions[partition].advance(following, timestamp_ms)

    def hold(
        self, partition: TopicPartition, table: str, need: Need, schema: str, now_ms: int
    ) -> list[TaskAction]:
        """Pause a partition before a row that cannot be staged yet (rule 6).

        The caller must have advanced past all earlier rows. Later rows that have been polled are
        dropped and read again.
        """
        state = self._partitions[partition]
        state.hold = TableQuestion(table, need, schema, now_ms)
        return [
            *self._flow({partition}),
            Seek(partition, state.next),
            *self._request_table(state.hold, now_ms),
        ]

    def release(self, partition: TopicPartition) -> list[TaskAction]:
        """Resume a partition that waits for the delete of a key change.

        A partition that waits for another reason is not resumed.
        """
        state = self._partitions.get(partition)
        if state is None or state.hold is None or state.hold.need is not Need.PAIR:
            return []
        state.hold = None
        return self._flow({partition})

    def read_to(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which a partition's rows have been read or committed.

        If the partition is attached, this task has read all lower offsets. Otherwise, all tables
        contain the rows from the lower offsets. The result is None if the offset is unknown.
        """
        state = self._partitions.get(partition)
        return state.next if state is not None and state.attached else self._floors.get(partition)

    def committed_to(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which all tables have a partition's rows, or None if unknown."""
        return self._floors.get(partition)

    def fill(self, *, full: bool) -> list[TaskAction]:
        """Pause all partitions if the open ranges are full, and resume them otherwise."""
        if full == self._full:
            return []
        self._full = full
        return self._flow(self._partitions)

    # Time and messages

    def on_tick(self, now_ms: int) -> list[TaskAction]:
        """Repeat unanswered requests, and pause partitions at their bounds."""
        actions = self._flow(p for p, state in self._partitions.items() if state.is_at_bound)
        if self._unanswered(now_ms):
            actions.append(DescribeTopics())  # the topic may have been re-created
        for state in self._partitions.values():
            if state.hold and now_ms - state.hold.asked_ms >= self._ask_interval_ms:
                actions += self._request_table(state.hold, now_ms)
        return actions

    def on_topic_ids(self, topic_ids: Mapping[str, str], now_ms: int) -> list[TaskAction]:
        """Handle the response to `DescribeTopics`. Repeat unanswered requests with the new IDs."""
        partitions = self._unanswered(now_ms)
        for partition in partitions:
            state = self._partitions[partition]
            state.topic_id = topic_ids.get(partition.topic, state.topic_id)
        return self._request_attachments(partitions, now_ms)

    def on_message(self, message: Message, now_ms: int) -> list[TaskAction]:
        """Handle a message from the channel, in order. Messages from tasks are ignored."""
        if not isinstance(message, CoordinatorMessage):
            return []
        if self._rules.is_coordinator_of_earlier_start(message.epoch, self._start_number):
            return []
        highest_epoch = self._highest_epoch
        if highest_epoch is not None and self._rules.has_ended(message.epoch, highest_epoch):
            if not isinstance(message, StartCommit):
                return []
            # If the group offsets and the channel were lost, the later epoch may be recorded only
            # in this task.
            return [self._attach({}, self._new_nonce())]
        actions: list[TaskAction] = []
        if message.epoch != self.epoch:
            self.epoch = self._highest_epoch = message.epoch
            self._cycle = 0
            self._forget_missing_tables()
            detached = self._rules.detached_partitions(self._partitions.keys())
            actions += self._detach(list(detached), now_ms)
        match message:
            case Attached():
                for partition, attachment in message.partitions.items():
                    state = self._partitions.get(partition)
                    if state and not state.attached and state.nonce == message.nonce:
                        actions += self._adopt(partition, state, attachment, message.commits)
            case Rewind():
                actions += self._on_rewind(message)
            case TableOpened():
                actions += self._on_table_opened(message)
            case TableRefused():
                actions += self._on_table_refused(message)
            case StartCommit():
                actions += self._on_releases(message, now_ms)
                if message.cycle > self._cycle:
                    self._cycle = message.cycle
                    self._forget_missing_tables()
                    actions.append(CloseFiles(message.cycle))
            case CommitComplete():
                actions += self._on_releases(message, now_ms)
            case EpochStarted():
                pass
        return actions

    # Reports and offsets

    def report(
        self,
        cycle: int,
        files: Mapping[tuple[TopicPartition, str], Sequence[StagedFile]],
        topic_ids: Mapping[str, str],
        now_ms: int,
    ) -> list[TaskAction]:
        """Report all attached partitions, even those without rows (rule 11).

        Args:
            cycle: Cycle number.
            files: Closed and durable files by partition and table.
            topic_ids: Topic IDs that were described *after* the last row was read. If an ID differs
                from the ID in the attachment, the rows may be from a re-created topic.
            now_ms: The current time.
        """
        if self.epoch is None:
            return []
        partitions_to_detach: list[TopicPartition] = []
        ranges: dict[TopicPartition, Range] = {}
        for partition, state in self._partitions.items():
            if not state.attached:
                continue
            topic_id = topic_ids.get(partition.topic, "")
            if not self._rules.is_same_topic(topic_id, state.topic_id):
                state.topic_id = topic_id
                partitions_to_detach.append(partition)
                continue
            files_by_table = {table: files.get((partition, table), ()) for table in state.parts}
            ranges[partition] = state.close(files_by_table, self._rules)
        actions: list[TaskAction] = []
        if ranges:
            actions.append(Send(Report(self.task, self._start_number, self.epoch, cycle, ranges)))
        return [*actions, *self._flow(ranges), *self._detach(partitions_to_detach, now_ms)]

    def offsets_to_commit(self) -> dict[TopicPartition, GroupOffset]:
        """Return the floors of attached partitions as the offsets for `pre_commit` (rule 12).

        Offsets must be committed even if they are unchanged, because the coordinator may wait for
        the new metadata. They may be lower than the current offsets, for example during a refill.
        """
        if self.epoch is None:
            return {}
        return {
            p: GroupOffset(
                s.floor,
                OffsetMetadata(self.epoch, s.generation, s.topic_id, s.rewind, s.commits, s.bound),
            )
            for p, s in self._partitions.items()
            if s.attached
        }

    @property
    def staged_cycles(self) -> int:
        """Maximum number of reported but uncommitted cycles over all partitions."""
        return max((len(state.reported) for state in self._partitions.values()), default=0)

    def _unanswered(self, now_ms: int) -> list[TopicPartition]:
        """Return the partitions whose request for attachment must be repeated."""
        return [
            p
            for p, s in self._partitions.items()
            if not s.attached and now_ms - s.asked_ms >= self._ask_interval_ms
        ]

    def _request_attachments(
        self, partitions: Iterable[TopicPartition], now_ms: int
    ) -> list[TaskAction]:
        states = {p: self._partitions[p] for p in partitions}
        if not states:
            return []
        nonce = self._new_nonce()
        for state in states.values():
            state.nonce, state.asked_ms = nonce, now_ms
        return [self._attach({p: state.topic_id for p, state in states.items()}, nonce)]

    def _attach(self, topic_ids: Mapping[TopicPartition, str], nonce: str) -> Send:
        return Send(Attach(self.task, self._start_number, nonce, topic_ids, self._highest_epoch))

    def _request_table(self, hold: TableQuestion, now_ms: int) -> list[TaskAction]:
        hold.asked_ms = now_ms
        if self.epoch is None:
            return []
        return [Send(OpenTable(self.task, self.epoch, hold.table, hold.need, hold.schema))]

    def _detach(self, partitions: Sequence[TopicPartition], now_ms: int) -> list[TaskAction]:
        actions: list[TaskAction] = []
        for partition in partitions:
            self._partitions[partition] = self._partitions[partition].detached(now_ms)
            actions.append(Discard(partition))
        requests = self._request_attachments(partitions, now_ms)
        return [*actions, *self._flow(partitions), *requests]

    def _adopt(
        self,
        partition: TopicPartition,
        state: TaskPartition,
        attachment: Attachment,
        commits: str,
    ) -> list[TaskAction]:
        if not self._rules.is_same_topic(attachment.topic_id, state.topic_id):
            return []  # the request is repeated until the topic IDs are equal
        if self._rules.is_older_generation(attachment.generation, state.least_generation):
            return self._reject_epoch()
        state.adopt(attachment, commits)
        return [
            Discard(partition),
            Seek(partition, attachment.position),
            *self._flow({partition}),
            RequestCommit(),
        ]

    def _reject_epoch(self) -> list[TaskAction]:
        """Force a new epoch, because the coordinator read outdated group offsets (rule 21)."""
        assert self.epoch is not None
        number = max(self.epoch, self._highest_epoch or self.epoch).number + 1
        self._highest_epoch = Epoch(number, self._new_nonce())
        return [self._attach({}, self._new_nonce())]

    def _on_rewind(self, message: Rewind) -> list[TaskAction]:
        actions: list[TaskAction] = []
        for partition, attachment in message.partitions.items():
            state = self._partitions.get(partition)
            if state is None or not state.attached or attachment.rewind < state.rewind:
                continue
            if attachment.rewind == state.rewind and message.nonce != state.nonce:
                continue  # repeated message, or response to another task
            actions += self._adopt(partition, state, attachment, message.commits)
        return actions

    def _on_table_refused(self, message: TableRefused) -> list[TaskAction]:
        waiting_partitions = [
            p for p, s in self._partitions.items() if s.hold and s.hold.table == message.table
        ]
        if not message.skip and not message.rows:
            failure = Fail(f"table {message.table}: {message.error}")
            return [failure] if waiting_partitions else []
        tables = self._skipped_tables if message.skip else self._uncreated_tables
        tables.add(message.table)
        for partition in waiting_partitions:
            self._partitions[partition].hold = None
        return self._flow(waiting_partitions)

    def _forget_missing_tables(self) -> None:
        """Forget which tables are missing, because a user may have created them since."""
        self._skipped_tables.clear()
        self._uncreated_tables.clear()

    def _on_table_opened(self, message: TableOpened) -> list[TaskAction]:
        self._skipped_tables.discard(message.table)
        self._uncreated_tables.discard(message.table)
        self._tables[message.table] = (message.uuid, message.answer)
        released_partitions = []
        for partition, following in message.needs.items():
            state = self._partitions.get(partition)
            if state is None or not state.attached:
                continue
            state.needs[message.table] = TableNeed(message.uuid, following)
            if (
                state.hold
                and state.hold.table == message.table
                and state.hold.need is not Need.PAIR
            ):
                state.hold = None
                released_partitions.append(partition)
        return self._flow(released_partitions)

    def _on_releases(self, message: StartCommit | CommitComplete, now_ms: int) -> list[TaskAction]:
        partitions_to_detach = []
        for partition, release in message.releases.items():
            self._floors[partition] = release.floor
            state = self._partitions.get(partition)
            if state is None or not state.attached or release.rewind < state.rewind:
                continue
            if release.rewind > state.rewind:
                partitions_to_detach.append(partition)  # the rewind message was lost
                continue
            state.release(release.floor, message.commits)
        requests = self._request_pairs(now_ms) if isinstance(message, CommitComplete) else []
        return [
            *self._flow(message.releases),
            *self._detach(partitions_to_detach, now_ms),
            *requests,
        ]

    def _request_pairs(self, now_ms: int) -> list[TaskAction]:
        """Repeat the requests of partitions that wait for a delete, which may be committed now."""
        holds = [
            s.hold
            for s in self._partitions.values()
            if s.hold is not None and s.hold.need is Need.PAIR
        ]
        return [action for hold in holds for action in self._request_table(hold, now_ms)]

    def _flow(self, partitions: Iterable[TopicPartition]) -> list[TaskAction]:
        """Pause or resume partitions according to their state."""
        pause: set[TopicPartition] = set()
        resume: set[TopicPartition] = set()
        for partition in partitions:
            state = self._partitions.get(partition)
            if state is None:
                continue
            is_waiting = (
                state.hold is not None
                or len(state.reported) > self._max_staged
                or state.is_at_bound
            )
            must_pause = self._full or not state.attached or is_waiting
            if must_pause != state.paused:
                state.paused = must_pause
                (pause if must_pause else resume).add(partition)
        actions: list[TaskAction] = [Pause(frozenset(pause))] if pause else []
        return [*actions, Resume(frozenset(resume))] if resume else actions
