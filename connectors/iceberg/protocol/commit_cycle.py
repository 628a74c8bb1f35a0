"""`CommitCycle`: the ranges that one cycle takes, and each table's share of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from connectors.iceberg.protocol.actions import (
    CleanFiles,
    CommitTable,
    CoordinatorAction,
    EpochEndedError,
    LoadTable,
    ProveLeadership,
    ReadGroupOffsets,
    ReportFailure,
    Stop,
)
from connectors.iceberg.protocol.commit_request import CommitStatus
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    Lookup,
    TableVersion,
    TopicLedger,
)
from connectors.iceberg.protocol.messages import Range
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import TopicPartition
from connectors.iceberg.protocol.source_progress import SourceProgress, TableState, latest
from connectors.iceberg.protocol.table_opening import TableOpening


class Step(Enum):
    """What the work on one table in a cycle waits for."""

    LOAD = "load"  # the table; it shows whether a commit of unknown outcome landed
    LEADERSHIP = "leadership"
    GROUP = "group"
    COMMIT = "commit"
    PAUSE = "pause"  # before the next try
    DONE = "done"


@dataclass(slots=True)
class TableWork:
    """One table's share of a cycle that is being applied."""

    step: Step = Step.LOAD
    request: CommitTable | None = None
    # `needs` once the request has landed
    after: dict[TopicPartition, int] = field(default_factory=dict)
    tries: int = 0
    retry_ms: int = 0
    unknown: bool = False  # some try of `request` ended without an answer


class CommitCycle:
    """One cycle, from the request for reports to the release of offsets."""

    def __init__(
        self,
        number: int,
        started_ms: int,
        progress: SourceProgress,
        opening: TableOpening,
        new_uuid: Callable[[], str],
    ) -> None:
        self.number = number
        self.started_ms = started_ms
        self.taken: dict[TopicPartition, Range] | None = None  # None: still collecting
        # attached since it started: their task reports in the next
        self.late: set[TopicPartition] = set()
        self.work: dict[str, TableWork] = {}
        self._progress = progress
        self._rules = progress.rules
        self._opening = opening
        self._new_uuid = new_uuid

    def is_ready(self) -> bool:
        """Whether every partition of the topics has reported: a set, not a count.

        Not waited for: those that no task had when the cycle started, since no task reports them in
        it.
        """
        return self.taken is None and not any(
            state.described and state.owned and not state.queue and partition not in self.late
            for partition, state in self._progress.partitions.items()
        )

    def take(self) -> list[CoordinatorAction]:
        """Take at most one range per partition (rule 13) and begin with each table that has rows in
        them."""
        progress = self._progress
        self.taken = {
            p: self._rules.next_range(s.queue) for p, s in progress.partitions.items() if s.queue
        }
        with_rows = {
            name
            for taken in self.taken.values()
            for name, part in taken.tables.items()
            if part.first is not None
        }
        behind = {name for name, table in progress.tables.items() if progress.is_behind(table)}
        wanted = with_rows | behind
        self.work = {
            n: TableWork()
            for n, table in progress.tables.items()
            if n in wanted and not table.missing
        }
        return [LoadTable(name) for name in self.work]

    def is_done(self) -> bool:
        """Whether no table of the cycle has work left."""
        return self.taken is not None and all(work.step is Step.DONE for work in self.work.values())

    def finish(self) -> list[CoordinatorAction]:
        """Move tables along where a range had no rows for them, rewind what was refused (rule
        20)."""
        progress, taken_ranges = self._progress, self.taken or {}
        for name, table in progress.tables.items():
            after, with_rows = self._share(name, table)
            table.needs = {p: table.needs[p] if p in with_rows else after[p] for p in after}
        unopened: dict[TopicPartition, int] = {}
        for partition, taken in taken_ranges.items():
            state = progress.partitions[partition]
            state.applied = taken.next
            state.through_ms = latest(state.through_ms, taken.timestamp_ms)
            if any(
                part.first is not None and t not in progress.tables
                for t, part in taken.tables.items()
            ):
                unopened[partition] = taken.start  # rows of a table that this epoch never opened
        return progress.rewind_where_needed(unopened)

    # --- inputs, as those of `CoordinatorState`

    def on_tick(self, now_ms: int) -> list[CoordinatorAction]:
        """Try again."""
        actions: list[CoordinatorAction] = []
        for name, work in self.work.items():
            if work.step is Step.PAUSE and now_ms >= work.retry_ms:
                work.step = Step.LOAD
                actions.append(LoadTable(name))
        return actions

    def on_table_loaded(
        self, name: str, lookup: Lookup | None, now_ms: int
    ) -> list[CoordinatorAction]:
        """The answer to `LoadTable`. None: the table does not exist."""
        work = self._waiting(name, Step.LOAD)
        if work is None:
            return []
        if lookup is None:
            return self._lost(name, work)
        if work.request and work.request.commit in lookup.commits:
            if lookup.ledger and lookup.ledger.commit == work.request.commit:
                return self._landed(name, work, lookup.version)
            work.step = Step.DONE  # ours landed, and another writer's on top of it
            return self._opening.open(name, lookup)
        if work.unknown and work.request and lookup.version == work.request.expected:
            work.step = Step.COMMIT
            return [work.request]  # on the same base: both cannot land
        work.request, work.unknown = None, False
        return self._plan(name, work, lookup)

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
        work = self._waiting(name, Step.COMMIT)
        if work is None or work.request is None or work.request.commit != commit:
            return []
        match outcome:
            case CommitStatus.COMMITTED:
                version = TableVersion(work.request.expected.uuid, snapshot, snapshot)
                return self._landed(name, work, version)
            case CommitStatus.MISSING:
                return self._lost(name, work)
        work.tries += 1
        work.unknown = work.unknown or outcome is CommitStatus.UNKNOWN
        if work.tries >= self._progress.settings.max_tries and not work.unknown:
            return self._refuse(name, work, reason)
        work.retry_ms = now_ms + self._progress.settings.retry_delay_ms
        if outcome is CommitStatus.FAILED or work.tries > 1:
            work.step = Step.PAUSE
            return self._unknown_for_long(name, work, reason)
        work.step = Step.LOAD
        return [LoadTable(name)]

    def on_load_failed(self, name: str, reason: str, now_ms: int) -> list[CoordinatorAction]:
        """The catalog could not be asked. Tried again a bounded number of times in this cycle."""
        work = self._waiting(name, Step.LOAD)
        if work is None:
            return []
        work.tries += 1
        if work.tries >= self._progress.settings.max_tries and not work.unknown:
            return self._refuse(name, work, reason)
        work.step, work.retry_ms = Step.PAUSE, now_ms + self._progress.settings.retry_delay_ms
        return self._unknown_for_long(name, work, reason)

    def on_leadership(self, token: str, proven: bool) -> list[CoordinatorAction]:
        """The answer to `ProveLeadership`."""
        if not proven:
            raise EpochEndedError(Stop("another coordinator has fenced this one", overtaken=True))
        work = next(
            (w for w in self.work.values() if w.request and w.request.commit == token), None
        )
        if work is None or work.step is not Step.LEADERSHIP or work.request is None:
            return []
        work.step = Step.COMMIT
        return [work.request]

    def on_group_offsets(
        self, group: Mapping[TopicPartition, GroupOffset]
    ) -> list[CoordinatorAction]:
        """The answer to `ReadGroupOffsets`."""
        actions: list[CoordinatorAction] = []
        for name, work in list(self.work.items()):
            if work.step is not Step.GROUP or work.request is None:
                continue
            table = self._progress.tables[name]
            if all(
                self._progress.is_lowered(group.get(p), p, needed)
                for p, needed in table.needs.items()
            ):
                actions += self._prove_or_commit(table, work)
            else:
                actions += self._refuse(name, work, "waits for the group offsets to be lowered")
        return actions

    # --- one table

    def _plan(self, name: str, work: TableWork, lookup: Lookup) -> list[CoordinatorAction]:
        """Check the table and the positions, prepare the new ledger (step 4)."""
        actions: list[CoordinatorAction] = []
        if self._progress.tables[name].version != lookup.version:
            actions += self._opening.open(name, lookup)
        table = self._progress.tables[name]
        after, with_rows = self._share(name, table)
        if not with_rows and not self._progress.is_behind(table):
            table.needs = after
            work.step = Step.DONE
            return actions
        work.after = after
        work.request = self._request(name, after, with_rows)
        if table.guarded:
            work.step = Step.GROUP
            return [*actions, ReadGroupOffsets()]
        return [*actions, *self._prove_or_commit(table, work)]

    def _prove_or_commit(self, table: TableState, work: TableWork) -> list[CoordinatorAction]:
        assert work.request is not None
        if self._rules.requires_proof_of_leadership(has_ledger=table.ledger is not None):
            work.step = Step.LEADERSHIP
            return [ProveLeadership(work.request.commit)]
        work.step = Step.COMMIT
        return [work.request]

    def _landed(self, name: str, work: TableWork, version: TableVersion) -> list[CoordinatorAction]:
        """Step 5 is done: the snapshot is visible and its ledger is the table's (rule 18)."""
        assert work.request is not None
        table = self._progress.tables[name]
        actions: list[CoordinatorAction] = []
        table.version, table.ledger = version, work.request.ledger
        self._progress.commits.note(table.uuid, work.request.ledger)
        table.needs.update(work.after)  # partitions added since keep theirs
        table.bases.update(work.after)
        table.guarded, table.failures = False, 0
        if not table.committed:
            table.committed = True
            # earlier, a sleeper's swap needs them
            actions.append(CleanFiles(name, table.uuid, self._progress.epoch))
        work.step = Step.DONE
        return actions

    def _lost(self, name: str, work: TableWork) -> list[CoordinatorAction]:
        """The table is missing (rule 22). It holds the floor until a task asks for it and it is
        created again."""
        self._progress.tables[name].missing = True
        return self._refuse(name, work, "does not exist")

    def _refuse(self, name: str, work: TableWork, reason: str) -> list[CoordinatorAction]:
        """Not in this cycle: the partitions with rows for the table are read again, others go
        on."""
        table = self._progress.tables[name]
        table.failures += 1
        work.step = Step.DONE
        return [ReportFailure(name, reason, table.failures)]

    def _unknown_for_long(self, name: str, work: TableWork, reason: str) -> list[CoordinatorAction]:
        """An unknown outcome is never given up, since the commit may have landed; but it is
        reported."""
        if not work.unknown or work.tries % self._progress.settings.max_tries:
            return []
        self._progress.tables[name].failures += 1
        return [
            ReportFailure(
                name,
                f"outcome of a commit is unknown: {reason}",
                self._progress.tables[name].failures,
            )
        ]

    def _waiting(self, name: str, step: Step) -> TableWork | None:
        """The work that waits for this answer; late and unasked answers find none."""
        work = self.work.get(name)
        return work if work and work.step is step else None

    def _share(
        self, name: str, table: TableState
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Range]]:
        """A table's share of the ranges taken (rules 15, 19, 22): `needs` after it, and the ranges
        with rows for it.

        A range is left out, and its partition's position stays, when rows would be missing (the
        lower bound lies above the position) or doubled (its first row lies below).
        """
        after = dict(table.needs)
        with_rows: dict[TopicPartition, Range] = {}
        for partition, taken in (self.taken or {}).items():
            needed = table.needs[partition]
            part = taken.tables.get(name)
            first = part.first if part else None
            replaced = part is not None and not self._rules.is_staged_for(part.uuid, table.uuid)
            rewound = taken.generation != self._progress.partitions[partition].generation
            lower_bound = max(taken.start, part.filter if part else 0)
            fits = (
                self._rules.is_gapless(lower_bound, needed)
                if first is None
                else self._rules.is_exact(lower_bound, first, needed)
            )
            if replaced or rewound or not fits:
                continue
            after[partition] = max(needed, taken.next)
            if first is not None:
                with_rows[partition] = taken
        return after, with_rows

    def _request(
        self,
        name: str,
        after: Mapping[TopicPartition, int],
        with_rows: Mapping[TopicPartition, Range],
    ) -> CommitTable:
        """What is asked of a table that will stand at `after`, with the ledger that says so (step
        4)."""
        table, commit = self._progress.tables[name], self._new_uuid()
        topics: dict[str, TopicLedger] = {}
        entries: dict[str, dict[int, LedgerEntry]] = {}
        for partition, position in sorted(self._rules.ledger_positions(after, with_rows).items()):
            state = self._progress.partitions[partition]
            entry = LedgerEntry(state.generation, table.bases[partition], position)
            entries.setdefault(partition.topic, {})[partition.partition] = entry
            topics[partition.topic] = TopicLedger(state.topic_id, entries[partition.topic])
        ledger = Ledger(
            self._progress.epoch,
            commit,
            self.number,
            table.uuid,
            self._progress.settings.cluster,
            topics,
        )
        files = {p: taken.tables[name].files for p, taken in with_rows.items()}
        return CommitTable(
            name,
            commit,
            table.version,
            ledger,
            dict(table.opened),
            files,
            self._valid_through(after),
        )

    def _valid_through(self, after: Mapping[TopicPartition, int]) -> int | None:
        """Every record up to this time is in the table that will stand at `after`; None: that is
        not known.

        The lowest over all partitions of the time of the latest record. One that brings none is
        known as far as its records went before, or up to when its log was seen to end where the
        table stands.
        """
        times: list[int] = []
        for partition, state in self._progress.partitions.items():
            taken = (self.taken or {}).get(partition)
            if taken is None or taken.next > after[partition]:
                return None  # late, or refused: older rows may be among those that are missing
            quiet_since = state.end_ms if state.end <= after[partition] else None
            time = (
                taken.timestamp_ms
                if taken.timestamp_ms is not None
                else latest(state.through_ms, quiet_since)
            )
            if time is None:
                return None
            times.append(time)
        return min(times, default=None)
