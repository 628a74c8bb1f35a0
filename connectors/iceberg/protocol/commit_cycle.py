"""`CommitCycle`: one commit cycle, from the request for reports to the release of offsets."""

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
    """State of the work on one table in a cycle."""

    LOAD = "load"  # waits for the table's current metadata, which also resolves an unknown outcome
    LEADERSHIP = "leadership"
    GROUP = "group"
    COMMIT = "commit"
    PAUSE = "pause"  # waits before the next attempt
    DONE = "done"


@dataclass(slots=True)
class TableWork:
    """State of the commit to one table in a cycle."""

    step: Step = Step.LOAD
    request: CommitTable | None = None
    # value of `TableState.needs` after the request has succeeded
    after: dict[TopicPartition, int] = field(default_factory=dict)
    tries: int = 0
    retry_ms: int = 0
    unknown: bool = False  # True if the outcome of any attempt of `request` is unknown


class CommitCycle:
    """Commits the reported ranges of one cycle to the tables."""

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
        self.ranges: dict[TopicPartition, Range] | None = None  # None while collecting reports
        # partitions that were attached after the cycle started; they report in the next cycle
        self.late_partitions: set[TopicPartition] = set()
        self.work: dict[str, TableWork] = {}
        self._progress = progress
        self._rules = progress.rules
        self._opening = opening
        self._new_uuid = new_uuid

    @property
    def is_collecting(self) -> bool:
        """True if the cycle still waits for reports."""
        return self.ranges is None

    def is_ready(self) -> bool:
        """Return True if all partitions that can report in this cycle have reported.

        Partitions that had no task at the start of the cycle cannot report in it.
        """
        return self.is_collecting and not any(
            state.described
            and state.owned
            and not state.queue
            and partition not in self.late_partitions
            for partition, state in self._progress.partitions.items()
        )

    def apply(self) -> list[CoordinatorAction]:
        """Select one range per partition, and start committing (rule 13 of the commit protocol)."""
        progress = self._progress
        self.ranges = {
            partition: self._rules.next_range(state.queue)
            for partition, state in progress.partitions.items()
            if state.queue
        }
        tables_with_rows = {
            name
            for range_ in self.ranges.values()
            for name, part in range_.tables.items()
            if part.first is not None
        }
        tables_behind = {
            name for name, table in progress.tables.items() if progress.is_behind(table)
        }
        self.work = {
            name: TableWork()
            for name, table in progress.tables.items()
            if name in tables_with_rows | tables_behind and not table.missing
        }
        return [LoadTable(name) for name in self.work]

    def is_done(self) -> bool:
        """Return True if the work on all tables in the cycle is done."""
        return not self.is_collecting and all(work.step is Step.DONE for work in self.work.values())

    def finish(self) -> list[CoordinatorAction]:
        """Advance the tables that received no rows, and rewind refused ranges (rules 19 and 20)."""
        progress = self._progress
        for name, table in progress.tables.items():
            after, with_rows = self._share(name, table)
            table.needs = {p: table.needs[p] if p in with_rows else after[p] for p in after}
        unopened: dict[TopicPartition, int] = {}
        for partition, range_ in (self.ranges or {}).items():
            state = progress.partitions[partition]
            state.applied = range_.next
            state.through_ms = latest(state.through_ms, range_.timestamp_ms)
            if any(
                part.first is not None and name not in progress.tables
                for name, part in range_.tables.items()
            ):
                unopened[partition] = range_.start  # a table has not been opened in this epoch
        return progress.rewind_where_needed(unopened)

    # Inputs, documented in `CoordinatorState`

    def on_tick(self, now_ms: int) -> list[CoordinatorAction]:
        """Retry the commits that are due."""
        actions: list[CoordinatorAction] = []
        for name, work in self.work.items():
            if work.step is Step.PAUSE and now_ms >= work.retry_ms:
                work.step = Step.LOAD
                actions.append(LoadTable(name))
        return actions

    def on_table_loaded(
        self, name: str, lookup: Lookup | None, now_ms: int
    ) -> list[CoordinatorAction]:
        """Handle the response to `LoadTable`. `lookup` is None if the table does not exist."""
        work = self._work_at(name, Step.LOAD)
        if work is None:
            return []
        if lookup is None:
            return self._missing(name, work)
        if work.request and work.request.commit in lookup.commits:
            if lookup.ledger and lookup.ledger.commit == work.request.commit:
                return self._committed(name, work, lookup.version)
            work.step = Step.DONE  # the commit succeeded, and a newer commit exists
            return self._opening.open(name, lookup)
        if work.unknown and work.request and lookup.version == work.request.expected:
            work.step = Step.COMMIT
            return [work.request]  # both attempts expect this version, so only one can succeed
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
        """Handle the response to `CommitTable`. `snapshot` is the ID of the new snapshot."""
        work = self._work_at(name, Step.COMMIT)
        if work is None or work.request is None or work.request.commit != commit:
            return []
        match outcome:
            case CommitStatus.COMMITTED:
                version = TableVersion(work.request.expected.uuid, snapshot, snapshot)
                return self._committed(name, work, version)
            case CommitStatus.MISSING:
                return self._missing(name, work)
        work.tries += 1
        work.unknown = work.unknown or outcome is CommitStatus.UNKNOWN
        if work.tries >= self._progress.settings.max_tries and not work.unknown:
            return self._give_up(name, work, reason)
        work.retry_ms = now_ms + self._progress.settings.retry_delay_ms
        if outcome is CommitStatus.FAILED or work.tries > 1:
            work.step = Step.PAUSE
            return self._report_unknown_outcome(name, work, reason)
        work.step = Step.LOAD
        return [LoadTable(name)]

    def on_load_failed(self, name: str, reason: str, now_ms: int) -> list[CoordinatorAction]:
        """Handle a failure of `LoadTable`. The number of attempts per cycle is limited."""
        work = self._work_at(name, Step.LOAD)
        if work is None:
            return []
        work.tries += 1
        if work.tries >= self._progress.settings.max_tries and not work.unknown:
            return self._give_up(name, work, reason)
        work.step, work.retry_ms = Step.PAUSE, now_ms + self._progress.settings.retry_delay_ms
        return self._report_unknown_outcome(name, work, reason)

    def on_leadership(self, token: str, proven: bool) -> list[CoordinatorAction]:
        """Handle the response to `ProveLeadership`."""
        if not proven:
            raise EpochEndedError(Stop("fenced by another coordinator", overtaken=True))
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
        """Handle the response to `ReadGroupOffsets`."""
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
                actions += self._give_up(name, work, "the group offsets have not been lowered yet")
        return actions

    # One table

    def _plan(self, name: str, work: TableWork, lookup: Lookup) -> list[CoordinatorAction]:
        """Check the version and the ranges of a table, and prepare its commit (step 4)."""
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
        if table.awaits_lowered_group:
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

    def _committed(
        self, name: str, work: TableWork, version: TableVersion
    ) -> list[CoordinatorAction]:
        """Adopt the ledger of the new snapshot (step 5)."""
        assert work.request is not None
        table = self._progress.tables[name]
        actions: list[CoordinatorAction] = []
        table.version, table.ledger = version, work.request.ledger
        self._progress.commits.note(table.uuid, work.request.ledger)
        table.needs.update(work.after)  # partitions that were added later are not in `after`
        table.bases.update(work.after)
        table.awaits_lowered_group, table.failures = False, 0
        if not table.committed:
            table.committed = True
            # Until this commit, a paused coordinator's commit could have succeeded and referred to
            # these files (rule 18).
            actions.append(CleanFiles(name, table.uuid, self._progress.epoch))
        work.step = Step.DONE
        return actions

    def _missing(self, name: str, work: TableWork) -> list[CoordinatorAction]:
        """Record that a table does not exist (rule 22).

        The floor does not advance until a task requests the table and it is created again.
        """
        self._progress.tables[name].missing = True
        return self._give_up(name, work, "does not exist")

    def _give_up(self, name: str, work: TableWork, reason: str) -> list[CoordinatorAction]:
        """Skip a table in this cycle. Its partitions are read again, and other tables continue."""
        table = self._progress.tables[name]
        table.failures += 1
        work.step = Step.DONE
        return [ReportFailure(name, reason, table.failures)]

    def _report_unknown_outcome(
        self, name: str, work: TableWork, reason: str
    ) -> list[CoordinatorAction]:
        """Report an unknown outcome after several attempts.

        The attempts continue, because the commit may have succeeded.
        """
        if not work.unknown or work.tries % self._progress.settings.max_tries:
            return []
        table = self._progress.tables[name]
        table.failures += 1
        reason = f"the outcome of a commit is unknown: {reason}"
        return [ReportFailure(name, reason, table.failures)]

    def _work_at(self, name: str, step: Step) -> TableWork | None:
        """Return a table's work if it waits at this step, or None if the response is late."""
        work = self.work.get(name)
        return work if work and work.step is step else None

    def _share(
        self, name: str, table: TableState
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Range]]:
        """Return the offsets that a table needs after the cycle, and the ranges with rows for it.

        Ranges that lack or repeat rows for the table are refused. They are not part of the result,
        and the offsets for their partitions do not change (rules 15, 19, and 22).
        """
        after = dict(table.needs)
        with_rows: dict[TopicPartition, Range] = {}
        for partition, range_ in (self.ranges or {}).items():
            if range_.generation != self._progress.partitions[partition].generation:
                continue
            part = range_.tables.get(name)
            if part is not None and not self._rules.is_staged_for(part.uuid, table.uuid):
                continue
            needed = table.needs[partition]
            lower_bound = max(range_.start, part.filter if part else 0)
            first = part.first if part else None
            if first is None:
                if not self._rules.is_gapless(lower_bound, needed):
                    continue
            elif self._rules.is_exact(lower_bound, first, needed):
                with_rows[partition] = range_
            else:
                continue
            after[partition] = max(needed, range_.next)
        return after, with_rows

    def _request(
        self,
        name: str,
        after: Mapping[TopicPartition, int],
        with_rows: Mapping[TopicPartition, Range],
    ) -> CommitTable:
        """Return the request that commits the ranges and the resulting ledger (step 4)."""
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
        files = {p: range_.tables[name].files for p, range_ in with_rows.items()}
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
        """Return the Unix time up to which a table at these offsets has all records, or None.

        The result is the earliest time over all partitions. For a partition with records in the
        cycle, this is the time of the latest record. For any other partition, it is the time of
        the latest record before the cycle. If the table has reached the log end of that partition,
        the time at which the topic was last described is used if it is later.
        """
        times: list[int] = []
        for partition, state in self._progress.partitions.items():
            range_ = (self.ranges or {}).get(partition)
            if range_ is None or range_.next > after[partition]:
                return None  # the range is late or refused, so older rows may be missing
            end_ms = state.end_ms if state.end <= after[partition] else None
            time = (
                range_.timestamp_ms
                if range_.timestamp_ms is not None
                else latest(state.through_ms, end_ms)
            )
            if time is None:
                return None
            times.append(time)
        return min(times, default=None)
