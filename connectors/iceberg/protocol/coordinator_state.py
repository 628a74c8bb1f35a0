"""`CoordinatorState`: the coordinator side of the commit protocol."""

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
    """Ignore inputs after the end of the epoch, and return the action of `EpochEndedError`."""

    @wraps(method)
    def checked(
        self: CoordinatorState, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> list[CoordinatorAction]:
        if self.ended:
            return []
        try:
            return method(self, *args, **kwargs)
        except EpochEndedError as error:
            self.ended = True
            return [error.action]

    return checked


class CoordinatorState:
    """State machine of one epoch. Owned by the coordinator thread; never waits and performs no I/O.

    The docstring of each action names the method that receives its result. Actions on different
    tables may be performed in any order or concurrently, but actions on the same table must be
    performed in order. After `Stop` or `Fail` (see `ended`), all inputs are ignored.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        nonce: str,
        new_uuid: Callable[[], str],
        rules: ProtocolRules = PROTOCOL_RULES,
    ) -> None:
        """Create the state. `nonce` and the results of `new_uuid` must be globally unique."""
        self.ended = False
        self._settings = settings
        self._new_uuid = new_uuid
        self._rules = rules
        self._progress = SourceProgress(settings, Epoch(0, nonce), rules)
        self._opening = TableOpening(self._progress)
        self._pending_requests: dict[str, tuple[Need, str]] = {}  # by table
        # By table, requests that were answered without positions during a commit. They are
        # processed again when the cycle ends.
        self._deferred_requests: dict[str, tuple[Need, str]] = {}
        self._cycle: CommitCycle | None = None
        self._cycles = 0
        self._next_start_ms = 0

    # Start of the epoch

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
        """Choose the epoch, determine the start positions, and open the existing tables.

        The caller must have fenced the previous coordinator (`init_transactions`) *before* it read
        the channel, the group, and the tables.

        Args:
            topics: All source topics.
            group: The group offsets. For a connector that has never run, they may be the initial
                positions, resolved to offsets.
            tables: All configured tables, with None for each table that does not exist.
            channel_epoch: The highest epoch in the channel, which was read to its end.
            now_ms: The current time.
            log_ends: The log end offsets, read *after* the tables, so a ledger position beyond a
                log end means that the log has lost records.
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
        has_missing_table = len(lookups) < len(tables)
        self._progress.begin(topics, group, lookups, has_missing_table=has_missing_table)
        for name, lookup in lookups.items():
            self._progress.check_ends(name, lookup, log_ends or {})
            actions += self._opening.open(name, lookup)
        self._progress.rewind_where_needed()  # no message, because no task is attached yet
        return [Send(EpochStarted(self.epoch)), *actions]

    @property
    def epoch(self) -> Epoch:
        """Epoch that `begin` chose."""
        return self._progress.epoch

    @property
    def failing(self) -> frozenset[str]:
        """Tables whose last commit failed."""
        return frozenset(name for name, table in self._progress.tables.items() if table.failures)

    @property
    def next_cycle_ms(self) -> int | None:
        """Time at which `on_tick` starts the next cycle, or None during a cycle."""
        return self._next_start_ms if self._cycle is None and not self.ended else None

    @property
    def remaining(self) -> int:
        """Number of offsets between the floors and the bounds. A bounded connector is done at 0."""
        return self._progress.remaining()

    # Inputs

    @_input
    def on_tick(self, now_ms: int) -> list[CoordinatorAction]:
        """Start a cycle, end the wait for reports, or retry commits, depending on the time."""
        if self._cycle is None:
            return self._start_cycle(now_ms) if now_ms >= self._next_start_ms else []
        if self._cycle.is_collecting:
            if now_ms - self._cycle.started_ms >= self._settings.commit_timeout_ms:
                return self._apply(self._cycle)
            return self._apply_if_ready()
        return self._cycle.on_tick(now_ms)

    @_input
    def on_message(self, message: Message) -> list[CoordinatorAction]:
        """Handle a message from the channel. Messages from coordinators are ignored."""
        epoch = message.seen if isinstance(message, Attach) else message.epoch
        if epoch is not None and epoch > self.epoch:
            raise EpochEndedError(Stop(f"epoch {epoch} has started", overtaken=True))
        start = (
            message.start if isinstance(message, Attach | Report) else self._settings.start_number
        )
        if start > self._settings.start_number:
            raise EpochEndedError(
                Stop(f"the connector was restarted (start {start})", overtaken=True)
            )
        if self._rules.is_from_earlier_start(start, self._settings.start_number):
            return []
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
        """Handle the response to `DescribeTopics`."""
        self._progress.describe(topics)
        return []

    @_input
    def on_table_loaded(
        self, name: str, view: TableView | None, now_ms: int
    ) -> list[CoordinatorAction]:
        """Handle the response to `LoadTable`. `view` is None if the table does not exist."""
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
        """Handle the response to `CommitTable`. `snapshot` is the ID of the new snapshot."""
        if self._cycle is None:
            return []
        actions = self._cycle.on_commit_outcome(name, commit, outcome, reason, snapshot, now_ms)
        return [*actions, *self._finish_if_done()]

    @_input
    def on_load_failed(self, name: str, reason: str, now_ms: int) -> list[CoordinatorAction]:
        """Handle a failure of `LoadTable`. The number of attempts per cycle is limited."""
        if self._cycle is None:
            return []
        return [*self._cycle.on_load_failed(name, reason, now_ms), *self._finish_if_done()]

    @_input
    def on_table_prepared(self, name: str, view: TableView, answer: str) -> list[CoordinatorAction]:
        """Handle the success of `PrepareTable`. `answer` is sent to the tasks."""
        request = self._pending_requests.pop(name, None)
        if request is None:
            return []
        if self._cycle and name in self._cycle.work:
            self._deferred_requests[name] = request  # the view may be older than the commit
            return self._send_answer(name, view, answer)
        lookup = look_up(view, self._rules)
        table = self._progress.tables.get(name)
        actions: list[CoordinatorAction] = []
        if table is None or table.missing or table.version != lookup.version:
            actions += self._opening.open(name, lookup)
        table = self._progress.tables[name]
        table.answer = answer
        actions.append(self._table_opened(name, table))
        return [*actions, *self._rewind_between_cycles()]

    def _rewind_between_cycles(self) -> list[CoordinatorAction]:
        """Rewind partitions if a table needs earlier rows, unless a commit is in progress.

        The end of the cycle performs the rewinds that a commit has delayed.
        """
        if self._cycle is None or self._cycle.is_collecting:
            return self._progress.rewind_where_needed()
        return []

    @property
    def quiet_tables(self) -> list[str]:
        """Tables without a commit or request in progress, to be passed to `on_table_seen`."""
        tables_in_cycle = self._cycle.work if self._cycle else {}
        return [
            name
            for name, table in self._progress.tables.items()
            if not table.missing
            and name not in tables_in_cycle
            and name not in self._pending_requests
        ]

    @_input
    def on_table_seen(self, name: str, view: TableView | None) -> list[CoordinatorAction]:
        """Check whether a table without a commit in progress has been rolled back.

        The next commit detects all other changes, such as a replaced table.
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

    def _send_answer(self, name: str, view: TableView, answer: str) -> list[CoordinatorAction]:
        """Answer a request, but without positions, because a commit to the table is in progress.

        The answer may contain storage credentials, which cannot wait until the end of a long cycle.
        Partitions that are waiting for the table keep waiting.
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
        """Handle a refused `PrepareTable`.

        Args:
            name: Table name.
            error: Reason for the refusal.
            missing: True if the table does not exist and may not be created.
            rows: True if the table does not exist and cannot be created from the rows for which
                it was requested.
        """
        if self._pending_requests.pop(name, None) is None:
            return []
        table = self._progress.tables.get(name)
        skip = self._settings.skip_missing and (table is None or table.missing)
        skip = skip or (self._settings.skip_unknown and missing and table is None)
        if skip:
            self._progress.tables.pop(name, None)
        return [Send(TableRefused(self.epoch, name, error, skip, rows and not skip))]

    def on_table_waits(self, name: str) -> list[CoordinatorAction]:
        """Handle a deferred `PrepareTable`. Tasks repeat their requests later."""
        self._pending_requests.pop(name, None)
        return []

    @_input
    def on_leadership(self, token: str, proven: bool) -> list[CoordinatorAction]:
        """Handle the response to `ProveLeadership`."""
        return [] if self._cycle is None else self._cycle.on_leadership(token, proven)

    @_input
    def on_group_offsets(
        self, group: Mapping[TopicPartition, GroupOffset]
    ) -> list[CoordinatorAction]:
        """Handle the response to `ReadGroupOffsets`."""
        for offset in group.values():
            if offset.mark and offset.mark.epoch > self.epoch:
                reason = f"a group offset is from a later epoch, {offset.mark.epoch}"
                raise EpochEndedError(Stop(reason, overtaken=True))
        if self._cycle is None:
            return []
        return [*self._cycle.on_group_offsets(group), *self._finish_if_done()]

    def ages(self) -> dict[str, TableAge]:
        """Return the freshness of all tables, including tables that receive no rows."""
        return self._progress.ages()

    # Messages from tasks

    def _on_attach(self, message: Attach) -> list[CoordinatorAction]:
        attachments: dict[TopicPartition, Attachment] = {}
        actions: list[CoordinatorAction] = []
        for partition, topic_id in message.partitions.items():
            state = self._progress.partitions.get(partition)
            if state is None or not self._rules.is_same_topic(topic_id, state.topic_id):
                actions = [DescribeTopics()]  # the task repeats its request
                continue
            if self._progress.misses_rows(partition, state.accepted, state.log_start):
                # This coordinator may be outdated. The next run checks whether a table needs the
                # deleted rows.
                raise EpochEndedError(
                    Stop(
                        f"the position of {partition} is {state.accepted}, but its log starts at "
                        f"{state.log_start}"
                    )
                )
            attachments[partition] = self._progress.attachment(partition)
            state.owned = True
            if self._cycle is not None:
                self._cycle.late_partitions.add(partition)
        if attachments:
            commits = self._progress.encoded_commits()
            actions.append(Send(Attached(self.epoch, message.nonce, attachments, commits)))
        return actions

    def _on_open_table(self, message: OpenTable) -> list[CoordinatorAction]:
        table = self._progress.tables.get(message.table)
        if table and not table.missing and table.answer is not None and message.need is Need.CREATE:
            return [self._table_opened(message.table, table)]
        if message.table in self._pending_requests:
            return []  # all tasks receive the response
        self._pending_requests[message.table] = (message.need, message.schema)
        return [PrepareTable(message.table, message.need, message.schema)]

    def _on_report(self, message: Report) -> list[CoordinatorAction]:
        actions: list[CoordinatorAction] = []
        refusals: dict[str, dict[TopicPartition, Attachment]] = {}  # by nonce
        for partition, range_ in message.ranges.items():
            state = self._progress.partitions.get(partition)
            if state is None or not self._rules.is_same_topic(range_.topic_id, state.topic_id):
                actions = [DescribeTopics()]
                continue
            start = Position(range_.generation, range_.start)
            if not self._rules.continues(start, Position(state.generation, state.accepted)):
                attachment = self._progress.attachment(partition)
                refusals.setdefault(range_.nonce, {})[partition] = attachment
                continue
            state.accepted = range_.next
            if range_.next > range_.start or not state.queue:
                state.queue.append(range_)
        commits = self._progress.encoded_commits()
        actions += [
            Send(Rewind(self.epoch, nonce, attachments, commits))
            for nonce, attachments in refusals.items()
        ]
        return [*actions, *self._apply_if_ready()]

    def _table_opened(self, name: str, table: TableState) -> Send:
        return Send(
            TableOpened(self.epoch, name, table.uuid, dict(table.needs), table.answer or "")
        )

    # Cycles

    def _start_cycle(self, now_ms: int) -> list[CoordinatorAction]:
        self._cycles += 1
        self._cycle = CommitCycle(
            self._cycles, now_ms, self._progress, self._opening, self._new_uuid
        )
        self._next_start_ms = now_ms + self._settings.commit_interval_ms
        releases, commits = self._progress.releases(), self._progress.encoded_commits()
        return [Send(StartCommit(self.epoch, self._cycles, releases, commits))]

    def _apply_if_ready(self) -> list[CoordinatorAction]:
        cycle = self._cycle
        return self._apply(cycle) if cycle is not None and cycle.is_ready() else []

    def _apply(self, cycle: CommitCycle) -> list[CoordinatorAction]:
        return [*cycle.apply(), *self._finish_if_done()]

    def _finish_if_done(self) -> list[CoordinatorAction]:
        """Release offsets after the work on all tables in the cycle is done (step 6)."""
        cycle = self._cycle
        if cycle is None or not cycle.is_done():
            return []
        actions = cycle.finish()
        self._cycle = None
        releases, commits = self._progress.releases(), self._progress.encoded_commits()
        actions.append(Send(CommitComplete(self.epoch, cycle.number, releases, commits)))
        for name, (need, schema) in self._deferred_requests.items():
            self._pending_requests[name] = (need, schema)
            actions.append(PrepareTable(name, need, schema))
        self._deferred_requests.clear()
        return actions
