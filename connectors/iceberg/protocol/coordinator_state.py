"""The coordinator's side of the protocol: who may read from where, what is committed, what is released."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Concatenate, ParamSpec

from connectors.iceberg.protocol.actions import (
    CleanFiles,
    CommitTable,
    CoordinatorAction,
    DescribeTopics,
    Fail,
    LoadTable,
    PrepareTable,
    ProveLeadership,
    ReadGroupOffsets,
    ReportFailure,
    Send,
    Stop,
    Warn,
)
from connectors.iceberg.protocol.commit_request import CommitStatus
from connectors.iceberg.protocol.last_commits import LastCommits
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    Lookup,
    Standing,
    TableVersion,
    TableView,
    TopicLedger,
    look_up,
)
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    CommitComplete,
    EpochStarted,
    Message,
    Need,
    OpenTable,
    Range,
    Release,
    Report,
    Rewind,
    StartCommit,
    TableNeed,
    TableOpened,
    TableRefused,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What does not change during a coordinator's life."""

    cluster: str  # id of the Kafka cluster of the source topics
    start_number: int  # the worker's count of starts of this connector
    commit_interval_ms: int
    commit_timeout_ms: int
    dynamic: bool = False  # routes may name tables that the configuration does not
    new_topic_allowed: bool = False  # a re-created topic is read from its start instead of stopping
    skip_missing: bool = False  # a table that cannot be opened leaves the floor, its rows are counted and lost
    skip_unknown: bool = False  # so does one that was never there: only records named it
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


_NOT_KNOWN = {  # standings of a table of which it is not known what it holds
    Standing.LOST: "was rolled back to a snapshot whose ledger was expired, so what it holds is not known: roll it "
    "back to another snapshot, or replace it by an empty one, which is filled again",
    Standing.BRANCH_LOST: "has no longer the branch that is committed to, and main holds none of its commits, so "
    "which of its rows are in main is not known: create the branch again at snapshot {snapshot}, or at main's head if "
    "all of it was published, or replace the table by an empty one, which is filled again",
    Standing.REPLACED: "holds other rows than those that were committed to it, as after CREATE OR REPLACE TABLE ... AS "
    "SELECT, so what it holds is not known: make snapshot {snapshot} its current one again, or replace it by an empty "
    "one, which is filled again",
}

_WENT_BACK = (
    "table {name} is older than what was committed to it: the catalog seems to have gone back in time, as one that was "
    "restored from a backup. The table is filled again from the position that it has now"
)

_ROLLED_BACK = (
    "table {name} was rolled back {where}: it is filled again from the positions that its ledger has there{again}"
)


class _Step(Enum):
    """What the work on one table in a cycle waits for."""

    LOAD = "load"  # the table; it shows whether a commit of unknown outcome landed
    LEADERSHIP = "leadership"
    GROUP = "group"
    COMMIT = "commit"
    PAUSE = "pause"  # before the next try
    DONE = "done"


@dataclass(slots=True)
class _Partition:
    topic_id: str
    generation: int
    log_start: int
    applied: int  # end of the last range that went through a cycle
    accepted: int  # end of the last range that was accepted
    mark_epoch: int | None = None  # of the group's mark that it started from
    rewind: int = 0
    sent: list[int] = field(default_factory=lambda: [0])  # by rewind number: the highest floor that tasks may commit
    described: bool = True  # False: the cluster no longer names it, so no report is waited for
    owned: bool = True  # False: added a while ago, and no task has asked for it yet
    end: int = 0  # of the log, when it was described last
    end_ms: int | None = None  # since 1970: when that was
    through_ms: int | None = None  # since 1970: the latest record that went through a cycle
    queue: deque[Range] = field(default_factory=deque)


@dataclass(slots=True)
class _Table:
    version: TableVersion
    ledger: Ledger | None
    opened: dict[TopicPartition, Position]  # where the table began, for the property
    needs: dict[TopicPartition, int]  # E: the offset from which rows are still needed
    bases: dict[TopicPartition, int]  # where the next ledger's entries begin
    guarded: bool  # opened below what the group may hold: no commit before the group is seen at or below `needs`
    answer: str | None = None
    missing: bool = False
    committed: bool = False  # by this epoch
    failures: int = 0  # cycles in a row

    @property
    def uuid(self) -> str:
        return self.version.uuid


@dataclass(slots=True)
class _Work:
    """One table's share of a cycle that is being applied."""

    step: _Step = _Step.LOAD
    request: CommitTable | None = None
    after: dict[TopicPartition, int] = field(default_factory=dict)  # `needs` once the request has landed
    tries: int = 0
    retry_ms: int = 0
    unknown: bool = False  # some try of `request` ended without an answer


@dataclass(slots=True)
class _Cycle:
    number: int
    started_ms: int
    taken: dict[TopicPartition, Range] | None = None  # None: still collecting
    late: set[TopicPartition] = field(default_factory=set)  # attached since it started: their task reports in the next
    work: dict[str, _Work] = field(default_factory=dict)


class _EndError(Exception):
    """This life is over, for the reason that the action names."""

    def __init__(self, action: Stop | Fail) -> None:
        self.action = action


_P = ParamSpec("_P")
_Input = Callable[Concatenate["CoordinatorState", _P], list[CoordinatorAction]]


def _input(method: _Input[_P]) -> _Input[_P]:
    """An input is ignored after the end. If it brings the end, the reason is all that it returns."""

    @wraps(method)
    def checked(self: CoordinatorState, /, *args: _P.args, **kwargs: _P.kwargs) -> list[CoordinatorAction]:
        if self.ended:
            return []
        try:
            return method(self, *args, **kwargs)
        except _EndError as end:
            self.ended = True
            return [end.action]

    return checked


class CoordinatorState:
    """Plain data in, actions out. Owned by the coordinator thread; nothing here waits or does input/output.

    Every answer to an action comes in by the method that the action names. Actions on different tables may
    be carried out in any order or at once, those of one table in the order given. After `Stop` or `Fail`
    (see `ended`) every input is ignored.
    """

    def __init__(self, settings: CoordinatorSettings, nonce: str, new_uuid: Callable[[], str]) -> None:
        """`nonce` and `new_uuid` are unique over all lives of all coordinators."""
        self.ended = False
        self.epoch = Epoch(0, nonce)
        self._settings = settings
        self._new_uuid = new_uuid
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._tables: dict[str, _Table] = {}
        self._commits = LastCommits()
        self._asked: dict[str, tuple[Need, str]] = {}  # tables being prepared
        self._again: dict[str, tuple[Need, str]] = {}  # prepared while being committed: once more afterwards
        self._cycle: _Cycle | None = None
        self._cycles = 0
        self._next_start_ms = 0

    # --- the start of a life

    @_input
    def begin(
        self,
        topics: Mapping[str, TopicInfo],
        group: Mapping[TopicPartition, GroupOffset],
        tables: Mapping[str, TableView | None],
        channel_epoch: Epoch | None,
        now_ms: int,
        log_ends: Mapping[TopicPartition, int] | None = None,
    ) -> list[CoordinatorAction]:
        """Choose the epoch, find out where every partition starts, open the tables that exist.

        The caller has fenced the coordinator before (`init_transactions`), **then** read the channel to its
        end (`channel_epoch`: the highest in it), the group's offsets, and every table of the settings
        (None: does not exist). `group` may hold first positions for a connector that never ran, resolved
        to numbers. `log_ends` must have been read **after** the tables: then a ledger above the end is not
        a race but a log that lost its tail, and an error.
        """
        lookups = {name: look_up(view) for name, view in tables.items() if view is not None}
        traces = [offset.mark.epoch for offset in group.values() if offset.mark]
        traces += [found.highest_epoch for found in lookups.values() if found.highest_epoch]
        if channel_epoch:
            traces.append(channel_epoch)
        self._commits = LastCommits.of_marks(offset.mark for offset in group.values() if offset.mark)
        highest = max((epoch.number for epoch in traces), default=0)
        self.epoch = Epoch(max(highest + 1, self._settings.start_number), self.epoch.nonce)
        self._next_start_ms = now_ms + self._settings.commit_interval_ms

        actions: list[CoordinatorAction] = []
        for topic, info in topics.items():
            for number in range(len(info.log_starts)):
                partition = TopicPartition(topic, number)
                found = self._start(partition, info, group, lookups, unknown=len(lookups) < len(tables))
                self._partitions[partition] = found
                _note_end(found, info, number)
        for name, lookup in lookups.items():
            self._check_ends(name, lookup, log_ends or {})
            actions += self._open(name, lookup)
        self._rewind_where_needed()  # no task is attached yet: no message
        return [Send(EpochStarted(self.epoch)), *actions]

    def _start(
        self,
        partition: TopicPartition,
        info: TopicInfo,
        group: Mapping[TopicPartition, GroupOffset],
        lookups: Mapping[str, Lookup],
        unknown: bool,
    ) -> _Partition:
        """Where a partition starts: the group's mark, else the ledgers, else the log (rule 4)."""
        log_start = info.log_starts[partition.partition]
        ledgers = [found.ledger for found in lookups.values() if found.ledger]
        offset = group.get(partition)
        mark = offset.mark if offset else None
        other_topic = (mark is not None and mark.topic_id != info.id) or any(
            ledger.topics[partition.topic].topic_id != info.id for ledger in ledgers if partition.topic in ledger.topics
        )
        if other_topic and not self._settings.new_topic_allowed:
            raise _failed(
                f"topic {partition.topic} was deleted and created again (id {info.id} is not the one that was "
                "read before): allow the new topic to read it from its start"
            )
        entries = [ledger.entry(partition, info.id) for ledger in ledgers]
        known = [entry for entry in entries if entry is not None]
        whole = known and not unknown and not self._settings.dynamic and len(known) == len(lookups)
        if offset and mark and mark.topic_id == info.id:
            first = offset.offset
            if first < log_start:  # the group is behind: do the tables have what retention removed?
                if whole and all(e.generation == mark.generation for e in known):
                    first = min(entry.next for entry in known)
                _check_log(partition, first, log_start)
            return _Partition(info.id, mark.generation, log_start, first, first, mark.epoch.number)
        marked = any(o.mark for o in group.values())
        if offset and mark is None and not ledgers and not marked:
            first = max(offset.offset, log_start)  # a migration
            return _Partition(info.id, 0, log_start, first, first)
        generation = max((entry.generation for entry in known), default=mark.generation if mark else 0)
        lowest = min((entry.next for entry in known if entry.generation == generation), default=log_start)
        _check_log(partition, lowest, log_start)
        start = lowest if whole else log_start
        return _Partition(info.id, generation, log_start, start, start)

    def _check_ends(self, name: str, lookup: Lookup, log_ends: Mapping[TopicPartition, int]) -> None:
        """Refuse a ledger above the end of the log: rows written from now on would count as known."""
        for partition, end in log_ends.items():
            state = self._partitions.get(partition)
            entry = lookup.ledger.entry(partition, state.topic_id) if lookup.ledger and state else None
            if state and entry and entry.generation == state.generation and entry.next > end:
                raise _failed(
                    f"table {name} holds {partition} up to offset {entry.next}, but the log ends at {end}, so that new "
                    "rows would count as known: alter the connector's offsets to go on from the end"
                )

    @property
    def failing(self) -> frozenset[str]:
        """Tables that took no commit when rows for them came last."""
        return frozenset(name for name, table in self._tables.items() if table.failures)

    # --- inputs

    @_input
    def on_tick(self, now_ms: int) -> list[CoordinatorAction]:
        """Time passes: start a cycle, give up waiting for reports, try again."""
        if self._cycle is None:
            return self._start_cycle(now_ms) if now_ms >= self._next_start_ms else []
        if self._cycle.taken is None:
            if now_ms - self._cycle.started_ms >= self._settings.commit_timeout_ms:
                return self._apply(now_ms)
            return self._apply_if_ready(now_ms)
        actions: list[CoordinatorAction] = []
        for name, work in self._cycle.work.items():
            if work.step is _Step.PAUSE and now_ms >= work.retry_ms:
                work.step = _Step.LOAD
                actions.append(LoadTable(name))
        return actions

    @_input
    def on_message(self, message: Message, now_ms: int) -> list[CoordinatorAction]:
        """Take one message of the channel. Our own come back too, and are ignored."""
        epoch = message.seen if isinstance(message, Attach) else message.epoch
        if epoch is not None and epoch > self.epoch:
            raise _EndError(Stop(f"epoch {epoch} is above ours, {self.epoch}"))
        start = message.start if isinstance(message, Attach | Report) else self._settings.start_number
        if start > self._settings.start_number:
            raise _EndError(Stop(f"start {start} of the connector is above ours"))
        if start < self._settings.start_number:
            return []  # its configuration may not know of a route: its ranges would hide rows
        match message:
            case Attach():
                return self._on_attach(message)
            case OpenTable():
                return self._on_open_table(message) if epoch == self.epoch else []
            case Report():
                return self._on_report(message, now_ms) if epoch == self.epoch else []
        return []

    @_input
    def on_topics(self, topics: Mapping[str, TopicInfo]) -> list[CoordinatorAction]:
        """The cluster described the topics again: partitions may have been added, a topic replaced."""
        added = []
        for topic, info in topics.items():
            for number, log_start in enumerate(info.log_starts):
                partition = TopicPartition(topic, number)
                state = self._partitions.get(partition)
                if state is None:
                    state = _Partition(info.id, 0, log_start, log_start, log_start, owned=False)
                    self._partitions[partition] = state
                    added.append(partition)
                elif state.topic_id != info.id:
                    raise _EndError(Stop(f"topic {topic} was deleted and created again"))
                else:
                    state.log_start = log_start
                _note_end(self._partitions[partition], info, number)
        for partition, state in self._partitions.items():
            info_now = topics.get(partition.topic)
            state.described = info_now is not None and partition.partition < len(info_now.log_starts)
        for partition in added:
            for table in self._tables.values():
                start = self._partitions[partition].applied
                table.needs[partition] = table.bases[partition] = start
                table.opened[partition] = Position(0, start)
        return []

    @_input
    def on_table_loaded(self, name: str, view: TableView | None, now_ms: int) -> list[CoordinatorAction]:
        """The answer to `LoadTable`. None: the table does not exist."""
        work = self._work(name, _Step.LOAD)
        if work is None:
            return []
        if view is None:
            return self._lost(name, work, now_ms)
        lookup = look_up(view)
        if work.request and work.request.commit in lookup.commits:
            if lookup.ledger and lookup.ledger.commit == work.request.commit:
                return self._landed(name, work, lookup.version, now_ms)
            work.step = _Step.DONE  # ours landed, and another writer's on top of it
            return [*self._open(name, lookup), *self._finish_if_done(now_ms)]
        if work.unknown and work.request and lookup.version == work.request.expected:
            work.step = _Step.COMMIT
            return [work.request]  # on the same base: both cannot land
        work.request, work.unknown = None, False
        return self._plan(name, work, lookup, now_ms)

    @_input
    def on_commit_outcome(
        self, name: str, commit: str, outcome: CommitStatus, reason: str, snapshot: int | None, now_ms: int
    ) -> list[CoordinatorAction]:
        """The answer to `CommitTable`. `snapshot`: id of the new snapshot when committed."""
        work = self._work(name, _Step.COMMIT)
        if work is None or work.request is None or work.request.commit != commit:
            return []
        match outcome:
            case CommitStatus.COMMITTED:
                version = TableVersion(work.request.expected.uuid, snapshot, snapshot)
                return self._landed(name, work, version, now_ms)
            case CommitStatus.MISSING:
                return self._lost(name, work, now_ms)
        work.tries += 1
        work.unknown = work.unknown or outcome is CommitStatus.UNKNOWN
        if work.tries >= self._settings.max_tries and not work.unknown:
            return self._refuse(name, work, reason, now_ms)
        work.retry_ms = now_ms + self._settings.retry_delay_ms
        if outcome is CommitStatus.FAILED or work.tries > 1:
            work.step = _Step.PAUSE
            return self._unknown_for_long(name, work, reason)
        work.step = _Step.LOAD
        return [LoadTable(name)]

    @_input
    def on_load_failed(self, name: str, reason: str, now_ms: int) -> list[CoordinatorAction]:
        """The catalog could not be asked. Tried again a bounded number of times in this cycle."""
        work = self._work(name, _Step.LOAD)
        if work is None:
            return []
        work.tries += 1
        if work.tries >= self._settings.max_tries and not work.unknown:
            return self._refuse(name, work, reason, now_ms)
        work.step, work.retry_ms = _Step.PAUSE, now_ms + self._settings.retry_delay_ms
        return self._unknown_for_long(name, work, reason)

    @_input
    def on_table_prepared(self, name: str, view: TableView, answer: str, now_ms: int) -> list[CoordinatorAction]:
        """The answer to `PrepareTable`: the table exists and has the columns; `answer` goes to the tasks."""
        asked = self._asked.pop(name, None)
        if asked is None:
            return []
        if self._cycle and name in self._cycle.work:
            self._again[name] = asked  # the view may be older than the commit under way
            return self._answered(name, view, answer)
        lookup = look_up(view)
        table = self._tables.get(name)
        actions: list[CoordinatorAction] = []
        if table is None or table.missing or table.version != lookup.version:
            actions += self._open(name, lookup)
        table = self._tables[name]
        table.answer = answer
        actions.append(self._opened(name, table))
        return [*actions, *self._rewind_between_cycles()]

    def _rewind_between_cycles(self) -> list[CoordinatorAction]:
        """Read again what a table needs; a cycle that is being applied does so at its end."""
        return self._rewind_where_needed() if self._cycle is None or self._cycle.taken is None else []

    @property
    def quiet_tables(self) -> list[str]:
        """The tables of which no commit is under way, to be looked at: see `on_table_seen`."""
        busy = self._cycle.work if self._cycle else {}
        return [n for n, t in self._tables.items() if not t.missing and n not in busy and n not in self._asked]

    @_input
    def on_table_seen(self, name: str, view: TableView | None) -> list[CoordinatorAction]:
        """A table was looked at though no rows came for it: its owner may have rolled it back.

        Everything else that changed is met where it matters, by the next commit: a table that is gone or another one.
        """
        table = self._tables.get(name)
        if view is None or table is None or name not in self.quiet_tables or view.uuid != table.uuid:
            return []
        lookup = look_up(view)
        if table.version == lookup.version or lookup.standing is not Standing.ROLLED_BACK:
            return []
        return [*self._open(name, lookup), *self._rewind_between_cycles()]

    def _answered(self, name: str, view: TableView, answer: str) -> list[CoordinatorAction]:
        """The answer alone, for the table that tasks know: keys to the storage in it may not wait for a long cycle.

        It holds no position, so partitions that wait for the table go on waiting.
        """
        table = self._tables[name]
        if view.uuid != table.uuid:
            return []
        table.answer = answer
        return [Send(TableOpened(self.epoch, name, table.uuid, {}, answer))]

    @_input
    def on_table_refused(
        self, name: str, error: str, *, missing: bool = False, rows: bool = False
    ) -> list[CoordinatorAction]:
        """The other answer to `PrepareTable`.

        Args:
            name: The table.
            error: Why it is refused.
            missing: It does not exist, and is not to be made.
            rows: It does not exist, and cannot be made of the rows that were asked with.
        """
        if self._asked.pop(name, None) is None:
            return []
        table = self._tables.get(name)
        skip = self._settings.skip_missing and (table is None or table.missing)
        skip = skip or (self._settings.skip_unknown and missing and table is None)
        if skip:
            self._tables.pop(name, None)
        return [Send(TableRefused(self.epoch, name, error, skip, rows and not skip))]

    def on_table_waits(self, name: str) -> list[CoordinatorAction]:
        """The third answer to `PrepareTable`: not now. Who holds a partition for it asks again in a while."""
        self._asked.pop(name, None)
        return []

    @_input
    def on_leadership(self, token: str, proven: bool, now_ms: int) -> list[CoordinatorAction]:
        """The answer to `ProveLeadership`."""
        if self._cycle is None:
            return []
        if not proven:
            raise _EndError(Stop("another coordinator has fenced this one"))
        work = next((w for w in self._cycle.work.values() if w.request and w.request.commit == token), None)
        if work is None or work.step is not _Step.LEADERSHIP or work.request is None:
            return []
        work.step = _Step.COMMIT
        return [work.request]

    @_input
    def on_group_offsets(self, group: Mapping[TopicPartition, GroupOffset], now_ms: int) -> list[CoordinatorAction]:
        """The answer to `ReadGroupOffsets`."""
        for offset in group.values():
            if offset.mark and offset.mark.epoch > self.epoch:
                raise _EndError(Stop(f"epoch {offset.mark.epoch} in a group offset is above ours"))
        if self._cycle is None:
            return []
        actions: list[CoordinatorAction] = []
        for name, work in list(self._cycle.work.items()):
            if work.step is not _Step.GROUP or work.request is None:
                continue
            table = self._tables[name]
            if all(self._is_lowered(group.get(p), p, needed) for p, needed in table.needs.items()):
                actions += self._prove_or_commit(table, work)
            else:
                actions += self._refuse(name, work, "waits for the group offsets to be lowered", now_ms)
        return actions

    # --- attach, accept

    def _on_attach(self, message: Attach) -> list[CoordinatorAction]:
        known: dict[TopicPartition, Attachment] = {}
        actions: list[CoordinatorAction] = []
        for partition, topic_id in message.partitions.items():
            state = self._partitions.get(partition)
            if state is None or state.topic_id != topic_id:
                actions = [DescribeTopics()]  # the task asks again
                continue
            if state.accepted < state.log_start:
                # Whether anybody still needs these rows, a new life finds out: this one may be a sleeper.
                raise _EndError(Stop(f"{partition} stands at {state.accepted}, its log starts at {state.log_start}"))
            known[partition] = self._attachment(partition)
            state.owned = True
            if self._cycle is not None:
                self._cycle.late.add(partition)
        if known:
            actions.append(Send(Attached(self.epoch, message.nonce, known, self._commits_text())))
        return actions

    def _on_open_table(self, message: OpenTable) -> list[CoordinatorAction]:
        table = self._tables.get(message.table)
        if table and not table.missing and table.answer is not None and message.need is Need.CREATE:
            return [self._opened(message.table, table)]
        if message.table in self._asked:
            return []  # the answer reaches everybody
        self._asked[message.table] = (message.need, message.schema)
        return [PrepareTable(message.table, message.need, message.schema)]

    def _on_report(self, message: Report, now_ms: int) -> list[CoordinatorAction]:
        actions: list[CoordinatorAction] = []
        refused: dict[str, dict[TopicPartition, Attachment]] = {}
        for partition, reported in message.ranges.items():
            state = self._partitions.get(partition)
            if state is None or reported.topic_id != state.topic_id:
                actions = [DescribeTopics()]
                continue
            if reported.start != state.accepted or reported.generation != state.generation:
                refused.setdefault(reported.nonce, {})[partition] = self._attachment(partition)
                continue
            state.accepted = reported.next
            if reported.next > reported.start or not state.queue:
                state.queue.append(reported)
        commits = self._commits_text()
        actions += [Send(Rewind(self.epoch, nonce, rewound, commits)) for nonce, rewound in refused.items()]
        return [*actions, *self._apply_if_ready(now_ms)]

    def _attachment(self, partition: TopicPartition) -> Attachment:
        state = self._partitions[partition]
        needs = {
            name: TableNeed(table.uuid, table.needs[partition])
            for name, table in self._tables.items()
            if not table.missing
        }
        floor = self._floor_to_send(partition)
        return Attachment(state.topic_id, state.generation, state.accepted, floor, state.rewind, needs)

    def _floor_to_send(self, partition: TopicPartition) -> int:
        """The floor, for a task: from now on it may be in the group."""
        state = self._partitions[partition]
        floor = self._floor(partition)
        state.sent[-1] = max(state.sent[-1], floor)
        return floor

    def _commits_text(self) -> str:
        return self._commits.to_text(len(self._partitions))

    def _floor(self, partition: TopicPartition) -> int:
        """The position below which all opened tables are complete (rule 20); a missing table still holds it."""
        needed = [table.needs[partition] for table in self._tables.values()]
        return min([self._partitions[partition].applied, *needed])

    # --- tables

    def _open(self, name: str, lookup: Lookup) -> list[CoordinatorAction]:
        """Decide from where on a table needs rows (rules 7 and 8)."""
        if lookup.highest_epoch and lookup.highest_epoch > self.epoch:
            raise _EndError(Stop(f"epoch {lookup.highest_epoch} in table {name} is above ours"))
        self._check_twins(name, lookup)
        ledger = lookup.ledger
        if ledger and ledger.cluster != self._settings.cluster:
            raise _failed(
                f"table {name} is written by a connector of the same name on Kafka cluster {ledger.cluster}, "
                f"this one reads cluster {self._settings.cluster}: rename one of them"
            )
        if lookup.standing in _NOT_KNOWN:
            why = _NOT_KNOWN[lookup.standing].format(snapshot=lookup.version.property_snapshot)
            raise _failed(f"table {name} {why}")
        went_back = self._went_back(lookup)
        if went_back and ledger is None:
            raise _failed(
                f"table {name} knows of no commit, though this connector has committed to it: the catalog seems to "
                "have gone back in time, as one that was restored from a backup, or the property that names "
                "its last commit was removed. Alter the offsets of all partitions to where the table goes on from"
            )
        rolled_back = went_back or lookup.standing is Standing.ROLLED_BACK
        needs: dict[TopicPartition, int] = {}
        bases: dict[TopicPartition, int] = {}
        opened: dict[TopicPartition, Position] = {}
        for partition, state in self._partitions.items():
            needed = self._needed(name, partition, state, lookup, rolled_back, went_back)
            if needed < state.log_start:
                raise _failed(
                    f"table {name} needs {partition} from offset {needed}, but the log starts at "
                    f"{state.log_start}: rows are lost"
                )
            needs[partition] = needed
            opened[partition] = self._began(lookup, partition, state) or Position(state.generation, needed)
            entry = ledger.entry(partition, state.topic_id) if ledger else None
            bases[partition] = entry.next if entry and entry.generation == state.generation else needed
        old = self._tables.get(name)
        self._tables[name] = _Table(
            lookup.version,
            ledger,
            opened,
            needs,
            bases,
            guarded=rolled_back or self._is_below_a_sent_floor(needs),
            answer=old.answer if old and old.uuid == lookup.version.uuid else None,
            committed=bool(old and old.committed and old.uuid == lookup.version.uuid),
            failures=old.failures if old else 0,
        )
        if ledger is not None:
            self._commits.note(lookup.version.uuid, ledger)
        if went_back:
            return [Warn(_WENT_BACK.format(name=name))]
        return [self._rolled_back(name, lookup)] if rolled_back else []

    def _rolled_back(self, name: str, lookup: Lookup) -> Warn:
        """Tell of a table that its owner rolled back, and how much is read again for it."""
        snapshot, newest = lookup.version.ledger_snapshot, lookup.version.property_snapshot
        where = "to before its first commit, or replaced by an empty one"
        if snapshot is not None:
            where = f"to snapshot {snapshot}, the newest commit of this connector was snapshot {newest}"
        needs = self._tables[name].needs
        rows = sum(max(0, self._partitions[p].applied - needed) for p, needed in needs.items())
        again = f", {rows} offsets are read again" if rows else ""
        return Warn(_ROLLED_BACK.format(name=name, where=where, again=again))

    def _is_below_a_sent_floor(self, needs: Mapping[TopicPartition, int]) -> bool:
        """Whether a floor that this epoch sent before a rewind lies above such needs (rule 8)."""
        return any(needed < max(self._partitions[partition].sent) for partition, needed in needs.items())

    def _went_back(self, lookup: Lookup) -> bool:
        """Whether a newer commit was seen than the table knows of, and no roll-back tells of it (rule 4)."""
        known = lookup.standing in (Standing.FOUND, Standing.EXPIRED, Standing.NONE)
        return known and self._commits.is_above(lookup.version.uuid, lookup.ledger)

    def _check_twins(self, name: str, lookup: Lookup) -> None:
        """Two names of one table have one ledger: what one name commits would count as done for the other."""
        for other, table in self._tables.items():
            if other != name and table.uuid == lookup.version.uuid and not table.missing:
                raise _failed(
                    f"{other} and {name} are one table (uuid {table.uuid}), as in a catalog that takes no notice of "
                    "case: give it one name in the routes. If it was renamed just now, restart the connector"
                )

    def _began(self, lookup: Lookup, partition: TopicPartition, state: _Partition) -> Position | None:
        """Where the table began, unless that was in another topic of the same name."""
        if lookup.topic_ids.get(partition.topic) != state.topic_id:
            return None
        return lookup.opened.get(partition)

    def _needed(
        self, name: str, partition: TopicPartition, state: _Partition, lookup: Lookup, rolled_back: bool,
        went_back: bool,
    ) -> int:  # fmt: skip
        """E of one partition. `went_back`: rolled back, and its property with it."""
        floor = self._floor(partition)
        ledger = lookup.ledger
        topic = ledger.topics.get(partition.topic) if ledger else None
        if topic and topic.topic_id != state.topic_id:
            if not self._settings.new_topic_allowed:
                raise _failed(
                    f"table {name} holds rows of a topic {partition.topic} that was deleted since: allow the "
                    "new topic to read it from its start"
                )
            return 0 if rolled_back else state.log_start  # what was rolled back may have been of the new topic
        entry = topic.partitions.get(partition.partition) if topic else None
        if entry and entry.generation > state.generation:
            state.generation = entry.generation  # of a deliberate rewind that the group forgot
            return entry.next
        if rolled_back:
            left = entry.position if entry else self._began(lookup, partition, state)
            if left is None:
                return 0 if went_back else state.log_start  # a table of before the partition knows not where that began
            return left.next if left.generation == state.generation else min(left.next, floor)
        if entry is None or entry.generation < state.generation:
            return floor
        if self._is_newer_than_the_group(ledger, state):
            return entry.next
        return max(entry.next, floor)

    def _is_newer_than_the_group(self, ledger: Ledger | None, state: _Partition) -> bool:
        """Whether the group speaks for an epoch that ended before this table's last commit (rule 7).

        An owner of that epoch may have committed its floor after the table was replaced, and opened below it.
        """
        if ledger is None or state.mark_epoch is None:
            return False
        return state.mark_epoch < ledger.epoch.number < self.epoch.number

    def _opened(self, name: str, table: _Table) -> Send:
        return Send(TableOpened(self.epoch, name, table.uuid, dict(table.needs), table.answer or ""))

    # --- a cycle

    def _start_cycle(self, now_ms: int) -> list[CoordinatorAction]:
        self._cycles += 1
        self._cycle = _Cycle(self._cycles, now_ms)
        self._next_start_ms = now_ms + self._settings.commit_interval_ms
        return [Send(StartCommit(self.epoch, self._cycles, self._releases(), self._commits_text()))]

    def _releases(self) -> dict[TopicPartition, Release]:
        return {p: Release(self._floor_to_send(p), s.rewind) for p, s in self._partitions.items()}

    def _apply_if_ready(self, now_ms: int) -> list[CoordinatorAction]:
        """Ready = every partition of the topics has reported: a set, not a count.

        Not waited for: those that no task had when the cycle started, since no task reports them in it.
        """
        cycle = self._cycle
        if cycle is None or cycle.taken is not None:
            return []
        waiting = any(
            state.described and state.owned and not state.queue and partition not in cycle.late
            for partition, state in self._partitions.items()
        )
        return [] if waiting else self._apply(now_ms)

    def _apply(self, now_ms: int) -> list[CoordinatorAction]:
        """Take at most one range per partition (rule 13) and begin with each table that has rows in them."""
        cycle = self._cycle
        assert cycle is not None
        cycle.taken = {p: self._take(s.queue) for p, s in self._partitions.items() if s.queue}
        with_rows = {
            name for taken in cycle.taken.values() for name, part in taken.tables.items() if part.first is not None
        }
        behind = {name for name, table in self._tables.items() if self._is_behind(table)}
        wanted = with_rows | behind
        cycle.work = {name: _Work() for name, table in self._tables.items() if name in wanted and not table.missing}
        if not cycle.work:
            return self._finish(now_ms)
        return [LoadTable(name) for name in cycle.work]

    def _is_behind(self, table: _Table) -> bool:
        """Whether a user's rewind or skip is not in the table's ledger yet; a commit without files takes it there."""
        if table.ledger is None:
            return False
        entries = [(table.ledger.entry(p, state.topic_id), state) for p, state in self._partitions.items()]
        return any(entry is not None and entry.generation < state.generation for entry, state in entries)

    def _take(self, queue: deque[Range]) -> Range:
        """One range: what follows waits, because a refusal of this one would leave a gap before it."""
        return queue.popleft()

    def _plan(self, name: str, work: _Work, lookup: Lookup, now_ms: int) -> list[CoordinatorAction]:
        """Check the table and the positions, prepare the new ledger (step 4)."""
        actions: list[CoordinatorAction] = []
        if self._tables[name].version != lookup.version:
            actions += self._open(name, lookup)
        table = self._tables[name]
        after, with_rows = self._share(name, table)
        if not with_rows and not self._is_behind(table):
            table.needs = after
            work.step = _Step.DONE
            return [*actions, *self._finish_if_done(now_ms)]
        work.after = after
        work.request = self._request(name, table, after, with_rows)
        if table.guarded:
            work.step = _Step.GROUP
            return [*actions, ReadGroupOffsets()]
        return [*actions, *self._prove_or_commit(table, work)]

    def _prove_or_commit(self, table: _Table, work: _Work) -> list[CoordinatorAction]:
        assert work.request is not None
        if table.ledger is None:
            work.step = _Step.LEADERSHIP
            return [ProveLeadership(work.request.commit)]
        work.step = _Step.COMMIT
        return [work.request]

    def _share(self, name: str, table: _Table) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Range]]:
        """A table's share of the ranges taken (rules 15, 19, 22): `needs` after it, and the ranges with rows for it.

        A range is left out, and its partition's position stays, when rows would be missing (the lower
        bound lies above the position) or doubled (its first row lies below).
        """
        assert self._cycle is not None
        after = dict(table.needs)
        with_rows: dict[TopicPartition, Range] = {}
        for partition, taken in (self._cycle.taken or {}).items():
            needed = table.needs[partition]
            part = taken.tables.get(name)
            first = part.first if part else None
            replaced = part is not None and part.uuid != table.uuid
            rewound = taken.generation != self._partitions[partition].generation
            gap = max(taken.start, part.filter if part else 0) > needed
            doubled = first is not None and first < needed
            if replaced or rewound or gap or doubled:
                continue
            after[partition] = max(needed, taken.next)
            if first is not None:
                with_rows[partition] = taken
        return after, with_rows

    def _request(
        self, name: str, table: _Table, after: Mapping[TopicPartition, int], with_rows: Mapping[TopicPartition, Range]
    ) -> CommitTable:
        assert self._cycle is not None
        topics: dict[str, TopicLedger] = {}
        entries: dict[str, dict[int, LedgerEntry]] = {}
        for partition, state in sorted(self._partitions.items()):
            entry = LedgerEntry(state.generation, table.bases[partition], after[partition])
            entries.setdefault(partition.topic, {})[partition.partition] = entry
            topics[partition.topic] = TopicLedger(state.topic_id, entries[partition.topic])
        commit = self._new_uuid()
        cycle = self._cycle.number
        ledger = Ledger(self.epoch, commit, cycle, table.uuid, self._settings.cluster, topics)
        files = {p: taken.tables[name].files for p, taken in with_rows.items()}
        return CommitTable(
            name, commit, cycle, table.version, ledger, dict(table.opened), files, self._valid_through(after)
        )

    def _valid_through(self, after: Mapping[TopicPartition, int]) -> int | None:
        """Every record up to this time is in the table that will stand at `after`; None: that is not known.

        The lowest over all partitions of the time of the latest record. One that brings none is known as far as its
        records went before, or up to when its log was seen to end where the table stands.
        """
        assert self._cycle is not None
        times: list[int] = []
        for partition, state in self._partitions.items():
            taken = (self._cycle.taken or {}).get(partition)
            if taken is None or taken.next > after[partition]:
                return None  # late, or refused: older rows may be among those that are missing
            quiet_since = state.end_ms if state.end <= after[partition] else None
            time = taken.timestamp_ms if taken.timestamp_ms is not None else _latest(state.through_ms, quiet_since)
            if time is None:
                return None
            times.append(time)
        return min(times, default=None)

    def ages(self) -> dict[str, TableAge]:
        """How old tables are now, also those for which no rows come."""
        return {name: self._age(table) for name, table in self._tables.items() if not table.missing}

    def _age(self, table: _Table) -> TableAge:
        """As `_valid_through`, for what the table holds now, and as far as is known of partitions that are late."""
        times: list[int | None] = []
        complete = True
        for partition, state in self._partitions.items():
            if not state.described:
                continue
            needed = table.needs[partition]
            ended = state.end_ms is not None and state.end <= needed
            complete = complete and ended
            read_ms = state.through_ms if needed >= state.applied else None
            times.append(_latest(read_ms, state.end_ms if ended else None))
        known = [time for time in times if time is not None]
        return TableAge(min(known) if known and len(known) == len(times) else None, complete)

    def _landed(self, name: str, work: _Work, version: TableVersion, now_ms: int) -> list[CoordinatorAction]:
        """Step 5 is done: the snapshot is visible and its ledger is the table's (rule 18)."""
        assert work.request is not None
        table = self._tables[name]
        actions: list[CoordinatorAction] = []
        table.version, table.ledger = version, work.request.ledger
        self._commits.note(table.uuid, work.request.ledger)
        table.needs.update(work.after)  # partitions added since keep theirs
        table.bases.update(work.after)
        table.guarded, table.failures = False, 0
        if not table.committed:
            table.committed = True
            actions.append(CleanFiles(name, table.uuid, self.epoch))  # earlier, a sleeper's swap needs them
        work.step = _Step.DONE
        return [*actions, *self._finish_if_done(now_ms)]

    def _lost(self, name: str, work: _Work, now_ms: int) -> list[CoordinatorAction]:
        """The table is missing (rule 22). It holds the floor until a task asks for it and it is created again."""
        self._tables[name].missing = True
        return self._refuse(name, work, "does not exist", now_ms)

    def _refuse(self, name: str, work: _Work, reason: str, now_ms: int) -> list[CoordinatorAction]:
        """Not in this cycle: the partitions with rows for the table are read again, others go on."""
        table = self._tables[name]
        table.failures += 1
        work.step = _Step.DONE
        return [ReportFailure(name, reason, table.failures), *self._finish_if_done(now_ms)]

    def _unknown_for_long(self, name: str, work: _Work, reason: str) -> list[CoordinatorAction]:
        """An unknown outcome is never given up, since the commit may have landed; but it is reported."""
        if not work.unknown or work.tries % self._settings.max_tries:
            return []
        self._tables[name].failures += 1
        return [ReportFailure(name, f"outcome of a commit is unknown: {reason}", self._tables[name].failures)]

    def _finish_if_done(self, now_ms: int) -> list[CoordinatorAction]:
        assert self._cycle is not None
        done = all(work.step is _Step.DONE for work in self._cycle.work.values())
        return self._finish(now_ms) if done else []

    def _finish(self, now_ms: int) -> list[CoordinatorAction]:
        """Move tables along where a range had no rows for them, rewind what was refused, release (step 6, rule 20)."""
        cycle = self._cycle
        assert cycle is not None
        taken = cycle.taken or {}
        for name, table in self._tables.items():
            after, with_rows = self._share(name, table)
            table.needs = {p: table.needs[p] if p in with_rows else after[p] for p in after}
        unopened: dict[TopicPartition, int] = {}
        for partition, done in taken.items():
            state = self._partitions[partition]
            state.applied = done.next
            state.through_ms = _latest(state.through_ms, done.timestamp_ms)
            if any(part.first is not None and t not in self._tables for t, part in done.tables.items()):
                unopened[partition] = done.start  # rows of a table that this epoch never opened
        actions = self._rewind_where_needed(unopened)
        self._cycle = None
        actions.append(Send(CommitComplete(self.epoch, cycle.number, self._releases(), self._commits_text())))
        for name, (need, schema) in self._again.items():
            self._asked[name] = (need, schema)
            actions.append(PrepareTable(name, need, schema))
        self._again.clear()
        return actions

    def _rewind_where_needed(self, unopened: Mapping[TopicPartition, int] | None = None) -> list[CoordinatorAction]:
        """A table needs rows from below what went through: drop the queue, read again from there (rule 20)."""
        rewound: dict[TopicPartition, Attachment] = {}
        for partition, state in self._partitions.items():
            lowest = min(self._floor(partition), (unopened or {}).get(partition, state.applied))
            if lowest < state.applied:
                state.applied = state.accepted = lowest
                state.through_ms = None
                state.queue.clear()
                state.rewind += 1
                state.sent.append(0)
                rewound[partition] = self._attachment(partition)
        return [Send(Rewind(self.epoch, None, rewound, self._commits_text()))] if rewound else []

    # --- small

    def _is_lowered(self, offset: GroupOffset | None, partition: TopicPartition, needed: int) -> bool:
        """Whether no owner of the group's offsets can pass `needed`, now or by a floor that it received last (rule 8).

        The owner follows the rewind that its mark names: floors sent before that one are forgotten.
        """
        if offset is None or offset.mark is None:
            return False
        state, mark = self._partitions[partition], offset.mark
        if mark.epoch != self.epoch or mark.topic_id != state.topic_id:
            return False
        return max([offset.offset, *state.sent[mark.rewind :]]) <= needed

    def _work(self, name: str, step: _Step) -> _Work | None:
        """The work that waits for this answer; late and unasked answers find none."""
        if self._cycle is None:
            return None
        work = self._cycle.work.get(name)
        return work if work and work.step is step else None


def _failed(why: str) -> _EndError:
    return _EndError(Fail(why))


def _check_log(partition: TopicPartition, position: int, log_start: int) -> None:
    """Refuse a position below the start of the log (rule 28)."""
    if position < log_start:
        raise _failed(
            f"{partition} goes on at offset {position}, but the log starts at {log_start}: rows are lost. Alter the "
            "connector's offsets to go on from there"
        )


def _note_end(state: _Partition, info: TopicInfo, number: int) -> None:
    if info.log_ends is not None:
        state.end, state.end_ms = info.log_ends[number], info.described_ms


def _latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)
