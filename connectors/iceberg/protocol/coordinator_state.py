"""The coordinator's side of the protocol: who may read from where, what is committed, what is
released."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec

from connectors.iceberg.protocol.actions import (
    CoordinatorAction,
    DescribeTopics,
    EpochEndedError,
    PrepareTable,
    Send,
    Stop,
)
from connectors.iceberg.protocol.commit_cycle import CommitCycle
from connectors.iceberg.protocol.commit_request import CommitStatus
from connectors.iceberg.protocol.last_commits import LastCommits
from connectors.iceberg.protocol.ledger import Standing, TableView, look_up
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    CommitComplete,
    EpochStarted,
    Message,
    Need,
    OpenTable,
    Report,
    Rewind,
    StartCommit,
    TableOpened,
    TableRefused,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition
from connectors.iceberg.protocol.rules import PROTOCOL_RULES, ProtocolRules
from connectors.iceberg.protocol.source_progress import (
    CoordinatorSettings,
    SourceProgress,
    TableAge,
    TableState,
    TopicInfo,
)
from connectors.iceberg.protocol.table_opening import TableOpening

_P = ParamSpec("_P")
_Input = Callable[Concatenate["CoordinatorState", _P], list[CoordinatorAction]]


def _input(method: _Input[_P]) -> _Input[_P]:
    """An input is ignored after the end. If it brings the end, the reason is all that it
    returns."""

    @wraps(method)
    def checked(
        self: CoordinatorState, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> list[CoordinatorAction]:
        if self.ended:
            return []
        try:
            return method(self, *args, **kwargs)
        except EpochEndedError as end:
            self.ended = True
            return [end.action]

    return checked


class CoordinatorState:
    """Plain data in, actions out. Owned by the coordinator thread; nothing here waits or does
    input/output.

    Every answer to an action comes in by the method that the action names. Actions on different
    tables may be carried out in any order or at once, those of one table in the order given. After
    `Stop` or `Fail` (see `ended`) every input is ignored.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        nonce: str,
        new_uuid: Callable[[], str],
        rules: ProtocolRules = PROTOCOL_RULES,
    ) -> None:
        """`nonce` and `new_uuid` are unique over all lives of all coordinators."""
        self.ended = False
        self._settings = settings
        self._new_uuid = new_uuid
        self._rules = rules
        self._progress = SourceProgress(settings, Epoch(0, nonce), rules)
        self._opening = TableOpening(self._progress)
        self._asked: dict[str, tuple[Need, str]] = {}  # tables being prepared
        self._again: dict[
            str, tuple[Need, str]
        ] = {}  # prepared while being committed: once more afterwards
        self._cycle: CommitCycle | None = None
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

        The caller has fenced the coordinator before (`init_transactions`), **then** read the
        channel to its end (`channel_epoch`: the highest in it), the group's offsets, and every
        table of the settings (None: does not exist). `group` may hold first positions for a
        connector that never ran, resolved to numbers. `log_ends` must have been read **after** the
        tables: then a ledger above the end is not a race but a log that lost its tail, and an
        error.
        """
        lookups = {
            name: look_up(view, self._rules) for name, view in tables.items() if view is not None
        }
        recorded_epochs = [offset.mark.epoch for offset in group.values() if offset.mark]
        recorded_epochs += [
            lookup.highest_epoch for lookup in lookups.values() if lookup.highest_epoch
        ]
        self._progress.commits = LastCommits.of_marks(
            offset.mark for offset in group.values() if offset.mark
        )
        number = self._rules.epoch_number(
            self._settings.start_number, channel_epoch, recorded_epochs
        )
        self._progress.epoch = Epoch(number, self.epoch.nonce)
        self._next_start_ms = now_ms + self._settings.commit_interval_ms

        actions: list[CoordinatorAction] = []
        self._progress.begin(topics, group, lookups, unknown=len(lookups) < len(tables))
        for name, lookup in lookups.items():
            self._progress.check_ends(name, lookup, log_ends or {})
            actions += self._opening.open(name, lookup)
        self._progress.rewind_where_needed()  # no task is attached yet: no message
        return [Send(EpochStarted(self.epoch)), *actions]

    @property
    def epoch(self) -> Epoch:
        """Chosen by `begin`."""
        return self._progress.epoch

    @property
    def failing(self) -> frozenset[str]:
        """Tables that took no commit when rows for them came last."""
        return frozenset(name for name, table in self._progress.tables.items() if table.failures)

    @property
    def next_cycle_ms(self) -> int | None:
        """Return when the next cycle starts, on the clock of `on_tick`; None while a cycle is under
        way."""
        return self._next_start_ms if self._cycle is None and not self.ended else None

    @property
    def remaining(self) -> int:
        """How many offsets lie between the floors and the bounds: with bounds and 0, the connector
        has all it wants."""
        return self._progress.remaining()

    # --- inputs

    @_input
    def on_tick(self, now_ms: int) -> list[CoordinatorAction]:
        """Time passes: start a cycle, give up waiting for reports, try again."""
        if self._cycle is None:
            return self._start_cycle(now_ms) if now_ms >= self._next_start_ms else []
        if self._cycle.taken is None:
            if now_ms - self._cycle.started_ms >= self._settings.commit_timeout_ms:
                return self._apply(self._cycle)
            return self._apply_if_ready()
        return self._cycle.on_tick(now_ms)

    @_input
    def on_message(self, message: Message) -> list[CoordinatorAction]:
        """Take one message of the channel. Our own come back too, and are ignored."""
        epoch = message.seen if isinstance(message, Attach) else message.epoch
        if epoch is not None and epoch > self.epoch:
            raise EpochEndedError(
                Stop(f"epoch {epoch} is above ours, {self.epoch}", overtaken=True)
            )
        start = (
            message.start if isinstance(message, Attach | Report) else self._settings.start_number
        )
        if start > self._settings.start_number:
            raise EpochEndedError(
                Stop(f"start {start} of the connector is above ours", overtaken=True)
            )
        if self._rules.is_from_earlier_start(start, self._settings.start_number):
            return []  # its configuration may not know of a route: its ranges would hide rows
        match message:
            case Attach():
                return self._on_attach(message)
            case OpenTable():
                return self._on_open_table(message) if epoch == self.epoch else []
            case Report():
                return self._on_report(message) if epoch == self.epoch else []
        return []

    @_input
    def on_topics(self, topics: Mapping[str, TopicInfo]) -> list[CoordinatorAction]:
        """The cluster described the topics again: partitions may have been added, a topic
        replaced."""
        self._progress.describe(topics)
        return []

    @_input
    def on_table_loaded(
        self, name: str, view: TableView | None, now_ms: int
    ) -> list[CoordinatorAction]:
        """The answer to `LoadTable`. None: the table does not exist."""
        if self._cycle is None:
            return []
        lookup = None if view is None else look_up(view, self._rules)
        return [*self._cycle.on_table_loaded(name, lookup, now_ms), *self._finish_if_done()]

    @_input
    def on_commit_outcome(
        self,
        name: str,
        commit: str,
        outcome: CommitStatus,
        reason: str,
        snapshot: int | None,
        now_ms: int,
    ) -> list[CoordinatorAction]:
        """The answer to `CommitTable`. `snapshot`: id of the new snapshot when committed."""
        if self._cycle is None:
            return []
        actions = self._cycle.on_commit_outcome(name, commit, outcome, reason, snapshot, now_ms)
        return [*actions, *self._finish_if_done()]

    @_input
    def on_load_failed(self, name: str, reason: str, now_ms: int) -> list[CoordinatorAction]:
        """The catalog could not be asked. Tried again a bounded number of times in this cycle."""
        if self._cycle is None:
            return []
        return [*self._cycle.on_load_failed(name, reason, now_ms), *self._finish_if_done()]

    @_input
    def on_table_prepared(self, name: str, view: TableView, answer: str) -> list[CoordinatorAction]:
        """The answer to `PrepareTable`: the table exists and has the columns; `answer` goes to the
        tasks."""
        asked = self._asked.pop(name, None)
        if asked is None:
            return []
        if self._cycle and name in self._cycle.work:
            self._again[name] = asked  # the view may be older than the commit under way
            return self._answered(name, view, answer)
        lookup = look_up(view, self._rules)
        table = self._progress.tables.get(name)
        actions: list[CoordinatorAction] = []
        if table is None or table.missing or table.version != lookup.version:
            actions += self._opening.open(name, lookup)
        table = self._progress.tables[name]
        table.answer = answer
        actions.append(self._opened(name, table))
        return [*actions, *self._rewind_between_cycles()]

    def _rewind_between_cycles(self) -> list[CoordinatorAction]:
        """Read again what a table needs; a cycle that is being applied does so at its end."""
        return (
            self._progress.rewind_where_needed()
            if self._cycle is None or self._cycle.taken is None
            else []
        )

    @property
    def quiet_tables(self) -> list[str]:
        """The tables of which no commit is under way, to be looked at: see `on_table_seen`."""
        busy = self._cycle.work if self._cycle else {}
        return [
            n
            for n, t in self._progress.tables.items()
            if not t.missing and n not in busy and n not in self._asked
        ]

    @_input
    def on_table_seen(self, name: str, view: TableView | None) -> list[CoordinatorAction]:
        """A table was looked at though no rows came for it: its owner may have rolled it back.

        Everything else that changed is met where it matters, by the next commit: a table that is
        gone or another one.
        """
        table = self._progress.tables.get(name)
        if (
            view is None
            or table is None
            or name not in self.quiet_tables
            or view.uuid != table.uuid
        ):
            return []
        lookup = look_up(view, self._rules)
        if table.version == lookup.version or lookup.standing is not Standing.ROLLED_BACK:
            return []
        return [*self._opening.open(name, lookup), *self._rewind_between_cycles()]

    def _answered(self, name: str, view: TableView, answer: str) -> list[CoordinatorAction]:
        """The answer alone, for the table that tasks know: keys to the storage in it may not wait
        for a long cycle.

        It holds no position, so partitions that wait for the table go on waiting.
        """
        table = self._progress.tables[name]
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
        table = self._progress.tables.get(name)
        skip = self._settings.skip_missing and (table is None or table.missing)
        skip = skip or (self._settings.skip_unknown and missing and table is None)
        if skip:
            self._progress.tables.pop(name, None)
        return [Send(TableRefused(self.epoch, name, error, skip, rows and not skip))]

    def on_table_waits(self, name: str) -> list[CoordinatorAction]:
        """The third answer to `PrepareTable`: not now. Who holds a partition for it asks again in a
        while."""
        self._asked.pop(name, None)
        return []

    @_input
    def on_leadership(self, token: str, proven: bool) -> list[CoordinatorAction]:
        """The answer to `ProveLeadership`."""
        return [] if self._cycle is None else self._cycle.on_leadership(token, proven)

    @_input
    def on_group_offsets(
        self, group: Mapping[TopicPartition, GroupOffset]
    ) -> list[CoordinatorAction]:
        """The answer to `ReadGroupOffsets`."""
        for offset in group.values():
            if offset.mark and offset.mark.epoch > self.epoch:
                raise EpochEndedError(
                    Stop(
                        f"epoch {offset.mark.epoch} in a group offset is above ours", overtaken=True
                    )
                )
        return (
            []
            if self._cycle is None
            else [*self._cycle.on_group_offsets(group), *self._finish_if_done()]
        )

    def ages(self) -> dict[str, TableAge]:
        """How old tables are now, also those for which no rows come."""
        return self._progress.ages()

    # --- attach, accept

    def _on_attach(self, message: Attach) -> list[CoordinatorAction]:
        known: dict[TopicPartition, Attachment] = {}
        actions: list[CoordinatorAction] = []
        for partition, topic_id in message.partitions.items():
            state = self._progress.partitions.get(partition)
            if state is None or not self._rules.is_same_topic(topic_id, state.topic_id):
                actions = [DescribeTopics()]  # the task asks again
                continue
            if self._progress.misses_rows(partition, state.accepted, state.log_start):
                # Whether anybody still needs these rows, a new life finds out: this one may be a
                # sleeper.
                raise EpochEndedError(
                    Stop(
                        f"{partition} stands at {state.accepted}, its log starts at "
                        f"{state.log_start}"
                    )
                )
            known[partition] = self._progress.attachment(partition)
            state.owned = True
            if self._cycle is not None:
                self._cycle.late.add(partition)
        if known:
            actions.append(
                Send(Attached(self.epoch, message.nonce, known, self._progress.commits_text()))
            )
        return actions

    def _on_open_table(self, message: OpenTable) -> list[CoordinatorAction]:
        table = self._progress.tables.get(message.table)
        if table and not table.missing and table.answer is not None and message.need is Need.CREATE:
            return [self._opened(message.table, table)]
        if message.table in self._asked:
            return []  # the answer reaches everybody
        self._asked[message.table] = (message.need, message.schema)
        return [PrepareTable(message.table, message.need, message.schema)]

    def _on_report(self, message: Report) -> list[CoordinatorAction]:
        actions: list[CoordinatorAction] = []
        refused: dict[str, dict[TopicPartition, Attachment]] = {}
        for partition, reported in message.ranges.items():
            state = self._progress.partitions.get(partition)
            if state is None or not self._rules.is_same_topic(reported.topic_id, state.topic_id):
                actions = [DescribeTopics()]
                continue
            start = Position(reported.generation, reported.start)
            if not self._rules.continues(start, Position(state.generation, state.accepted)):
                refused.setdefault(reported.nonce, {})[partition] = self._progress.attachment(
                    partition
                )
                continue
            state.accepted = reported.next
            if reported.next > reported.start or not state.queue:
                state.queue.append(reported)
        commits = self._progress.commits_text()
        actions += [
            Send(Rewind(self.epoch, nonce, rewound, commits)) for nonce, rewound in refused.items()
        ]
        return [*actions, *self._apply_if_ready()]

    def _opened(self, name: str, table: TableState) -> Send:
        return Send(
            TableOpened(self.epoch, name, table.uuid, dict(table.needs), table.answer or "")
        )

    # --- a cycle

    def _start_cycle(self, now_ms: int) -> list[CoordinatorAction]:
        self._cycles += 1
        self._cycle = CommitCycle(
            self._cycles, now_ms, self._progress, self._opening, self._new_uuid
        )
        self._next_start_ms = now_ms + self._settings.commit_interval_ms
        return [
            Send(
                StartCommit(
                    self.epoch,
                    self._cycles,
                    self._progress.releases(),
                    self._progress.commits_text(),
                )
            )
        ]

    def _apply_if_ready(self) -> list[CoordinatorAction]:
        cycle = self._cycle
        return self._apply(cycle) if cycle is not None and cycle.is_ready() else []

    def _apply(self, cycle: CommitCycle) -> list[CoordinatorAction]:
        return [*cycle.take(), *self._finish_if_done()]

    def _finish_if_done(self) -> list[CoordinatorAction]:
        """Release offsets when no table of the cycle has work left (step 6)."""
        cycle = self._cycle
        if cycle is None or not cycle.is_done():
            return []
        actions = cycle.finish()
        self._cycle = None
        progress = self._progress
        actions.append(
            Send(
                CommitComplete(
                    self.epoch, cycle.number, progress.releases(), progress.commits_text()
                )
            )
        )
        for name, (need, schema) in self._again.items():
            self._asked[name] = (need, schema)
            actions.append(PrepareTable(name, need, schema))
        self._again.clear()
        return actions
