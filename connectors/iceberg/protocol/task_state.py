"""The task's side of the protocol: which rows may be staged, what is reported, what may be
committed."""

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
    """Plain data in, actions out. Owned by the task thread; nothing here waits or does
    input/output.

    A caller's turn looks like this::

        actions = state.assign({partition: topic_id}, {partition: mark}, now_ms)
        ...per batch: `filter_position(table, partition)`; None: `hold` at the first such row.
        ...stage the rows at or above it, say `handled(partition, table, first)`, then `advance(partition, next)`
        ...per message of the channel: `on_message`; per poll: `on_tick`
        ...on `CloseFiles`: `report`
        ...in pre_commit: `offsets_to_commit`
    """  # noqa: E501 - a table or a literal is wider

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
        """`start_number`: the worker's count of starts; coordinators of earlier starts are not
        followed."""
        self.task = task
        self.epoch: Epoch | None = None
        self._start_number = start_number
        self._new_nonce = new_nonce
        self._max_staged = max_staged_cycles
        self._ask_interval_ms = ask_interval_ms
        self._rules = rules
        self._seen: Epoch | None = None  # highest epoch in marks and messages
        self._cycle = 0  # highest cycle reported in this epoch
        self._partitions: dict[TopicPartition, TaskPartition] = {}
        self._tables: dict[str, tuple[str, str]] = {}  # name -> (uuid, opaque answer)
        # tables to go on without, until the next cycle looks for them again
        self._skipped: set[str] = set()
        # missing tables that some rows cannot create, until the next cycle
        self._uncreated: set[str] = set()
        self._floors: dict[TopicPartition, int] = {}  # of all partitions, also of other tasks
        self._full = False  # no more may be staged in the open ranges

    # --- partitions come and go

    def assign(
        self,
        topic_ids: Mapping[TopicPartition, str],
        marks: Mapping[TopicPartition, OffsetMetadata | None],
        now_ms: int,
    ) -> list[TaskAction]:
        """Take partitions. They stay paused until the coordinator has said where they stand (rule
        10).

        `topic_ids` are described now; `marks` come from the group's committed offsets.
        """
        for mark in marks.values():
            if mark is not None and (self._seen is None or mark.epoch > self._seen):
                self._seen = mark.epoch
        for partition, topic_id in topic_ids.items():
            mark = marks.get(partition)
            least = mark.generation if mark is not None and mark.topic_id == topic_id else 0
            self._partitions[partition] = TaskPartition(
                topic_id, "", now_ms, least_generation=least
            )
        if not topic_ids:
            return []
        return [Pause(frozenset(topic_ids)), *self._ask(topic_ids, now_ms)]

    def revoke(self, partitions: Iterable[TopicPartition]) -> list[TaskAction]:
        """Give partitions back. What is staged for them is dropped; the next owner reads it
        again."""
        return [Discard(p) for p in partitions if self._partitions.pop(p, None) is not None]

    def position_lost(self, partition: TopicPartition, now_ms: int) -> list[TaskAction]:
        """The log does not hold the next offset: retention was faster, or the topic is another one
        by now.

        Reading on where the log begins would pass over rows in silence. The coordinator is asked
        again after a while: it knows whether the tables have these rows already, and says so if
        they do not.
        """
        state = self._partitions.get(partition)
        if state is None or not state.attached:
            return []
        self._partitions[partition] = state.detached(now_ms)
        return [Discard(partition), *self._flow([partition])]

    # --- rows

    def filter_position(self, table: str, partition: TopicPartition) -> int | None:
        """Rows of `table` below this offset must be dropped. None: hold at the first row of the
        table."""
        state = self._partitions[partition]
        need = state.needs.get(table)
        known = self._tables.get(table)
        if need is None or known is None or known[0] != need.uuid:
            return None
        return need.next

    def is_skipped(self, table: str) -> bool:
        """Whether rows of this table are to be counted and left out. Ask before
        `filter_position`."""
        return table in self._skipped

    def is_uncreated(self, table: str) -> bool:
        """Whether the table is missing, so that rows which cannot create it are bad records."""
        return table in self._uncreated

    def answer(self, table: str) -> str | None:
        """The coordinator's opaque answer (schema, location, ...) of an open table."""
        known = self._tables.get(table)
        return known[1] if known else None

    def is_reading(self, partition: TopicPartition) -> bool:
        """Whether rows of this partition may be handled now; rows in hand otherwise are dropped."""
        state = self._partitions.get(partition)
        return state is not None and state.attached and state.hold is None

    def is_attached(self) -> bool:
        """Whether a coordinator has said of every partition where it stands."""
        return all(state.attached for state in self._partitions.values())

    def end(self, partition: TopicPartition) -> int | None:
        """The offset from which on no row of a partition is wanted; None: there is none."""
        state = self._partitions.get(partition)
        return state.bound.end if state is not None and state.bound is not None else None

    def awaited_tables(self) -> frozenset[str]:
        """The tables that partitions wait for."""
        return frozenset(
            state.hold.table for state in self._partitions.values() if state.hold is not None
        )

    def next_offset(self, partition: TopicPartition) -> int:
        """All rows below were handled since the last seek.

        A framework that delivers rows again after an error of ours must not have them staged twice:
        drop those below before anything else. Rows further on may be missing only because the log
        lacks them.
        """
        return self._partitions[partition].next

    def handled(self, partition: TopicPartition, table: str, first: int | None) -> None:
        """Rows of an open table were met; `first` is the first one that the filter let through, if
        any."""
        self._partitions[partition].handled(table, first)

    def advance(
        self, partition: TopicPartition, following: int, timestamp_ms: int | None = None
    ) -> None:
        """Everything below `following` is handled. `timestamp_ms`: the latest of these records."""
        self._partitions[partition].advance(following, timestamp_ms)

    def hold(
        self, partition: TopicPartition, table: str, need: Need, schema: str, now_ms: int
    ) -> list[TaskAction]:
        """Stop before a row that cannot be staged yet (rule 6); everything below it was advanced
        over.

        The partition pauses there, the rest of the rows in hand is dropped and read again.
        """
        state = self._partitions[partition]
        state.hold = TableQuestion(table, need, schema, now_ms)
        return [
            *self._flow({partition}),
            Seek(partition, state.next),
            *self._ask_table(state.hold, now_ms),
        ]

    def release(self, partition: TopicPartition) -> list[TaskAction]:
        """Go on with a partition that was held for a pair; one that is held for something else
        stays."""
        state = self._partitions.get(partition)
        if state is None or state.hold is None or state.hold.need is not Need.PAIR:
            return []
        state.hold = None
        return self._flow({partition})

    def read_to(self, partition: TopicPartition) -> int | None:
        """The offset up to which a partition was read: handled here, or committed by another task;
        None: not known."""
        state = self._partitions.get(partition)
        return state.next if state is not None and state.attached else self._floors.get(partition)

    def committed_to(self, partition: TopicPartition) -> int | None:
        """The offset up to which all tables have a partition; None: not known."""
        return self._floors.get(partition)

    def fill(self, *, full: bool) -> list[TaskAction]:
        """Say whether the open ranges hold as much as may be staged: then nothing is read until
        their files close."""
        if full == self._full:
            return []
        self._full = full
        return self._flow(self._partitions)

    # --- time and messages

    def on_tick(self, now_ms: int) -> list[TaskAction]:
        """Repeat questions that stayed unanswered: any message may be lost. Pause partitions at
        their bounds."""
        actions = self._flow(p for p, state in self._partitions.items() if state.is_at_bound)
        if self._waiting(now_ms):
            actions.append(DescribeTopics())  # the topic may be another one by now
        for state in self._partitions.values():
            if state.hold and now_ms - state.hold.asked_ms >= self._ask_interval_ms:
                actions += self._ask_table(state.hold, now_ms)
        return actions

    def on_topic_ids(self, topic_ids: Mapping[str, str], now_ms: int) -> list[TaskAction]:
        """The answer to `DescribeTopics`: ask again, with the ids of now."""
        waiting = self._waiting(now_ms)
        for partition in waiting:
            state = self._partitions[partition]
            state.topic_id = topic_ids.get(partition.topic, state.topic_id)
        return self._ask(waiting, now_ms)

    def on_message(self, message: Message, now_ms: int) -> list[TaskAction]:
        """Take one message of the channel, in the order read. Messages of tasks are ignored."""
        if not isinstance(message, CoordinatorMessage):
            return []
        if self._rules.is_coordinator_of_earlier_start(message.epoch, self._start_number):
            return []  # a coordinator from before the connector was stopped
        if self._seen is not None and self._rules.has_ended(message.epoch, self._seen):
            if not isinstance(message, StartCommit):
                return []
            # Every other trace of our epoch may be gone (group lost, channel wiped): say that it
            # existed.
            return [Send(Attach(self.task, self._start_number, self._new_nonce(), {}, self._seen))]
        actions: list[TaskAction] = []
        if message.epoch != self.epoch:
            self.epoch = self._seen = message.epoch
            self._cycle = 0
            self._forget_missing()
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
                    self._forget_missing()
                    actions.append(CloseFiles(message.cycle))
            case CommitComplete():
                actions += self._on_releases(message, now_ms)
            case EpochStarted():
                pass
        return actions

    # --- reports and offsets

    def report(
        self,
        cycle: int,
        files: Mapping[tuple[TopicPartition, str], Sequence[StagedFile]],
        topic_ids: Mapping[str, str],
        now_ms: int,
    ) -> list[TaskAction]:
        """Report every attached partition, also those without rows (rule 11).

        `files` by (partition, table) are closed and durable; `topic_ids` were described **after**
        the last row was read: an id that differs from the one at the attach means that the rows may
        be another topic's.
        """
        if self.epoch is None:
            return []
        moved: list[TopicPartition] = []
        ranges: dict[TopicPartition, Range] = {}
        for partition, state in self._partitions.items():
            if not state.attached:
                continue
            topic_id = topic_ids.get(partition.topic, "")
            if not self._rules.is_same_topic(topic_id, state.topic_id):
                state.topic_id = topic_id
                moved.append(partition)
                continue
            closed = {table: files.get((partition, table), ()) for table in state.parts}
            ranges[partition] = state.close(closed, self._rules)
        actions: list[TaskAction] = []
        if ranges:
            actions.append(Send(Report(self.task, self._start_number, self.epoch, cycle, ranges)))
        return [*actions, *self._flow(ranges), *self._detach(moved, now_ms)]

    def offsets_to_commit(self) -> dict[TopicPartition, GroupOffset]:
        """What pre_commit returns (rule 12): the floor of every attached partition, with our mark.

        Commit them also when the offset is unchanged: the mark may be new, and may be waited for.
        The offset may lie below what the group holds (a refill).
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

    # --- inside

    @property
    def staged_cycles(self) -> int:
        """How many cycles were reported and are not known to be committed, of the partition that
        waits most."""
        return max((len(state.reported) for state in self._partitions.values()), default=0)

    def _waiting(self, now_ms: int) -> list[TopicPartition]:
        """Partitions whose attach stayed unanswered for long enough to ask again."""
        return [
            p
            for p, s in self._partitions.items()
            if not s.attached and now_ms - s.asked_ms >= self._ask_interval_ms
        ]

    def _ask(self, partitions: Iterable[TopicPartition], now_ms: int) -> list[TaskAction]:
        asked = {p: self._partitions[p] for p in partitions}
        if not asked:
            return []
        nonce = self._new_nonce()
        for state in asked.values():
            state.nonce, state.asked_ms = nonce, now_ms
        topic_ids = {p: state.topic_id for p, state in asked.items()}
        return [Send(Attach(self.task, self._start_number, nonce, topic_ids, self._seen))]

    def _ask_table(self, hold: TableQuestion, now_ms: int) -> list[TaskAction]:
        hold.asked_ms = now_ms
        if self.epoch is None:
            return []
        return [Send(OpenTable(self.task, self.epoch, hold.table, hold.need, hold.schema))]

    def _detach(self, partitions: Sequence[TopicPartition], now_ms: int) -> list[TaskAction]:
        actions: list[TaskAction] = []
        for partition in partitions:
            self._partitions[partition] = self._partitions[partition].detached(now_ms)
            actions.append(Discard(partition))
        return [*actions, *self._flow(partitions), *self._ask(partitions, now_ms)]

    def _adopt(
        self, partition: TopicPartition, state: TaskPartition, given: Attachment, commits: str
    ) -> list[TaskAction]:
        if not self._rules.is_same_topic(given.topic_id, state.topic_id):
            return []  # the question is repeated; one of the two sides will notice
        if self._rules.is_older_generation(given.generation, state.least_generation):
            return self._reject_epoch()
        state.adopt(given, commits)
        return [
            Discard(partition),
            Seek(partition, given.position),
            *self._flow({partition}),
            RequestCommit(),
        ]

    def _reject_epoch(self) -> list[TaskAction]:
        """This coordinator read the group before its offsets were altered (rule 21): let a new life
        read it again."""
        assert self.epoch is not None
        self._seen = Epoch(max(self.epoch, self._seen or self.epoch).number + 1, self._new_nonce())
        return [Send(Attach(self.task, self._start_number, self._new_nonce(), {}, self._seen))]

    def _on_rewind(self, message: Rewind) -> list[TaskAction]:
        actions: list[TaskAction] = []
        for partition, given in message.partitions.items():
            state = self._partitions.get(partition)
            if state is None or not state.attached or given.rewind < state.rewind:
                continue
            if given.rewind == state.rewind and message.nonce != state.nonce:
                continue  # seen already, or the answer to another task
            actions += self._adopt(partition, state, given, message.commits)
        return actions

    def _on_table_refused(self, message: TableRefused) -> list[TaskAction]:
        holding = [
            p for p, s in self._partitions.items() if s.hold and s.hold.table == message.table
        ]
        if not message.skip and not message.rows:
            return [Fail(f"table {message.table}: {message.error}")] if holding else []
        (self._skipped if message.skip else self._uncreated).add(message.table)
        for partition in holding:
            self._partitions[partition].hold = None
        return self._flow(holding)

    def _forget_missing(self) -> None:
        """Ask for missing tables again when rows for them come: a user may have created them."""
        self._skipped.clear()
        self._uncreated.clear()

    def _on_table_opened(self, message: TableOpened) -> list[TaskAction]:
        self._skipped.discard(message.table)
        self._uncreated.discard(message.table)
        self._tables[message.table] = (message.uuid, message.answer)
        freed = []
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
                freed.append(partition)
        return self._flow(freed)

    def _on_releases(self, message: StartCommit | CommitComplete, now_ms: int) -> list[TaskAction]:
        lost = []
        for partition, release in message.releases.items():
            self._floors[partition] = release.floor
            state = self._partitions.get(partition)
            if state is None or not state.attached or release.rewind < state.rewind:
                continue
            if release.rewind > state.rewind:
                lost.append(partition)  # the message that rewound it never came
                continue
            state.release(release.floor, message.commits)
        asked = self._ask_for_pairs(now_ms) if isinstance(message, CommitComplete) else []
        return [*self._flow(message.releases), *self._detach(lost, now_ms), *asked]

    def _ask_for_pairs(self, now_ms: int) -> list[TaskAction]:
        """A commit may have brought the deletes that inserts wait for."""
        holds = [
            s.hold
            for s in self._partitions.values()
            if s.hold is not None and s.hold.need is Need.PAIR
        ]
        return [action for hold in holds for action in self._ask_table(hold, now_ms)]

    def _flow(self, partitions: Iterable[TopicPartition]) -> list[TaskAction]:
        """Pause or resume where it is to change."""
        pause: set[TopicPartition] = set()
        resume: set[TopicPartition] = set()
        for partition in partitions:
            state = self._partitions.get(partition)
            if state is None:
                continue
            waits = (
                state.hold is not None
                or len(state.reported) > self._max_staged
                or state.is_at_bound
            )
            pause_wanted = self._full or not state.attached or waits
            if pause_wanted != state.paused:
                state.paused = pause_wanted
                (pause if pause_wanted else resume).add(partition)
        actions: list[TaskAction] = [Pause(frozenset(pause))] if pause else []
        return [*actions, Resume(frozenset(resume))] if resume else actions
