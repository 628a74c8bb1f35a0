"""How the simulated coordinator commits: the steps of the sink's commit engine, each a moment in which others may act.

1. Read the head of main; make a scratch branch there.
2. MERGE on the branch: it reads the branch's rows, then makes a snapshot with delete files. That of a full MERGE holds
   the whole cycle.
3. A transaction on the newest metadata: the table's version is checked on that very base, the delete files of step 2
   are validated against what others have committed since, ledger and property are set, scratch branches and their
   snapshots leave.
4. The swap compares exactly that base. After any outcome but "landed" the table is read again, for our commit id first.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from iceberg_protocol_pairs import Cycle, OpenHalf
from iceberg_protocol_storm import Fault, Switch, WrongWorldError
from iceberg_protocol_tables import Change, Format, MissingFileError, Rows, Snapshot, Table

from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import CommitStatus
from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, Lookup

if TYPE_CHECKING:
    from iceberg_protocol_world import World

ATTEMPTS = 3  # of a swap, before the coordinator is told that none landed
SCRATCH = "scratch"


class Event(Enum):
    """What the steps of commits have met. Every kind must happen in a run of many seeds."""

    BRANCH_MADE_ANEW = auto()  # by a MERGE that ended after a sweep
    DELETES_REUSED = auto()  # on a newer head than that of the MERGE
    MERGED_AGAIN = auto()  # since they could not be
    DELETES_TAKEN_OVER = auto()  # from the scratch snapshot
    FULL_MERGE_PUBLISHED = auto()
    LEDGER_HAD_MOVED = auto()
    FOUND_LANDED = auto()  # what was reported as refused, or not at all
    KEY_CHANGE_COMPLETED = auto()
    PAIR_KEPT_OPEN = auto()
    WAITED = auto()  # a task, before the insert of a changed key
    WAITED_IN_VAIN = auto()  # for a delete from before its table
    STOOD_STILL = auto()  # partitions that have waited for each other, since deletes are missing
    DELETE_UNREAD = auto()  # of an insert that was staged: all is read again
    FOREIGN_SCRATCH_SWEPT = auto()  # of an attempt that nobody goes on with


Answer = tuple[CommitStatus, int | None]
Steps = Generator[None, None, Answer]


class EngineError(Exception):
    """A statement failed: nothing is published."""


class LedgerMovedError(Exception):
    """The table is not the version that the commit was prepared for."""


class HeadMovedError(Exception):
    """What was found on an older head cannot be used on this one."""


@dataclass(slots=True)
class Found:
    """What steps 1 and 2 made of one head."""

    head: int | None
    branch: str | None = None
    made: Snapshot | None = None  # None: the MERGE changed nothing
    change: Change = field(default_factory=Change)
    rows: dict[str, Rows] = field(default_factory=dict)  # by staged file, where rows were completed
    open_pairs: tuple[OpenHalf, ...] = ()


@dataclass(slots=True)
class Prepared:
    """What a swap changes, as computed on its base."""

    table: Table
    version: int
    moves: int
    snapshot: Snapshot
    found: Found
    swept: set[str]  # scratch branches that leave
    seen: set[str]  # that were there
    gone: dict[int, Snapshot]  # scratch snapshots that leave
    before: Ledger | None


class Commit:
    """One commit of one table. `steps` ends with the outcome, as far as the engine can tell."""

    def __init__(self, world: World, request: CommitTable) -> None:
        self.world = world
        self.request = request
        self.expected = request.expected
        self.paths = [file.path for files in request.files.values() for file in files]
        self.unknown = False  # a swap ended without an answer
        self.finds: list[Found] = []
        self.tried: dict[int, Prepared] = {}
        self.pending: tuple[Table, str, int, Change] | None = None  # a MERGE that has read and not yet written

    def on(self, switch: Switch) -> bool:
        return switch not in self.world.off

    def steps(self) -> Steps:
        try:
            return (yield from self.commit())
        except LedgerMovedError:
            self.world.events[Event.LEDGER_HAD_MOVED] += 1
            return CommitStatus.CONFLICT, None
        except (EngineError, MissingFileError):  # a sleeper's files may be gone
            return (CommitStatus.UNKNOWN if self.unknown else CommitStatus.FAILED), None

    def commit(self) -> Steps:
        found: Found | None = None
        for attempt in range(ATTEMPTS + 1):
            if self.request.table not in self.world.tables:
                return CommitStatus.MISSING, None
            landed = self.look(at_the_base=found is None and not self.on(Switch.CHECK_ON_THE_BASE))
            if landed is not None:
                return self.landed(landed)
            self.unknown = False  # as far as anybody can see: a swap may still arrive late
            if attempt == ATTEMPTS:
                return CommitStatus.CONFLICT, None
            if found is None:
                found = yield from self.find()
                self.finds.append(found)
                yield
            if self.request.table not in self.world.tables:
                return CommitStatus.MISSING, None
            landed = self.look(at_the_base=self.on(Switch.CHECK_ON_THE_BASE))
            if landed is not None:
                return self.landed(landed)
            try:
                prepared = self.prepare(found)
            except HeadMovedError:
                self.world.events[Event.MERGED_AGAIN] += 1
                found = None
                continue
            self.tried[prepared.snapshot.id] = prepared
            yield
            if not self.on(Switch.REMOVE_FILES_AFTER_THE_SWAP):
                self.clean(prepared)
            outcome = self.swap(prepared)
            if outcome is CommitStatus.COMMITTED:
                yield from self.property_apart(prepared)
                return self.end(prepared.snapshot.id)
            if outcome is CommitStatus.FAILED:
                raise EngineError
            self.unknown = self.unknown or outcome is CommitStatus.UNKNOWN
            if self.world.chance(Fault.LOAD_FAILED, 0.3):
                raise EngineError  # the table cannot be read again: the coordinator does, later
            yield
        raise AssertionError

    # --- reading

    def table(self) -> Table:
        if self.request.table not in self.world.tables:
            raise EngineError
        return self.world.tables[self.request.table]

    def lookup(self) -> Lookup:
        view = self.world.view(self.request.table)
        assert view is not None
        return self.world.protocol.look_up(view)

    def look(self, at_the_base: bool) -> int | None:
        """The snapshot of this very commit if it is there (rule 17). Raises LedgerMovedError, where it is checked."""
        text = self.table().property
        named = LedgerProperty.from_json(text) if text else None
        if self.on(Switch.LOOK_FOR_COMMIT_ID):
            for snapshot in self.table().ancestors():
                if snapshot.ledger and Ledger.from_json(snapshot.ledger).commit == self.request.commit:
                    return snapshot.id
            if named and named.ledger.commit == self.request.commit:
                return named.snapshot
        if not at_the_base:
            return None
        version, expected = self.lookup().version, self.expected
        if not self.on(Switch.LOOK_FOR_COMMIT_ID) and self.tried:
            expected = self.expected = version  # again, on whatever is there now
        if not self.on(Switch.PROPERTY_IN_VERSION):
            version, expected = (replace(v, property_snapshot=None) for v in (version, expected))
        if version != expected:
            raise LedgerMovedError
        return None

    # --- steps 1 and 2

    def find(self) -> Generator[None, None, Found]:
        world, table, lake = self.world, self.table(), self.world.lake
        head = table.current()
        found = Found(table.head)
        keys = lake.touched(self.paths) if table.format is not Format.APPEND else frozenset[str]()
        self.complete(table, found)
        yield
        if head is None or not keys:
            return found
        if self.table() is not table or head.id not in table.snapshots:
            raise EngineError
        found.branch = SCRATCH
        if self.on(Switch.OWN_SCRATCH_BRANCH):
            ledger = self.request.ledger
            found.branch = f"{SCRATCH}_{ledger.epoch.number}_{ledger.cycle}_{world.unique('')}"
        table.branches[found.branch] = head.id
        world.changed(table)
        yield
        if self.table() is not table or found.branch not in table.branches:
            raise EngineError  # a rival's sweep took it
        scanned = table.snapshots[table.branches[found.branch]]
        upserts = self.upserts(found) if self.is_whole(table) else ()
        change = lake.merge(table, scanned, keys, upserts)
        if change:
            self.pending = table, found.branch, scanned.id, change
            yield
            self.write(named=not world.chance(Fault.SETTINGS_LOST, 0.1), open_pairs=found.open_pairs)
            yield
        self.look_at_branch(table, found, change)
        return found

    def is_whole(self, table: Table) -> bool:
        return table.format is Format.WHOLE

    def complete(self, table: Table, found: Found) -> None:
        """Give rows whose key was changed their values. Raises DeleteUnreadError."""
        if table.format is Format.APPEND:
            return
        found.open_pairs = self.world.open_pairs(table)
        if not self.world.lake.has_pairs(self.paths):
            return
        head = {key: last for _, key, last in self.world.lake.alive(table, table.current())}
        by_key = not self.on(Switch.ONLY_THE_PAIR_NAMES_THE_ROW)
        staged = {path: self.world.lake.staged_rows(path) for path in self.paths}
        found.rows, opened = Cycle(head, found.open_pairs, by_key=by_key).complete(staged)
        found.open_pairs = tuple(opened) if self.on(Switch.OPEN_PAIRS_WITH_THE_COMMIT) else ()
        self.world.events[Event.PAIR_KEPT_OPEN] += bool(opened)
        self.world.events[Event.KEY_CHANGE_COMPLETED] += any(
            len(last) == 3 for rows in found.rows.values() for _, last in rows
        )

    def upserts(self, found: Found) -> Rows:
        """What the cycle writes."""
        lake = self.world.lake
        return tuple(row for path in self.paths for row in found.rows.get(path) or lake.upserts(path))

    def write(self, named: bool = True, open_pairs: tuple[OpenHalf, ...] = ()) -> None:
        """The end of a MERGE, perhaps after the end of its coordinator. A branch that is gone is made anew, at main."""
        assert self.pending is not None
        (table, branch, scanned, change), self.pending = self.pending, None
        world = self.world
        if world.tables.get(self.request.table) is not table:
            raise EngineError
        at = table.branches.get(branch, table.head)
        if at is None:
            raise EngineError
        parent = table.snapshots[at]
        world.events[Event.BRANCH_MADE_ANEW] += branch not in table.branches
        if parent.id != scanned and (self.conflicts(table, parent, scanned, change) or world.random.random() < 0.5):
            raise EngineError
        data, deletes = change.of(parent)
        content, ledger = parent.content, None
        if self.is_whole(table):
            content = self.content(parent)
            ledger = self.request.ledger.to_json() if named else None
        world.lake.store(change)
        made = world.new_snapshot(parent.id, ledger, content, data, deletes, change.new_files())
        made.scratch = True
        made.branch, made.replaced = branch if named else None, frozenset(change.replaced)
        made.open_pairs = open_pairs
        table.snapshots[made.id] = made
        table.branches[branch] = made.id
        world.changed(table)

    def conflicts(self, table: Table, parent: Snapshot, scanned: int, change: Change) -> bool:
        """Whether what a MERGE read at one snapshot does not fit another one: the library refuses it."""
        if scanned not in [snapshot.id for snapshot in table.ancestors(parent.id)]:
            return True
        return self.does_not_fit(change, parent)

    def does_not_fit(self, change: Change, snapshot: Snapshot) -> bool:
        """Whether data files that were marked or rewritten are gone, or were marked by somebody else as well."""
        lake = self.world.lake
        marked = {data for places in change.deletes.values() for data, _ in places}
        if not (marked | change.gone) <= {*snapshot.data} or not change.replaced <= {*snapshot.deletes}:
            return True
        others = [path for path in snapshot.deletes if path not in change.replaced]
        return any(lake.marked(path) & (marked | change.gone) for path in others)

    def look_at_branch(self, table: Table, found: Found, change: Change) -> None:
        """Whether the branch holds what this MERGE made, and nothing else."""
        assert found.branch is not None
        if self.table() is not table or found.branch not in table.branches:
            raise EngineError
        made = table.snapshots[table.branches[found.branch]]
        if made.id == found.head:
            return
        named = made.branch == found.branch or not self.on(Switch.SCRATCH_NAMES_ITS_BRANCH)
        if self.is_whole(table):
            ledger = Ledger.from_json(made.ledger) if made.ledger else None
            ours = ledger is not None and ledger.commit == self.request.commit
            named = ours or not self.on(Switch.PUBLISHED_NAMES_THE_COMMIT)
        if made.parent != found.head or not named:
            raise EngineError
        found.made = made
        if not self.is_whole(table):
            deletes = {path: self.world.lake.deletes[path] for path in made.added}
            found.change = Change(deletes=deletes, replaced={*made.replaced})

    # --- steps 3 and 4

    def content(self, parent: Snapshot | None) -> dict:  # type: ignore[type-arg]
        """The rows of the source that are in once the staged files are."""
        content = dict(parent.content) if parent else {}
        for partition, files in self.request.files.items():
            entry = self.request.ledger.entry(partition)
            assert entry is not None
            for file in files:
                for where, _ in self.world.lake.staged.get(file.path, ()):  # nobody reads them: the swap will tell
                    content[where, entry.generation] = content.get((where, entry.generation), 0) + 1
        return content

    def prepare(self, found: Found) -> Prepared:
        table = self.table()
        head = table.current()
        if found.made is not None and self.on(Switch.SCRATCH_STILL_THERE):
            assert found.branch is not None
            if table.branches.get(found.branch) != found.made.id:
                raise HeadMovedError
        if found.made is not None and self.is_whole(table):
            if table.head != found.head and self.on(Switch.PUBLISH_ON_ITS_HEAD):
                raise HeadMovedError
            if found.made.id not in table.snapshots:
                raise EngineError  # nothing to publish
            snapshot = found.made
        else:
            if table.head != found.head and found.rows:
                raise HeadMovedError  # values were taken from that head
            if table.head != found.head and found.change:
                self.validate(table, found)
                self.world.events[Event.DELETES_REUSED] += 1
            snapshot = self.row_delta(table, head, found)
        before = self.lookup().ledger
        seen = set(table.branches)
        own = {other.branch for other in self.finds}
        swept = seen if self.on(Switch.SWEEP_WITH_EVERY_SWAP) else seen & own
        gone = {}
        for name in swept:
            left = table.snapshots[table.branches[name]]
            scratch = left.branch == name or not self.on(Switch.ONLY_SCRATCH_SNAPSHOTS)
            if scratch and left.id != snapshot.id and self.on(Switch.REMOVE_SCRATCH_SNAPSHOTS):
                gone[left.id] = left
        return Prepared(table, table.version, table.moves, snapshot, found, swept, seen, gone, before)

    def validate(self, table: Table, found: Found) -> None:
        """On another head than that of the MERGE."""
        head = table.current()
        if table.format is Format.POSITIONS:
            if self.on(Switch.MERGE_AGAIN):
                raise HeadMovedError
        elif self.on(Switch.VALIDATE_DATA_FILES):
            follows = found.head in [snapshot.id for snapshot in table.ancestors()]
            if head is None or not follows or self.does_not_fit(found.change, head):
                raise HeadMovedError

    def row_delta(self, table: Table, head: Snapshot | None, found: Found) -> Snapshot:
        """Main's next snapshot: delete files that the MERGE made, and the staged files."""
        world, lake = self.world, self.world.lake
        paths = tuple(self.paths)
        if table.format is not Format.APPEND:
            paths = tuple(path for path in paths if path not in lake.staged or lake.upserts(path))
        data, deletes = found.change.of(head) if head else ((), ())
        # Rows that were completed; or into an empty table, or one where no key matched.
        if (self.is_whole(table) or found.rows) and paths:
            rows = self.upserts(found)
            paths = (lake.name(table, "m"),)
            lake.data[paths[0]] = rows
        added = (*paths, *found.change.new_files())
        made = world.new_snapshot(
            table.head, self.request.ledger.to_json(), self.content(head), (*data, *paths), deletes, added
        )
        made.open_pairs = found.open_pairs
        return made

    def swap(self, prepared: Prepared) -> CommitStatus:
        """Step 4, as the engine is told of it: COMMITTED, CONFLICT (refused), UNKNOWN, or FAILED."""
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
        """The catalog's side: all of the change, or nothing."""
        world, table, snapshot = self.world, prepared.table, prepared.snapshot
        if world.tables.get(self.request.table) is not table:
            return False
        same = table.moves == prepared.moves if world.rest else table.version == prepared.version
        if not same and self.on(Switch.COMPARE_AND_SWAP):
            return False
        if lost := [path for path in snapshot.files if path not in world.lake]:
            raise WrongWorldError(f"{table.name}: commit refers to {lost}, which was removed")
        if history := prepared.gone.keys() & {s.id for s in table.ancestors()}:
            raise WrongWorldError(f"{table.name}: {history} was removed, which is of main's history")
        world.check_chain(self.request, prepared.before)
        table.snapshots[snapshot.id] = snapshot
        table.head = snapshot.id
        table.rolled_back = False
        for name in prepared.swept:
            table.branches.pop(name, None)
        for number in prepared.gone:
            table.snapshots.pop(number, None)
        table.left |= prepared.seen
        world.events[Event.FULL_MERGE_PUBLISHED] += snapshot.scratch
        world.events[Event.DELETES_TAKEN_OVER] += bool(prepared.found.change)
        world.events[Event.FOREIGN_SCRATCH_SWEPT] += bool(prepared.swept - {found.branch for found in self.finds})
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

    def landed(self, snapshot: int) -> Answer:
        self.world.events[Event.FOUND_LANDED] += 1
        return self.end(snapshot)

    def end(self, snapshot: int) -> Answer:
        if snapshot in self.tried and self.on(Switch.REMOVE_FILES_AFTER_THE_SWAP):
            self.clean(self.tried[snapshot])
        return CommitStatus.COMMITTED, snapshot

    def clean(self, landed: Prepared) -> None:
        """Delete what only scratch snapshots refer to that have left; staged files are never among it."""
        kept = {*landed.snapshot.files}
        gone = {path for snapshot in landed.gone.values() for path in snapshot.added}
        self.world.lake.remove(gone - kept, self.world.tables.values(), "the commit")
