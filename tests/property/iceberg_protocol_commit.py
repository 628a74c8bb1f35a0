"""The commit of the simulated coordinator: steps 4 and 5 of the protocol, with a pause after each
part.

4a. Load the table, look for the commit ID (rule 17), and check the ledger. Leaves nothing behind.
4b. Complete partial rows with the values of the head. Leaves a data file with the prefix of the
    epoch.
4c. MERGE on a recorded table, which is pinned to the head of 4a. Leaves delete files with the same
    prefix; a full MERGE leaves data files. No snapshot refers to them.
4d. Build the next snapshot on the newest metadata: check the version on exactly this base, and
    validate the recorded files against the commits since the head of 4a. If they are not valid, the
    commit starts over at 4a.
4e. The swap compares exactly that base. The outcome may be unknown; 4a of the next attempt looks
    for the commit ID.

A crash leaves files to rule 18, which removes files of older epochs after the first own commit of
the next epoch. The manifests of 4d are not simulated.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from iceberg_protocol_pairs import Cycle, OpenHalf
from iceberg_protocol_storm import Fault, Switch, WrongWorldError
from iceberg_protocol_tables import (
    Change,
    Format,
    MissingFileError,
    Rows,
    Snapshot,
    Table,
    is_scratch,
)

from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import CommitStatus
from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, Lookup, look_up
from connectors.iceberg.protocol.positions import Epoch

if TYPE_CHECKING:
    from iceberg_protocol_world import World

ATTEMPTS = 3  # before the coordinator learns that no swap succeeded


class Event(Enum):
    """Situations that commits and compactions run into. Each must occur in a run of many seeds."""

    DELETES_REUSED = auto()  # on a newer head than the one that the MERGE read
    STARTED_OVER = auto()  # because the recorded files were not valid on the newest head
    STARTED_OVER_WITHOUT_A_FILE = auto()  # because a file was deleted while the MERGE read it
    DELETES_TAKEN_OVER = auto()  # from the recorded table
    FULL_MERGE_LANDED = auto()
    LEDGER_HAD_MOVED = auto()
    FOUND_LANDED = auto()  # a swap that was reported as refused, or not reported at all
    FILES_OF_FAILED_ATTEMPT_DELETED = auto()
    KEY_CHANGE_COMPLETED = auto()
    PAIR_KEPT_OPEN = auto()
    WAITED = auto()  # a task, before the insert of a changed key
    WAITED_IN_VAIN = auto()  # for a delete that is older than the table
    STOOD_STILL = auto()  # partitions waited for each other because deletes are missing
    DELETE_UNREAD = auto()  # a staged insert has no delete, so all records are read again
    COMPACTED = auto()  # by the coordinator itself
    COMPACTION_REFUSED = auto()  # because of a commit since the snapshot that it read
    SCRATCH_REMOVED = auto()  # left behind by the previous version


Answer = tuple[CommitStatus, int | None]
Steps = Generator[None, None, Answer]


class EngineError(Exception):
    """A statement failed, and nothing landed."""


class LedgerMovedError(Exception):
    """The table does not have the version for which the commit was prepared."""


class StaleAttemptError(Exception):
    """The files of an attempt are not valid on the newest head, or could not be found."""


@dataclass(slots=True)
class Attempt:
    """The result of 4b and 4c on one head of the table."""

    head: int | None
    change: Change = field(default_factory=Change)  # recorded instead of committed
    rows: dict[str, Rows] = field(default_factory=dict)  # completed rows, by staged file
    completed_file: str | None = None  # holds these rows
    files: set[str] = field(default_factory=set)  # written by this attempt
    open_pairs: tuple[OpenHalf, ...] = ()
    is_sent: bool = False  # a swap was sent, so that it may land at any time


@dataclass(slots=True)
class Prepared:
    """The change of one swap, as computed on its base."""

    table: Table
    version: int
    moves: int
    snapshot: Snapshot
    attempt: Attempt
    scratch_branches: set[str]  # removed by this swap
    seen_branches: set[str]  # scratch branches on the base that this swap has to remove
    scratch_snapshots: dict[int, Snapshot]  # removed by this swap
    before: Ledger | None


class Commit:
    """One commit of one table. `steps` returns the outcome, as far as the engine knows."""

    def __init__(self, world: World, request: CommitTable) -> None:
        self.world = world
        self.request = request
        self.expected = request.expected
        self.paths = [file.path for files in request.files.values() for file in files]
        self.unknown = False  # a swap returned without an answer
        self.attempts: list[Attempt] = []
        self.sent: dict[int, Prepared] = {}
        self.pending: Change | None = None  # of a MERGE that has read and has not written yet

    def on(self, switch: Switch) -> bool:
        return switch not in self.world.off

    def steps(self) -> Steps:
        try:
            answer = yield from self.commit()
        except LedgerMovedError:
            self.world.events[Event.LEDGER_HAD_MOVED] += 1
            answer = CommitStatus.CONFLICT, None
        except (EngineError, MissingFileError):  # the staged files of a sleeper may be deleted
            answer = (CommitStatus.UNKNOWN if self.unknown else CommitStatus.FAILED), None
        self.delete_files_of_failed_attempts(answer)
        return answer

    def commit(self) -> Steps:
        attempt: Attempt | None = None
        for number in range(ATTEMPTS + 1):
            if self.request.table not in self.world.tables:
                return CommitStatus.MISSING, None
            landed = self.look(
                at_the_base=attempt is None and not self.on(Switch.CHECK_ON_THE_BASE)
            )
            if landed is not None:
                return self.landed(landed)
            self.unknown = False  # not visible now, but a swap may still arrive late
            if number == ATTEMPTS:
                return CommitStatus.CONFLICT, None
            try:
                if attempt is None:
                    attempt = Attempt(self.table().head)
                    self.attempts.append(attempt)
                    yield from self.find_replaced_rows(attempt)
                    yield
                if self.request.table not in self.world.tables:
                    return CommitStatus.MISSING, None
                landed = self.look(at_the_base=self.on(Switch.CHECK_ON_THE_BASE))
                if landed is not None:
                    return self.landed(landed)
                if (
                    self.table().head
                    and self.is_first_of_epoch()
                    and self.world.chance(Fault.SCRATCH_LEFT_BEHIND, 0.6)
                ):
                    self.world.leave_scratch(self.table())
                prepared = self.prepare(attempt)
            except StaleAttemptError:
                attempt = None
                yield
                continue
            self.sent[prepared.snapshot.id] = prepared
            if not self.on(Switch.SCRATCH_FILES_AFTER_THE_SWAP):
                self.delete_scratch_files(prepared)
            yield
            if self.world.late_commits and self.world.random.random() < 0.3:  # overtakes the swap
                self.world.late_commits.pop()()
            outcome = self.swap(prepared)
            if outcome is CommitStatus.COMMITTED:
                yield from self.property_apart(prepared)
                return self.end(prepared.snapshot.id)
            if outcome is CommitStatus.FAILED:
                raise EngineError
            self.unknown = self.unknown or outcome is CommitStatus.UNKNOWN
            if self.world.chance(Fault.LOAD_FAILED, 0.3):
                raise EngineError  # the table cannot be loaded again: the coordinator does so later
            yield
        raise AssertionError

    # --- 4a

    def table(self) -> Table:
        if self.request.table not in self.world.tables:
            raise EngineError
        return self.world.tables[self.request.table]

    def lookup(self) -> Lookup:
        view = self.world.view(self.request.table)
        assert view is not None
        return look_up(view, self.world.rules)

    def look(self, at_the_base: bool) -> int | None:
        """Return the snapshot of this very commit if it landed (rule 17).

        Raises:
            LedgerMovedError: The version is checked here, and it is not the expected one.
        """
        text = self.table().property
        prop = LedgerProperty.from_json(text) if text else None
        if self.on(Switch.LOOK_FOR_COMMIT_ID):
            for snapshot in self.table().ancestors():
                if (
                    snapshot.ledger
                    and Ledger.from_json(snapshot.ledger).commit == self.request.commit
                ):
                    return snapshot.id
            if prop and prop.ledger.commit == self.request.commit:
                return prop.snapshot
        if not at_the_base:
            return None
        version, expected = self.lookup().version, self.expected
        if not self.on(Switch.LOOK_FOR_COMMIT_ID) and self.sent:
            expected = self.expected = version  # repeat the commit on any version
        if not self.on(Switch.PROPERTY_IN_VERSION):
            version, expected = (replace(v, property_snapshot=None) for v in (version, expected))
        if version != expected:
            raise LedgerMovedError
        return None

    # --- 4b and 4c

    def find_replaced_rows(self, attempt: Attempt) -> Generator[None, None, None]:
        """Complete partial rows, and run the MERGE on a table that is pinned to the head of the
        attempt."""
        lake, table = self.world.lake, self.table()
        head = table.current()
        try:
            self.complete(table, attempt)
            if rows := [row for path in self.paths for row in attempt.rows.get(path, ())]:
                attempt.completed_file = lake.name(table, self.prefix("completed"))
                attempt.files.add(attempt.completed_file)
                lake.data[attempt.completed_file] = tuple(rows)
            yield
            if table.format is Format.APPEND or head is None:
                return
            if not (keys := lake.touched(self.paths)):
                return
            upserts = self.upserts(attempt) if is_whole(table) else ()
            yield  # others change the table while Spark plans the statement
            if table.head == head.id and self.world.may_expire(table):
                self.world.compact(table, whole=True)
                self.world.expire(table, 1, keep_ledger=True)
            self.pending = lake.merge(
                table,
                head,
                keys,
                upserts,
                self.prefix("recorded"),
                skip_missing=not self.on(Switch.START_OVER_IF_A_FILE_IS_GONE),
            )
        except MissingFileError as error:
            if error.path in self.paths:
                raise
            self.world.events[Event.STARTED_OVER_WITHOUT_A_FILE] += 1
            raise StaleAttemptError from None
        attempt.change = self.pending
        yield
        self.write()
        attempt.files |= {*attempt.change.new_files()}

    def prefix(self, kind: str) -> str:
        return prefixed(self.request.ledger.epoch, kind)

    def complete(self, table: Table, attempt: Attempt) -> None:
        """Fill in the values of rows whose key was changed.

        Raises:
            DeleteUnreadError: A staged insert has no delete.
        """
        if table.format is Format.APPEND:
            return
        attempt.open_pairs = self.world.open_pairs(table)
        if not self.world.lake.has_pairs(self.paths):
            return
        head = {key: last for _, key, last in self.world.lake.alive(table, table.current())}
        by_key = not self.on(Switch.ONLY_THE_PAIR_NAMES_THE_ROW)
        staged = {path: self.world.lake.staged_rows(path) for path in self.paths}
        attempt.rows, opened = Cycle(head, attempt.open_pairs, by_key=by_key).complete(staged)
        attempt.open_pairs = tuple(opened) if self.on(Switch.OPEN_PAIRS_WITH_THE_COMMIT) else ()
        self.world.events[Event.PAIR_KEPT_OPEN] += bool(opened)
        self.world.events[Event.KEY_CHANGE_COMPLETED] += any(
            len(last) == 3 for rows in attempt.rows.values() for _, last in rows
        )

    def upserts(self, attempt: Attempt) -> Rows:
        """Return the rows that the cycle writes."""
        lake = self.world.lake
        return tuple(
            row for path in self.paths for row in attempt.rows.get(path) or lake.upserts(path)
        )

    def write(self) -> None:
        """Write the files of a MERGE, which executors may do after the driver is gone."""
        assert self.pending is not None
        change, self.pending = self.pending, None
        self.world.lake.store(change)

    # --- 4d

    def content(self, parent: Snapshot | None) -> dict:  # type: ignore[type-arg]
        """Return the rows of the source that the table holds once the staged files are in."""
        content = dict(parent.content) if parent else {}
        for partition, files in self.request.files.items():
            entry = self.request.ledger.entry(partition)
            assert entry is not None
            for file in files:
                # the swap reports a missing file
                for where, _ in self.world.lake.staged.get(file.path, ()):
                    content[where, entry.generation] = content.get((where, entry.generation), 0) + 1
        return content

    def prepare(self, attempt: Attempt) -> Prepared:
        """Build the change on the newest metadata.

        Raises:
            StaleAttemptError: The recorded files are not valid on this head.
        """
        table = self.table()
        if table.head != attempt.head:
            self.check_valid_for(table, attempt)
        before = self.lookup().ledger
        snapshot = self.next_snapshot(table, table.current(), attempt)
        # rule 40
        scratch_branches = (
            {name for name in table.refs if is_scratch(name)} if self.is_first_of_epoch() else set()
        )
        branches = scratch_branches if self.on(Switch.UPGRADE_REMOVES_SCRATCH) else set[str]()
        snapshots = {}
        for name in branches:
            tip = table.snapshots[table.refs[name]]
            if tip.branch == name or not self.on(Switch.UPGRADE_KEEPS_SNAPSHOTS_OF_MAIN):
                snapshots[tip.id] = tip
        attempt.is_sent = True
        return Prepared(
            table,
            table.version,
            table.moves,
            snapshot,
            attempt,
            branches,
            scratch_branches,
            snapshots,
            before,
        )

    def is_first_of_epoch(self) -> bool:
        ledger = self.lookup().ledger
        return ledger is None or ledger.epoch != self.request.ledger.epoch

    def check_valid_for(self, table: Table, attempt: Attempt) -> None:
        """Check the attempt on another head than the one that it read."""
        head = table.current()
        is_valid = not attempt.rows  # their values come from the old head
        if not attempt.change:
            pass
        elif table.format is Format.WHOLE:
            is_valid = is_valid and not self.on(Switch.FULL_MERGE_ON_ITS_HEAD)
        elif table.format is Format.POSITIONS:
            is_valid = is_valid and not self.on(Switch.DELETES_NAME_THEIR_FILES)
        elif self.on(Switch.VALIDATE_DATA_FILES):
            follows = attempt.head in [snapshot.id for snapshot in table.ancestors()]
            is_valid = (
                is_valid
                and head is not None
                and follows
                and self.world.lake.fits(attempt.change, head)
            )
        if not is_valid:
            self.world.events[Event.STARTED_OVER] += 1
            raise StaleAttemptError
        self.world.events[Event.DELETES_REUSED] += bool(attempt.change)

    def next_snapshot(self, table: Table, head: Snapshot | None, attempt: Attempt) -> Snapshot:
        """Return a snapshot with the recorded files and the staged files."""
        world, lake = self.world, self.world.lake
        paths = tuple(self.paths)
        if table.format is not Format.APPEND:
            paths = tuple(path for path in paths if path not in lake.staged or lake.upserts(path))
        data, deletes = attempt.change.of(head) if head else ((), ())
        if is_whole(table) and attempt.change:
            paths = ()  # the recorded data files hold these rows
        elif attempt.rows:
            paths = (attempt.completed_file,) if attempt.completed_file else ()
        added = (*paths, *attempt.change.new_files())
        snapshot = world.new_snapshot(
            table.head,
            self.request.ledger.to_json(),
            self.content(head),
            (*data, *paths),
            deletes,
            added,
        )
        snapshot.open_pairs = attempt.open_pairs
        return snapshot

    # --- 4e

    def swap(self, prepared: Prepared) -> CommitStatus:
        """Return the outcome that the engine receives: COMMITTED, CONFLICT (refused), UNKNOWN, or
        FAILED."""
        world = self.world
        if world.chance(Fault.UNKNOWN_LOST, 0.08):
            return CommitStatus.UNKNOWN
        if world.chance(Fault.UNKNOWN_LATE, 0.08):
            world.late_commits.append(lambda: self.catalog_swaps(prepared))
            return CommitStatus.UNKNOWN
        if world.chance(Fault.SPURIOUS_CONFLICT, 0.08):
            return CommitStatus.CONFLICT
        if world.chance(Fault.COMMIT_FAILED, 0.08):
            return CommitStatus.FAILED
        if not self.catalog_swaps(prepared):
            return CommitStatus.CONFLICT
        if world.chance(Fault.UNKNOWN_APPLIED, 0.1):
            return CommitStatus.UNKNOWN
        if world.chance(Fault.REFUSED_THOUGH_MADE, 0.1):
            return CommitStatus.CONFLICT
        return CommitStatus.COMMITTED

    def catalog_swaps(self, prepared: Prepared) -> bool:
        """Change the metadata as the catalog does: completely, or not at all."""
        world, table, snapshot = self.world, prepared.table, prepared.snapshot
        if world.tables.get(self.request.table) is not table:
            return False
        if not world.is_unchanged(table, prepared.version, prepared.moves) and self.on(
            Switch.COMPARE_AND_SWAP
        ):
            return False
        world.check_files(table, snapshot, "commit")
        if history := prepared.scratch_snapshots.keys() & {s.id for s in table.ancestors()}:
            raise WrongWorldError(f"{table.name}: {history} of the history of main was removed")
        world.check_chain(self.request, prepared.before)
        table.snapshots[snapshot.id] = snapshot
        table.head = snapshot.id
        table.rolled_back = False
        for name in prepared.scratch_branches:
            table.refs.pop(name, None)
        for number in prepared.scratch_snapshots:
            table.snapshots.pop(number, None)
        table.seen_scratch |= prepared.seen_branches
        world.events[Event.FULL_MERGE_LANDED] += is_whole(table) and bool(prepared.attempt.change)
        world.events[Event.DELETES_TAKEN_OVER] += bool(prepared.attempt.change.deletes)
        world.events[Event.SCRATCH_REMOVED] += bool(prepared.scratch_branches)
        if self.on(Switch.PROPERTY_IN_THE_SWAP):
            table.property = self.request.property_text(str(snapshot.id))
        if self.on(Switch.PROPERTY_NAMES_OPEN_PAIRS):
            table.open_pairs = snapshot.open_pairs
        world.changed(table, main=True)
        return True

    def property_apart(self, prepared: Prepared) -> Generator[None, None, None]:
        if not self.on(Switch.PROPERTY_IN_THE_SWAP):
            yield
            prepared.table.property = self.request.property_text(str(prepared.snapshot.id))
            self.world.changed(prepared.table, main=True)

    # --- afterwards

    def landed(self, snapshot: int) -> Answer:
        self.world.events[Event.FOUND_LANDED] += 1
        return self.end(snapshot)

    def end(self, snapshot: int) -> Answer:
        if snapshot in self.sent and self.on(Switch.SCRATCH_FILES_AFTER_THE_SWAP):
            self.delete_scratch_files(self.sent[snapshot])
        return CommitStatus.COMMITTED, snapshot

    def delete_scratch_files(self, prepared: Prepared) -> None:
        """Delete the files that only the removed scratch snapshots refer to."""
        scratch_snapshots = prepared.scratch_snapshots
        remaining = [
            snapshot
            for number, snapshot in prepared.table.snapshots.items()
            if number not in scratch_snapshots
        ]
        used = {path for snapshot in remaining for path in snapshot.files}
        self.delete(
            {path for snapshot in scratch_snapshots.values() for path in snapshot.added} - used
        )

    def delete_files_of_failed_attempts(self, answer: Answer) -> None:
        """Delete what this commit wrote and no snapshot can refer to any more (rule 17)."""
        status, snapshot = answer
        for attempt in self.attempts:
            if status is CommitStatus.COMMITTED:
                is_over = snapshot not in self.sent or attempt is not self.sent[snapshot].attempt
            else:
                is_over = not attempt.is_sent or not self.on(Switch.KEEP_FILES_OF_A_SENT_SWAP)
            if is_over and attempt.files:
                self.world.events[Event.FILES_OF_FAILED_ATTEMPT_DELETED] += 1
                self.delete(attempt.files)

    def delete(self, paths: Iterable[str]) -> None:
        self.world.lake.remove(paths, self.world.tables.values(), "the commit")


class Compaction:
    """A compaction by the coordinator itself: a commit without rows and without a ledger (rule
    39)."""

    def __init__(self, world: World, table: Table, epoch: Epoch) -> None:
        self.world = world
        self.table = table
        self.epoch = epoch

    def steps(self) -> Generator[None, None, None]:
        world, table, lake = self.world, self.table, self.world.lake
        head = table.current()
        if head is None or not head.data:
            return
        chosen = world.draw_compaction.sample(
            head.data, world.draw_compaction.randrange(1, len(head.data) + 1)
        )
        yield
        try:
            change = lake.compacted(table, head, chosen, prefixed(self.epoch, "compacted"))
        except MissingFileError:
            return  # the next compaction reads a newer snapshot
        lake.store(change)
        yield
        base = table.current()
        if base is None or not self.is_valid(head, base, change):
            world.events[Event.COMPACTION_REFUSED] += 1
            lake.remove(change.new_files(), world.tables.values(), "a compaction")
            return
        data, deletes = change.of(base)
        content = dict(base.content)
        snapshot = world.new_snapshot(base.id, None, content, data, deletes, change.new_files())
        version, moves = table.version, table.moves
        yield
        if world.chance(Fault.COMPACTION_LATE, 0.2):
            world.late_commits.append(lambda: self.swap(snapshot, version, moves))
        else:
            self.swap(snapshot, version, moves)

    def is_valid(self, head: Snapshot, base: Snapshot, change: Change) -> bool:
        """Return True if the change, which was computed on one snapshot, is valid on another
        one."""
        world, table = self.world, self.table
        if world.tables.get(table.name) is not table:
            return False
        latest = (
            LedgerProperty.from_json(table.property).ledger.epoch if table.property else self.epoch
        )
        if latest > self.epoch and Switch.COMPACTION_OF_ITS_EPOCH not in world.off:
            return False
        if Switch.COMPACTION_VALIDATES_ITS_SNAPSHOT in world.off or base is head:
            return True
        newer_deletes = [path for path in base.deletes if path not in head.deletes]
        follows = head.id in [snapshot.id for snapshot in table.ancestors()]
        is_complete = change.removed <= {*base.data} and change.replaced <= {*base.deletes}
        return (
            follows
            and is_complete
            and not any(world.lake.marked(path) & change.removed for path in newer_deletes)
        )

    def swap(self, snapshot: Snapshot, version: int, moves: int) -> None:
        world, table = self.world, self.table
        if world.tables.get(table.name) is table and world.is_unchanged(table, version, moves):
            world.check_files(table, snapshot, "compaction")
            world.events[Event.COMPACTED] += 1
            world.replace_head(table, snapshot)


def prefixed(epoch: Epoch, kind: str) -> str:
    """Return a name for files that rule 18 recognizes by their epoch."""
    return f"{epoch.number}/{epoch.nonce}/{kind}"


def is_whole(table: Table) -> bool:
    return table.format is Format.WHOLE
