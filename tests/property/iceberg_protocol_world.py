"""Simulation of `CoordinatorState` and `TaskState`: seeded, without Kafka, Spark, or clocks.

Rows are tuples, a table is a chain of snapshots, the channel is a list, and a commit takes the
steps of `iceberg_protocol_commit`. Faults occur at random between any two steps (see `Fault`).
After some time, the faults stop, the world becomes idle, and `World.verify` checks the tables.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_protocol_commit import Answer, Commit, Compaction, Event, Steps
from iceberg_protocol_pairs import DeleteUnreadError, OpenHalf
from iceberg_protocol_rules import SWITCHES, CommitAllQueuedRanges, Rule, combined_rules
from iceberg_protocol_storm import (
    APART,
    KEYS,
    OWN_SOURCE,
    Effect,
    ExpectedFailureError,
    Fault,
    Off,
    Row,
    RowId,
    Switch,
    WrongWorldError,
)
from iceberg_protocol_tables import (
    SCRATCH,
    Change,
    Format,
    Lake,
    Last,
    Rows,
    Snapshot,
    Table,
    Value,
    value_of,
)

from connectors.iceberg.protocol import actions as act
from connectors.iceberg.protocol.alter_offsets import altered_group
from connectors.iceberg.protocol.commit_request import CommitStatus
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerProperty,
    Lookup,
    SnapshotView,
    Standing,
    TableView,
    TopicLedger,
    look_up,
)
from connectors.iceberg.protocol.messages import (
    Attach,
    Message,
    Need,
    TableOpened,
    decode,
    encode,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Bounds, Epoch, TopicPartition
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TopicInfo
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.key_changes import KeyChangeWaits, UnreadPair
from connectors.iceberg.staging.staged_changes import PLACED, Half
from connectors.iceberg.table.table import StagedFile, StagedKind
from connectors.iceberg_tools.history.topic_rebuild import following
from connectors.iceberg_tools.refs.table_rewind import skipping

TOPIC = "orders"
# `later` is routed only after a change of the configuration
APPEND, MERGE, LATER = ("facts", "state", "later")
FOREIGN = "F"  # instead of a topic ID: a row of another writer
EFFECTS = (Effect.WRITE, Effect.DELETE, Effect.MOVE, Effect.TRUNCATE)
GONE = (0, -1)  # a missing row
STANDSTILL = 1000  # ticks without progress after which a wait ends
BOUNDED_CALM = 1_500  # ticks before a bounded world may become idle
# turns until the world must be idle; five times as many if keys change
REST_TURNS = 8_000


class World:
    """Cluster, catalog, storage, coordinators, and tasks, driven by seeded random sources."""

    def __init__(
        self,
        seed: int,
        off: Off = frozenset(),
        faults: Sequence[Fault] = tuple(Fault),
        *,
        bounded: bool = False,
    ) -> None:
        """Create a world. `bounded`: the connector stops at bounds that depend on the seed."""
        self.random = random.Random(seed)
        self.draw_apart = random.Random(f"apart {seed}")
        # separate sources, so that new features do not change existing seeds
        self.draw_effect = random.Random(f"effects {seed}")
        self.draw_look = random.Random(f"looks {seed}")
        self.draw_pair = random.Random(f"pairs {seed}")
        self.draw_skip = random.Random(f"skips {seed}")
        self.draw_load = random.Random(f"loads {seed}")
        self.draw_rebuild = random.Random(f"rebuilds {seed}")
        self.draw_compaction = random.Random(f"compactions {seed}")
        # True: coordinators compact tables between cycles
        self.compacts = self.draw_compaction.random() < 0.6
        self.pairs = self.draw_pair.random() < 0.4  # True: keys change
        self.draw_parallel = random.Random(f"parallel {seed}")
        # The seeds that need a rule were found with sequential commits.
        self.commits_in_parallel = not off and self.draw_parallel.random() < 0.5
        self.alive: set[str] = set()  # existing keys of the source
        self.written = 0  # number of rows in the source
        self.effects: Counter[Effect] = Counter()
        self.events: Counter[Event] = Counter()
        self.off = off
        overrides = {SWITCHES[rule] for rule in off if isinstance(rule, Rule)}
        if Switch.ONE_RANGE_PER_CYCLE in off:
            overrides.add(CommitAllQueuedRanges)
        self.rules = combined_rules(frozenset(overrides))
        self.faults: Counter[Fault] = Counter()
        self.now = 0
        self.ids = 0
        self.start_number = 1
        self.loads = 0
        # start number of the connector after the `connect-py load` that is in progress
        self.loading: int | None = None
        self.wire = self.random.random() < 0.1  # True: messages are encoded and decoded
        common = [fault for fault in faults if fault not in (*APART, *OWN_SOURCE)]
        kinds = [fault for fault in common if self.random.random() < 0.45]
        kinds += [fault for fault in faults if fault in APART and self.draw_apart.random() < 0.45]
        self.allowed: frozenset[Fault] = frozenset(kinds)
        self.severity = self.random.choice(
            (0.3, 0.6, 1.0)
        )  # more commits succeed in a milder storm
        self.altered = Fault.OFFSETS_ALTERED in self.allowed
        if Fault.REWIND_SKIPS in faults and not self.altered and self.draw_skip.random() < 0.15:
            self.allowed |= {Fault.REWIND_SKIPS}
        if Fault.LOADED in faults and not off and not bounded and self.draw_load.random() < 0.15:
            self.allowed |= {Fault.LOADED}
        if Fault.REBUILT in faults and not off and self.draw_rebuild.random() < 0.15:
            self.allowed |= {Fault.REBUILT}
        self.parents: dict[int, int | None] = {}  # of all snapshots, even expired ones
        # by snapshot of a rewind: the skipped offsets
        self.skips: dict[int, dict[tuple[str, TopicPartition], Collection[int]]] = {}
        if self.altered:
            self.allowed -= {Fault.GROUP_RESET, Fault.TOPIC_REPLACED}
        self.stormy = True
        self.calm_since = 0
        self.topic_no = 1
        # A REST catalog compares table and main, other catalogs compare the whole metadata. A swap
        # on a main that has moved away and back is a documented limit of REST catalogs, and does
        # not occur here.
        self.rest = self.random.random() < 0.3
        # log starts of partitions with deleted records; others start at 0
        self.log_starts: dict[int, int] = {}
        # topic ID and log ends at the time when a table was dropped
        self.dropped_at: dict[str, tuple[str, dict[TopicPartition, int]]] = {}
        self.logs: list[list[Row]] = [[] for _ in range(self.random.choice((1, 2, 3)))]
        self.rewound: dict[TopicPartition, list[int]] = {}  # start of each generation above 0
        # requested offsets that were not written to the group yet
        self.altering: dict[TopicPartition, GroupOffset] = {}
        self.routes: tuple[str, ...] = (APPEND, MERGE)
        self.dynamic = self.random.random() < 0.3
        self.group: dict[TopicPartition, tuple[int, str]] = {}
        self.owners: dict[TopicPartition, SimTask] = {}
        self.channel: list[Message] = []
        self.wipes = 0
        self.late: list[Message] = []
        self.producer: SimCoordinator | None = None
        self.tables: dict[str, Table] = {}
        self.lake = Lake()
        self.late_commits: list[Callable[[], object]] = []
        self.tasks: list[SimTask] = []
        self.zombies: list[SimTask] = []
        self.coordinator: SimCoordinator | None = None
        self.sleepers: list[SimCoordinator] = []
        self.new_topic_allowed = self.random.random() < 0.5
        self.produce(self.random.randrange(1, 8))
        if self.random.random() < 0.7:
            for name in self.routes:
                self.create(name, whole=True)
        self.short = self.chance(Fault.TIMEOUT_SHORT, 0.5)
        draw = random.Random(f"bounds {seed}")
        self.bounds = (
            Bounds("run", {p: draw.randrange(25) for p in self.partitions()}) if bounded else None
        )

    # Helpers

    def required_end(self, partition: TopicPartition) -> int:
        """Return the end of the log, or the bound if that is lower."""
        end = len(self.logs[partition.partition])
        return end if self.bounds is None else min(end, self.bounds.of(partition).end)

    def unique(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}{self.ids}"

    def chance(self, fault: Fault, probability: float) -> bool:
        """Draw whether a fault occurs now."""
        source = self.draw_apart if fault in APART else self.random
        source = self.draw_skip if fault is Fault.REWIND_SKIPS else source
        source = self.draw_load if fault is Fault.LOADED else source
        source = self.draw_rebuild if fault is Fault.REBUILT else source
        if (
            not self.stormy
            or fault not in self.allowed
            or source.random() >= probability * self.severity
        ):
            return False
        self.faults[fault] += 1
        return True

    @property
    def clock(self) -> int:
        """Clock of the waits for deletes, which starts after the storm."""
        return 0 if self.stormy else self.now - self.calm_since

    @property
    def topic_id(self) -> str:
        return f"T{self.topic_no}"

    def partitions(self) -> Iterator[TopicPartition]:
        return (TopicPartition(TOPIC, number) for number in range(len(self.logs)))

    def produce(self, count: int) -> None:
        for _ in range(count):
            number = self.random.randrange(len(self.logs))
            tables = tuple(t for t in (APPEND, MERGE, LATER) if self.random.random() < 0.5)
            key = f"{number}-{self.random.randrange(KEYS)}"
            (effect,) = self.draw_effect.choices(EFFECTS, (16, 3, 3, 1))
            old = f"{number}-{self.draw_effect.randrange(KEYS)}"
            if old == key and effect is Effect.MOVE:
                effect = Effect.WRITE
            self.write_log(number, Row(key, tables, effect, old))
            if self.pairs and self.draw_pair.random() < 0.3:
                self.change_key()

    def write_log(self, partition: int, row: Row) -> None:
        self.effects[row.effect] += 1
        self.written += 1
        if MERGE in row.tables:
            state = dict.fromkeys(self.alive, 0)
            row.apply(state, 0)
            self.alive = {*state}
        self.logs[partition].append(replace(row, at=self.written))

    def change_key(self) -> None:
        """Change the key of a row, which may move it to another partition."""
        if not self.alive:
            return
        old = self.draw_pair.choice(sorted(self.alive))
        new = f"{self.draw_pair.randrange(len(self.logs))}-{self.draw_pair.randrange(KEYS)}"
        if new == old:
            return
        pair = f"{self.unique_pair()}{PLACED}"
        self.write_log(int(old.partition("-")[0]), Row(old, (MERGE,), Effect.LEAVE, pair=pair))
        self.write_log(int(new.partition("-")[0]), Row(new, (MERGE,), Effect.ARRIVE, old, pair))

    def unique_pair(self) -> int:
        return self.written

    def log_start(self, partition: TopicPartition) -> int:
        return self.log_starts.get(partition.partition, 0)

    def topics(self) -> dict[str, TopicInfo]:
        return {
            TOPIC: TopicInfo(self.topic_id, tuple(self.log_start(p) for p in self.partitions()))
        }

    def log_ends(self) -> dict[TopicPartition, int]:
        return {p: len(self.logs[p.partition]) for p in self.partitions()}

    def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        return {p: GroupOffset.of(offset, text) for p, (offset, text) in self.group.items()}

    # Catalog

    def create(self, name: str, whole: bool = False, properties: str | None = None) -> Table:
        ends = self.log_ends()
        ids, dropped = self.dropped_at.pop(name, ("", ends))
        if ids == self.topic_id:
            ends = dropped  # rows since then are held back for the new table
        kind = (
            self.random.choice((Format.VECTORS, Format.POSITIONS, Format.WHOLE))
            if name == MERGE
            else Format.APPEND
        )
        topic_ids = {TOPIC: self.topic_id}
        table = Table(name, self.unique("U"), ends, topic_ids, whole, kind, property=properties)
        self.tables[name] = table
        if self.random.random() < 0.3:
            self.add_snapshot(table, None, None)
        return table

    def is_unchanged(self, table: Table, version: int, moves: int) -> bool:
        """Return True if the catalog sees no change since a base."""
        return table.moves == moves if self.rest else table.version == version

    def check_files(self, table: Table, snapshot: Snapshot, writer: str) -> None:
        if lost := [path for path in snapshot.files if path not in self.lake]:
            raise WrongWorldError(f"{table.name}: {writer} refers to {lost}, which was removed")

    def replace_head(self, table: Table, snapshot: Snapshot) -> None:
        table.snapshots[snapshot.id] = snapshot
        table.head = snapshot.id
        self.changed(table, main=True)

    def changed(self, table: Table, *, main: bool = False) -> None:
        """Record a change of the metadata. `main`: main or the property changed, too."""
        self.ids += 1
        table.version = self.ids
        if main:
            table.moves = self.ids

    def new_snapshot(
        self,
        parent: int | None,
        ledger: str | None,
        content: dict[tuple[RowId, int], int],
        data: tuple[str, ...],
        deletes: tuple[str, ...],
        added: tuple[str, ...],
    ) -> Snapshot:
        self.ids += 1
        self.parents[self.ids] = parent
        return Snapshot(self.ids, parent, ledger, content, data, deletes, added)

    def add_snapshot(
        self, table: Table, ledger: str | None, row: RowId | None, change: Change | None = None
    ) -> int:
        """Commit a snapshot of another writer to main, which changes files and adds a row."""
        head, change = table.current(), change or Change()
        self.lake.store(change)
        content = dict(head.content) if head else {}
        if row is not None:
            content[row, 0] = 1
        data, deletes = change.of(head) if head else (tuple(change.data), ())
        snapshot = self.new_snapshot(table.head, ledger, content, data, deletes, change.new_files())
        self.replace_head(table, snapshot)
        return snapshot.id

    def foreign_commit(self, table: Table) -> None:
        """Commit a new row as another writer."""
        row = (FOREIGN, 0, self.ids)
        table.foreign.add((row, 0))
        self.add_snapshot(table, None, row, self.foreign_rows(table, f"{FOREIGN}-{self.ids}"))

    def foreign_rows(self, table: Table, key: str) -> Change:
        if table.format is Format.APPEND:
            return Change()
        return Change(data={self.lake.name(table, "foreign"): ((key, (0, self.ids)),)})

    def foreign_upsert(self, table: Table) -> None:
        """Update a row of another writer. An update of our rows would be a documented limit."""
        head = table.current()
        assert head is not None
        keys = [key for _, key, _ in self.lake.alive(table, head) if key.startswith(FOREIGN)]
        if not keys:
            return
        key = self.random.choice(keys)
        rows: Rows = ((key, (0, self.ids)),)
        change = self.lake.merge(table, head, {key}, rows, "foreign")
        if table.format is not Format.WHOLE:
            change.data |= self.foreign_rows(table, key).data
        self.add_snapshot(table, None, None, change)

    def compact(self, table: Table, *, whole: bool = False) -> None:
        """Compact some or all data files as another writer."""
        head = table.current()
        assert head is not None
        if head.data:
            chosen = (
                head.data
                if whole
                else self.random.sample(head.data, self.random.randrange(1, len(head.data) + 1))
            )
            self.add_snapshot(table, None, None, self.lake.compacted(table, head, chosen))

    def expire(self, table: Table, keep: int, *, keep_ledger: bool = False) -> None:
        """Expire all snapshots except the newest ones of main and those with a ref.

        The sink's own maintenance keeps the snapshot of the ledger as well.
        """
        retained = {s.id for s in table.ancestors()[:keep]} | {*table.refs.values()}
        if keep_ledger:
            retained |= {s.id for s in [s for s in table.ancestors() if s.ledger][:1]}
        expired = [s for number, s in table.snapshots.items() if number not in retained]
        table.snapshots = {number: s for number, s in table.snapshots.items() if number in retained}
        used = {path for s in table.snapshots.values() for path in s.files}
        restorable = (
            {path for s in table.backup.snapshots.values() for path in s.files}
            if table.backup
            else set()
        )
        paths = {path for snapshot in expired for path in snapshot.files} - used
        self.changed(table)
        self.lake.remove(paths - restorable, [table], "an expiry")

    def may_expire(self, table: Table) -> bool:
        """Draw whether the files that a MERGE is about to read are replaced and deleted."""
        return (
            table.head is not None
            and not table.rolled_back
            and self.chance(Fault.EXPIRED_UNDER_A_MERGE, 0.2)
        )

    def tag(self, table: Table) -> None:
        """Tag the head, so that its snapshot outlives an expiry."""
        assert table.head is not None
        table.refs[self.unique("tag")] = table.head
        self.changed(table)

    def leave_scratch(self, table: Table) -> None:
        """Leave a scratch branch behind, as the previous version does when it is killed after its
        MERGE (rule 40).

        Its swap may still be under way. It takes over the files of the branch.
        """
        head = table.current()
        assert head is not None
        name = self.unique(SCRATCH)
        alive = self.lake.alive(table, head) if table.format is not Format.APPEND else []
        table.refs[name] = head.id
        if not alive or self.random.random() < 0.2:  # the MERGE changed nothing
            self.changed(table)
            return
        _, key, last = self.random.choice(alive)
        rows: Rows = ((key, last),)  # repeats the row, in another file
        change = self.lake.merge(table, head, {key}, rows, "scratch")
        self.lake.store(change)
        scratch = self.new_snapshot(
            head.id, None, head.content, *change.of(head), change.new_files()
        )
        scratch.branch = name
        table.snapshots[scratch.id] = scratch
        table.refs[name] = scratch.id
        self.changed(table)
        version, moves = table.version, table.moves
        if not self.chance(Fault.SCRATCH_SWAP_LATE, 0.7):
            return
        new_rows = (
            Change()
            if table.format is Format.WHOLE
            else Change(data={self.lake.name(table, "staged"): rows})
        )
        self.lake.store(new_rows)
        data, deletes = (*scratch.data, *new_rows.data), scratch.deletes
        snapshot = self.new_snapshot(
            head.id, None, dict(head.content), data, deletes, (*scratch.added, *new_rows.data)
        )

        def swap() -> None:
            if self.tables.get(table.name) is table and self.is_unchanged(table, version, moves):
                self.check_files(table, snapshot, "swap of the previous version")
                del table.refs[name], table.snapshots[scratch.id]
                self.replace_head(table, snapshot)

        self.late_commits.append(swap)

    def view(self, name: str) -> TableView | None:
        table = self.tables.get(name)
        if table is None:
            return None
        chain = table.ancestors()
        complete = not chain or chain[-1].parent is None
        ours = [number for number, s in enumerate(chain) if s.ledger]
        # the view ends after some of our snapshots
        visible = chain[: ours[2] + 1] if len(ours) > 2 else chain
        property_snapshot = (
            LedgerProperty.from_json(table.property).snapshot if table.property else None
        )
        present = [number for number in table.snapshots if not chain or number >= chain[-1].id]
        if Switch.RETAINED_IS_NOT_ROLLED_BACK in self.off:
            present = [*table.snapshots]
        shared = {s.id for s in chain} & {s.id for s in table.ancestors(property_snapshot)}
        return TableView(
            table.uuid,
            [SnapshotView(s.id, s.ledger) for s in visible],
            complete,
            frozenset(present),
            table.property,
            replaced=bool(
                chain
                and chain[0].content
                and not ours
                and property_snapshot is not None
                and not shared
            ),
        )

    def open_pairs(self, table: Table) -> tuple[OpenHalf, ...]:
        view = self.view(table.name)
        assert view is not None
        lookup = look_up(view, self.rules)
        if (snapshot := lookup.version.ledger_snapshot) is not None:
            return table.snapshots[snapshot].open_pairs
        return table.open_pairs if lookup.standing is Standing.EXPIRED else ()

    def describe(self, table: Table) -> str:
        """Return the answer to a task: the UUID and the open pairs of a table."""
        pairs = [
            each.pair for each in self.open_pairs(table) if each.half in (Half.DELETE, Half.NOTHING)
        ]
        return "|".join([table.uuid, *pairs])

    def check_chain(self, request: act.CommitTable, before: Ledger | None) -> None:
        if before is None or self.off:
            return
        for topic, entries in request.ledger.topics.items():
            for number, entry in entries.partitions.items():
                last = before.entry(TopicPartition(topic, number), entries.topic_id)
                if (
                    last
                    and last.generation >= entry.generation
                    and last.position != (entry.generation, entry.base)
                ):
                    raise WrongWorldError(f"{request.table}: {entry} does not chain to {last}")
                if entry.next < entry.base and not (last and last.generation < entry.generation):
                    raise WrongWorldError(f"{request.table}: {entry} goes back")

    def clean(self, action: act.CleanFiles) -> None:
        tables = [
            t for table in self.tables.values() for t in (table, table.backup) if t is not None
        ]
        used = {path for table in tables for s in table.snapshots.values() for path in s.files}
        for path in [*self.lake.staged, *self.lake.data, *self.lake.deletes]:
            table, uuid, *epoch, _ = path.split("/")
            older = bool(epoch) and Epoch(int(epoch[0]), epoch[1]) < action.epoch
            if (table, uuid) == (action.table, action.uuid) and older and path not in used:
                self.lake.remove([path], (), "the clean-up")

    # Channel

    def send(self, message: Message) -> None:
        if self.wire:
            again = decode(encode(message))
            assert again == message, (again, message)
            message = again
        if self.chance(Fault.MESSAGE_LOST, 0.06):
            return
        if self.chance(Fault.MESSAGE_LATE, 0.08):
            self.late.append(message)
            return
        self.channel.append(message)
        if self.chance(Fault.MESSAGE_TWICE, 0.06):
            self.late.append(message)

    # Processes

    def start_coordinator(self) -> None:
        self.coordinator = SimCoordinator(self)

    def start_task(self) -> SimTask:
        task = SimTask(self)
        self.tasks.append(task)
        return task

    def balance(self) -> None:
        """Assign every partition to a task. A task notices the assignment on its next turn."""
        while len(self.tasks) < 2:
            self.start_task()
        for partition in self.partitions():
            self.owners[partition] = self.random.choice(self.tasks)

    def turn(self) -> None:
        """Take one step."""
        self.now += self.random.choice((0, 1, 1, 2))
        if self.stormy:
            self.storm()
        if self.late and self.random.random() < 0.15:
            self.channel.append(self.late.pop(self.random.randrange(len(self.late))))
        if self.late_commits and self.random.random() < 0.1:
            self.late_commits.pop(self.random.randrange(len(self.late_commits)))()
        if self.altering and self.random.random() < 0.1:
            self.write_altered(late=True)
        if self.coordinator is None:
            self.start_coordinator()
        choice = self.random.random()
        if choice < 0.45:
            assert self.coordinator is not None
            self.coordinator.turn()
        elif choice < 0.5 and self.sleepers:
            self.sleepers[0].turn()
        elif choice < 0.6 and self.zombies:
            self.zombies[0].turn_of_zombie()
        else:
            self.random.choice(self.tasks).turn()

    def storm(self) -> None:
        draw = self.random.random
        if draw() < 0.12:
            self.produce(self.random.randrange(1, 4))
        target = self.committing()
        if draw() < (0.25 if target is None else 0.5):
            self.user_acts(target)
        if draw() > 0.2:
            return
        if self.chance(Fault.CHANNEL_WIPED, 0.03):
            self.channel = []
            self.late = []
            self.wipes += 1
        if self.chance(Fault.TASK_KILLED, 0.06):
            self.kill_task(self.random.choice(self.tasks))
        if self.coordinator and self.chance(Fault.COORDINATOR_KILLED, 0.05):
            self.coordinator.die()
            self.coordinator = None
        if self.coordinator and not self.sleepers and self.chance(Fault.COORDINATOR_SLEEPS, 0.08):
            self.coordinator.awake = False
            self.sleepers.append(self.coordinator)
            self.coordinator = None
        if self.sleepers and not self.sleepers[0].awake and self.chance(Fault.SLEEPER_WAKES, 0.15):
            self.sleepers[0].awake = True
        if self.chance(Fault.EVERYTHING_KILLED, 0.02):
            self.stop_all()
        if self.chance(Fault.REBALANCE, 0.06):
            self.balance()
        if self.chance(Fault.LOADED, 0.04):
            self.load()
        if not self.altering and self.chance(Fault.RETENTION, 0.08):
            for partition, start in self.safe_starts().items():
                self.log_starts[partition.partition] = self.random.randrange(
                    self.log_start(partition), start + 1
                )
        # Only for partitions with a ledger: for others, the start of the log would be the start of
        # the table.
        if (
            draw() < 0.004
            and (candidates := sorted(self.safe_starts()))
            and self.chance(Fault.RETENTION_TOO_SOON, 1.0)
        ):
            partition = self.random.choice(candidates)
            start, end = self.log_start(partition), len(self.logs[partition.partition])
            self.log_starts[partition.partition] = self.random.randrange(start, end + 1)
        # The group has the only record of commits that a restored catalog has lost.
        remembered = not self.faults[Fault.RESTORED]
        if (
            draw() < 0.03
            and remembered
            and self.has_arrived()
            and self.chance(Fault.GROUP_LOST, 1.0)
        ):
            self.group.clear()
        if (
            draw() < 0.03
            and remembered
            and self.group
            and self.has_ledger()
            and self.chance(Fault.GROUP_RESET, 1.0)
        ):
            partition = self.random.choice(list(self.group))
            self.group[partition] = (
                self.random.randrange(len(self.logs[partition.partition]) + 1),
                "",
            )

    def safe_starts(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which retention may delete records.

        Partitions that some table may still need are omitted.
        """
        views = [self.view(name) for name in self.routes]
        ledgers = [look_up(view).ledger if view else None for view in views]
        group = self.group_offsets()
        starts: dict[TopicPartition, int] = {}
        for partition in self.partitions():
            entries = [
                ledger.entry(partition, self.topic_id) if ledger else None for ledger in ledgers
            ]
            offset = group.get(partition)
            if offset is None or offset.mark is None or offset.mark.topic_id != self.topic_id:
                continue
            if all(entry and entry.generation == offset.mark.generation for entry in entries):
                safe = min([offset.offset, *(entry.next for entry in entries if entry)])
                starts[partition] = max(safe, self.log_start(partition))
        return starts

    def failed(self, reason: str) -> None:
        """Handle a failure of the connector that a user must resolve."""
        if "rows are lost" in reason:
            # A new table starts at the floor, and there may be unknown tables. The connector cannot
            # determine that they do not need the deleted records.
            new_tables = (
                Fault.DROP,
                Fault.REPLACE,
                Fault.REPLACE_WITH_PROPERTIES,
                Fault.ROUTE_ADDED,
            )
            lost = (Fault.RETENTION_TOO_SOON, Fault.ROLL_BACK, Fault.RESTORED, *new_tables)
            if self.dynamic or any(self.faults[fault] for fault in lost):
                raise ExpectedFailureError(reason)
            raise WrongWorldError(f"failed although no rows are lost: {reason}")
        if "on Kafka cluster" in reason and self.faults[Fault.OTHER_CLUSTER]:
            raise ExpectedFailureError(reason)
        if "has no commit from this connector" in reason and self.faults[Fault.RESTORED]:
            raise ExpectedFailureError(reason)
        if "did not commit" in reason and self.faults[Fault.REPLACE_BY_ITS_ROWS]:
            raise ExpectedFailureError(reason)
        self.new_topic_allowed = True  # the user follows the message

    def kill_task(self, task: SimTask) -> None:
        if task in self.zombies:
            self.zombies.remove(task)
            return
        self.tasks.remove(task)
        replacement = self.start_task()
        for partition, owner in self.owners.items():
            if owner is task:
                self.owners[partition] = replacement

    def stop_all(self) -> None:
        """Restart all processes. Sometimes, a previous task continues for a while."""
        if self.coordinator is not None:
            self.coordinator.die()
            self.coordinator = None
        if self.tasks and self.chance(Fault.ZOMBIE_OF_EARLIER_START, 0.5):
            self.zombies = [self.random.choice(self.tasks)]
        self.tasks.clear()
        self.balance()

    def load(self) -> None:
        """Stop the connector and start a load, or restart the connector, possibly during a load."""
        if self.loading is None:
            self.loads += 1
            self.loading, self.start_number = self.start_number + 1, self.loads - 1_000_000
        else:
            self.increment_start_number()
        self.stop_all()

    def increment_start_number(self) -> None:
        """Count a start of the connector. A load in progress is outdated, but continues."""
        self.start_number = self.loading or self.start_number + 1
        self.loading = None

    def lose(self, under_way: Committing) -> None:
        """End a commit whose driver failed. Executors may still write the files of its MERGE."""
        under_way.steps.close()
        if under_way.commit.pending is not None and self.chance(Fault.MERGE_LATE, 1.0):
            self.late_commits.append(under_way.commit.write)

    def continue_compaction(self, compaction: Generator[None, None, None]) -> None:
        """Take the remaining steps of a compaction whose coordinator has ended, one at a time."""

        def step() -> None:
            if self.draw_compaction.random() > 0.3 or next(compaction, True) is None:
                self.late_commits.append(step)

        self.late_commits.append(step)

    def has_ledger(self) -> bool:
        return any((v := self.view(name)) and look_up(v).ledger for name in self.tables)

    def unmarked(self) -> bool:
        return any(OffsetMetadata.from_text(text) is None for _, text in self.group.values())

    def committing(self) -> str | None:
        """Return a table with a commit in progress."""
        for coordinator in (self.coordinator, *self.sleepers):
            for under_way in coordinator.committing() if coordinator else ():
                return under_way.commit.request.table
        return None

    def user_acts(self, target: str | None) -> None:
        """Act as owner of tables and topics, more often on a table with a commit in progress."""
        name = self.random.choice((APPEND, MERGE, LATER, *([target] * 3 if target else ())))
        table = self.tables.get(name)
        if table is not None:
            often = 2 if name == target else 1
            if self.chance(Fault.FOREIGN_COMMIT, 0.05):
                self.foreign_commit(table)
            merges = table.format is not Format.APPEND and table.head is not None
            if merges and self.chance(Fault.COMPACTION, 0.06 * often):
                self.compact(table)
            if merges and self.chance(Fault.FOREIGN_UPSERT, 0.06 * often):
                self.foreign_upsert(table)
            if merges and self.chance(Fault.MANIFESTS_REWRITTEN, 0.03 * often):
                self.add_snapshot(table, None, None)
            if table.head is not None and self.chance(Fault.TAGGED, 0.02):
                self.tag(table)
            if merges and self.chance(Fault.SCRATCH_LEFT_BEHIND, 0.02):
                self.leave_scratch(table)
            chain = table.ancestors()
            targets = self.known_points(chain)
            if targets and self.chance(Fault.ROLL_BACK, 0.04):
                table.head = self.random.choice(targets).id
                table.rolled_back = table.ever_rolled_back = True
                table.foreign = {
                    row for row in table.snapshots[table.head].content if row[0][0] == FOREIGN
                }
                self.changed(table, main=True)
            if targets and not table.rolled_back and self.chance(Fault.REWIND_SKIPS, 0.02):
                self.rewind_and_skip(table, self.draw_skip.choice(targets))
            if targets and not table.rolled_back and self.chance(Fault.REBUILT, 0.04):
                self.rebuild(table, self.draw_rebuild.choice(targets))
            if len(chain) > 1 and not table.rolled_back and self.chance(Fault.EXPIRE, 0.04):
                self.foreign_commit(table)
                self.expire(table, self.random.choice((1, 2)))
            if Fault.RESTORED in self.allowed:
                self.backup(table)
            head = table.current() if table.property else None
            if head and not table.rolled_back and self.chance(Fault.REPLACE_BY_ITS_ROWS, 0.004):
                change = Change()
                if table.format is not Format.APPEND:
                    change = self.lake.compacted(table, head, head.data)
                table.head = None
                table.snapshots[self.add_snapshot(table, None, None, change)].content = dict(
                    head.content
                )
                table.rolled_back = True
            if self.random.random() < 0.05 and not self.unmarked():
                if self.chance(Fault.DROP, 0.2):
                    self.purge(table)
                    del self.tables[name]
                    if name in self.routes:
                        self.dropped_at[name] = (self.topic_id, self.log_ends())
                elif self.chance(Fault.REPLACE, 0.25):
                    self.purge(table)
                    self.create(name)
                elif table.property and self.chance(Fault.REPLACE_WITH_PROPERTIES, 0.5):
                    copy = self.create(name, properties=table.property)
                    if self.random.random() < 0.5:  # a migration tool does not copy the history
                        self.foreign_commit(copy)
                        self.foreign_commit(copy)
                        copy.snapshots = {s.id: s for s in copy.ancestors()[:1]}
        if len(self.logs) < 4 and self.chance(Fault.PARTITION_ADDED, 0.01):
            self.logs.append([])
            self.owners[TopicPartition(TOPIC, len(self.logs) - 1)] = self.random.choice(self.tasks)
        replaceable = self.topic_no < 3 and self.random.random() < 0.02
        if replaceable and not self.unmarked() and self.chance(Fault.TOPIC_REPLACED, 0.3):
            self.topic_no += 1
            self.logs = [[] for _ in self.logs]
            self.alive.clear()
            self.log_starts.clear()
            self.produce(self.random.randrange(0, 8))
        if LATER not in self.routes and self.chance(Fault.ROUTE_ADDED, 0.01):
            self.routes = (*self.routes, LATER)
            self.increment_start_number()
            self.stop_all()
            if self.random.random() < 0.5:
                self.create(LATER)
        if not self.altering and self.chance(Fault.OFFSETS_ALTERED, 0.006):
            self.alter_offsets()
        if table is not None and self.chance(Fault.OTHER_CLUSTER, 0.0015):
            self.commit_of_other_cluster(table)

    def rewind_and_skip(self, table: Table, target: Snapshot) -> None:
        """Go back to a snapshot, retain the current positions, and restart (rule 33)."""
        now, then = self.looked_up(table, table.head), self.looked_up(table, target.id)
        if now.standing is not Standing.FOUND or then.standing not in (
            Standing.FOUND,
            Standing.ROLLED_BACK,
        ):
            return  # the command refuses
        assert now.ledger is not None
        ids = {
            each.ledger.topics[TOPIC].topic_id for each in (now, then) if each.ledger is not None
        }
        if ids != {self.topic_id}:
            return
        self.increment_start_number()
        self.stop_all()
        head, table.head = table.head, target.id
        pairs, table.head = self.open_pairs(table), head
        ledger = skipping(now.ledger)
        snapshot = self.new_snapshot(
            target.id, ledger.to_json(), dict(target.content), target.data, target.deletes, ()
        )
        snapshot.open_pairs = table.open_pairs = pairs
        table.snapshots[snapshot.id], table.head = snapshot, snapshot.id
        table.property = LedgerProperty(ledger, snapshot.id, now.opened).to_json()
        table.foreign = {row for row in snapshot.content if row[0][0] == FOREIGN}
        self.skips[snapshot.id] = {
            (self.topic_id, p): range((entry or now.opened[p]).next, following.next)
            for p in self.partitions()
            if (following := now.ledger.entry(p))
            for entry in [then.ledger.entry(p) if then.ledger else None]
        }
        self.changed(table, main=True)

    def rebuild(self, table: Table, target: Snapshot) -> None:
        """Rebuild a table on an older snapshot with the current positions (rule 37)."""
        now, then, head = (
            self.looked_up(table, table.head),
            self.looked_up(table, target.id),
            table.current(),
        )
        if now.standing is not Standing.FOUND or now.ledger is None or head is None:
            return  # the command refuses
        if now.ledger.topics[TOPIC].topic_id != self.topic_id:
            return
        pairs = self.open_pairs(table)
        skipped = {p: self.skipped(table, p) for p in self.partitions()}
        change = (
            Change()
            if table.format is Format.APPEND
            else self.lake.compacted(table, head, head.data)
        )
        self.lake.store(change)
        offsets = {tp: position.next for tp, position in now.ledger.positions().items()}
        ledger, files = following(now.ledger, then, offsets), change.of(head)
        snapshot = self.new_snapshot(
            target.id, ledger.to_json(), dict(head.content), *files, change.new_files()
        )
        snapshot.open_pairs = table.open_pairs = pairs
        table.snapshots[snapshot.id], table.head = snapshot, snapshot.id
        table.property = LedgerProperty(ledger, snapshot.id, now.opened).to_json()
        if any(skipped.values()):
            self.skips[snapshot.id] = {(self.topic_id, p): skipped[p] for p in skipped}
        self.changed(table, main=True)

    def looked_up(self, table: Table, head: int | None) -> Lookup:
        """Look up the ledger of a table as if main were at another snapshot."""
        before, table.head = table.head, head
        view, table.head = self.view(table.name), before
        assert view is not None
        return look_up(view)

    def skipped(self, table: Table, partition: TopicPartition) -> set[int]:
        """Return the offsets that a rewind in the history of a table has skipped."""
        offsets: set[int] = set()
        at = table.head
        while at is not None:
            offsets.update(self.skips.get(at, {}).get((self.topic_id, partition), ()))
            at = self.parents[at]
        return offsets

    def backup(self, table: Table) -> None:
        """Back up the metadata of a table, or restore a backup."""
        if table.property is not None and not table.rolled_back and self.draw_apart.random() < 0.05:
            table.backup = replace(table, snapshots=dict(table.snapshots), backup=None)
            table.backup.foreign, table.backup.refs = set(table.foreign), {}
        backup = table.backup
        if (
            backup is None
            or backup.property == table.property
            or not self.chance(Fault.RESTORED, 0.03)
        ):
            return
        table.snapshots = dict(backup.snapshots)
        table.head, table.property = backup.head, backup.property
        table.foreign, table.open_pairs = set(backup.foreign), backup.open_pairs
        table.refs, table.rolled_back, table.ever_rolled_back = {}, False, True
        self.changed(table, main=True)
        # by the time a catalog is restored, all requests and paused coordinators have ended
        self.late_commits.clear()
        self.sleepers.clear()

    def commit_of_other_cluster(self, table: Table) -> None:
        """Commit as a connector of the same name on another cluster.

        Its topic has the same ID. Otherwise, rule 23 would apply.
        """
        entries = {p.partition: LedgerEntry(0, 0, end + 5) for p, end in self.log_ends().items()}
        topics = {TOPIC: TopicLedger(self.topic_id, entries)}
        ledger = Ledger(Epoch(1, "other"), self.unique("c"), 1, table.uuid, "other", topics)
        snapshot = self.add_snapshot(table, ledger.to_json(), None)
        opened = LedgerProperty.from_json(table.property).opened if table.property else {}
        table.property = LedgerProperty(ledger, snapshot, opened).to_json()

    def purge(self, table: Table) -> None:
        """Delete all files in the directory of a dropped table, staged or not."""
        self.lake.purge(table)

    def known_points(self, chain: list[Snapshot]) -> list[Snapshot]:
        """Return the ancestors with known contents, which a table may be rolled back to.

        The contents are unknown if our snapshots expired and the first remaining one has our rows
        (documented limit).
        """
        complete = bool(chain) and chain[-1].parent is None
        complete = complete and bool(
            chain[-1].ledger or all(row[0][0] == FOREIGN for row in chain[-1].content)
        )
        oldest = max((i for i, s in enumerate(chain) if s.ledger), default=-1)
        return chain[1:] if complete else chain[1 : oldest + 1]

    def alter_offsets(self) -> None:
        """Alter offsets while the connector is stopped. It may restart before the commit."""
        views = {name: self.view(name) for name in self.tables}
        lookups = {name: look_up(view) for name, view in views.items() if view}
        partitions = list(self.partitions())
        chosen = self.random.sample(partitions, self.random.randrange(1, len(partitions) + 1))
        starts = {p: self.log_start(p) for p in chosen}
        if self.chance(Fault.OFFSETS_SKIPPED, 0.4):
            starts |= {p: max(starts[p], self.group[p][0]) for p in chosen if p in self.group}
        ends = self.log_ends()
        new_offsets = {
            p: self.random.randrange(min(starts[p], ends[p]), ends[p] + 1) for p in chosen
        }
        self.altering = altered_group(
            new_offsets,
            self.group_offsets(),
            lookups,
            {TOPIC: self.topic_id},
            self.start_number,
            self.unique("e"),
        )
        self.increment_start_number()
        self.stop_all()
        if not self.chance(Fault.OFFSETS_ALTERED_LATE, 0.5):
            self.write_altered()

    def has_arrived(self) -> bool:
        """Return True if all tables have the generations of all alterations.

        Until then, the loss of the group is a documented limit.
        """
        if self.altering:
            return False
        views = [self.view(name) for name in self.routes]
        ledgers = [look_up(view).ledger if view else None for view in views]
        entries = [
            (ledger.entry(p) if ledger else None, starts)
            for ledger in ledgers
            for p, starts in self.rewound.items()
        ]
        return all(
            entry is not None and entry.generation == len(starts) - 1 for entry, starts in entries
        )

    def write_altered(self, late: bool = False) -> None:
        """Commit the altered offsets, unless a task has joined the group in the meantime."""
        altered, self.altering = self.altering, {}
        if late and any(task.assigned for task in self.tasks):
            return
        for partition, offset in altered.items():
            assert offset.mark is not None
            mark = offset.mark
            if Switch.RAISE_GENERATION in self.off:
                mark = replace(mark, generation=mark.generation - 1)
            self.group[partition] = (offset.offset, mark.to_text())
            self.rewound.setdefault(partition, [0]).append(offset.offset)

    # End of a run

    def run(self, turns: int = 900) -> None:
        try:
            self.live(turns)
        except ExpectedFailureError:
            self.verify_once()
        else:
            self.verify()

    def live(self, turns: int) -> None:
        self.balance()
        for _ in range(turns):
            self.turn()
        self.calm()
        for turn in range(REST_TURNS * (5 if self.pairs else 1)):
            self.turn()
            if turn % 25 == 24 and self.at_rest():
                break
        else:
            raise WrongWorldError(f"not at rest: {self.unrest()}")

    def calm(self) -> None:
        """End the storm, and write a last row to every partition."""
        self.stormy = False
        self.calm_since = self.now
        self.new_topic_allowed = True
        if self.loading is not None:
            self.increment_start_number()
            self.stop_all()
        self.zombies.clear()
        for sleeper in self.sleepers:
            sleeper.awake = True
        for number in range(len(self.logs)):
            self.write_log(number, Row(f"{number}-0", (APPEND, MERGE, LATER)))
        for partition, end in (self.bounds.ends if self.bounds else {}).items():
            while len(self.logs[partition.partition]) < end:
                self.write_log(
                    partition.partition, Row(f"{partition.partition}-0", (APPEND, MERGE, LATER))
                )
        self.balance()

    def at_rest(self) -> bool:
        return not self.unrest()

    def unrest(self) -> str:
        if (
            self.late
            or self.late_commits
            or any(not s.state.ended for s in self.sleepers if s.state)
        ):
            if self.sleepers and self.sleepers[0].idle():
                self.sleepers.clear()
            return "something is under way"
        if self.bounds is not None:
            return self.unrest_before_bounds()
        for name in self.routes:
            view = self.view(name)
            ledger = look_up(view).ledger if view else None
            for partition in self.partitions():
                entry = ledger.entry(partition, self.topic_id) if ledger else None
                if self.off:
                    continue  # the ledgers may be wrong; `verify` checks the rows
                if entry is None or entry.next < len(self.logs[partition.partition]):
                    return (
                        f"{name} {partition}: {entry}, the log ends at "
                        f"{len(self.logs[partition.partition])}"
                    )
        for partition in self.partitions():
            if self.group.get(partition, (-1, ""))[0] != len(self.logs[partition.partition]):
                return f"group at {self.group.get(partition)} of {partition}"
        return ""

    def unrest_before_bounds(self) -> str:
        """Return the reason why a bounded world is not at rest, from the coordinator's view.

        Quiet tables are checked one after another, so it takes a while after the storm.
        """
        state = self.coordinator.state if self.coordinator is not None else None
        if (
            self.now - self.calm_since < BOUNDED_CALM
            or state is None
            or state.ended
            or state.remaining
        ):
            return f"remaining offsets: {None if state is None else state.remaining}"
        behind = [
            p
            for p in self.partitions()
            if self.required_end(p) and self.group.get(p, (0, ""))[0] < self.required_end(p)
        ]
        return f"the group is behind in {behind}" if behind else ""

    def verify_once(self) -> None:
        """Raise WrongWorldError if a table has a row twice."""
        for name, table in self.tables.items():
            content = head.content if (head := table.current()) else {}
            for (row, generation), count in content.items():
                if count != 1:
                    raise WrongWorldError(
                        f"{name}: row {row} of generation {generation} exists {count} times"
                    )
            if table.format is not Format.APPEND:
                for key, rows in self.lake.state(table).items():
                    if len(rows) > 1:
                        raise WrongWorldError(f"{name}: {key} exists {len(rows)} times: {rows}")

    def verify(self) -> None:
        """Raise WrongWorldError unless the tables have the expected rows.

        An append table has each routed row once, a merge table has the last state per key.
        """
        self.verify_once()
        for name in self.routes:
            table = self.tables.get(name)
            if self.bounds is not None and not self.has_required_rows(name) and not is_ours(table):
                continue
            if table is None or table.head is None or table.property is None:
                raise WrongWorldError(f"{name}: nothing was ever committed")
            prop = LedgerProperty.from_json(table.property)
            foreign = {row for row in table.snapshots[table.head].content if row[0][0] == FOREIGN}
            if foreign != table.foreign:
                raise WrongWorldError(
                    f"{name}: rows of other writers are wrong: {foreign ^ table.foreign}"
                )
            if remaining := table.seen_scratch & {*table.refs}:
                raise WrongWorldError(f"{name}: no commit removed the scratch branches {remaining}")
            for partition in self.partitions():
                self.verify_partition(name, table, prop, partition)
            if name == MERGE:
                self.verify_merge(table, prop)

    def has_required_rows(self, name: str) -> bool:
        """Return True if a table without commits should have rows.

        All rows for a route that was added later may be older than the table.
        """
        table, (_, ends) = self.tables.get(name), self.dropped_at.get(name, ("", {}))
        born = ends if table is None else table.born_at
        rows = [
            row
            for p in self.partitions()
            for row in self.logs[p.partition][born.get(p, 0) : self.required_end(p)]
        ]
        return name != LATER and any(name in row.tables for row in rows)

    def verify_partition(
        self, name: str, table: Table, prop: LedgerProperty, partition: TopicPartition
    ) -> None:
        assert table.head is not None
        if (
            self.bounds is not None
            and not self.required_end(partition)
            and partition not in prop.opened
        ):
            return  # added after the last commit
        content = table.snapshots[table.head].content
        began = prop.opened[partition].next
        born = table.born_at.get(partition, 0) if table.topic_ids[TOPIC] == self.topic_id else 0
        starts = self.rewound.get(partition, [0])
        last = len(starts) - 1
        skipped = self.skipped(table, partition)
        for offset, row in enumerate(self.logs[partition.partition]):
            where = (self.topic_id, partition.partition, offset)
            counts = [content.get((where, g), 0) for g in range(last + 1)]
            if (
                name not in row.tables
                or offset in skipped
                or offset >= self.required_end(partition)
            ):
                if any(counts):
                    raise WrongWorldError(f"{name}: unexpected row {where}")
                continue
            due = table.whole or offset >= min(born, began)
            if last:
                due = offset >= starts[-1] and (table.whole or offset >= max(born, began))
                # the rollback may have removed the only replay with these rows (documented limit)
                if table.ever_rolled_back:
                    due = due and offset >= max(starts)
            replayed = last > 0 and not table.ever_rolled_back and not self.faults[Fault.GROUP_LOST]
            if due and not (counts[last] if replayed else any(counts)):
                raise WrongWorldError(f"{name}: row {where} is missing")
            strict = not table.whole and not last
            if strict and offset < began and any(counts):
                raise WrongWorldError(
                    f"{name}: row {where} is older than the start of the table, {began}"
                )
            if last and sum(counts) > 1 + last:
                raise WrongWorldError(f"{name}: row {where} exists {counts} times")

    def verify_merge(self, table: Table, prop: LedgerProperty) -> None:
        assert table.head is not None
        rows = {key: last for key, (last, *_) in self.lake.state(table).items()}
        foreign_keys = {f"{FOREIGN}-{number}" for (_, _, number), _ in table.foreign}
        if wrong := foreign_keys ^ {key for key in rows if key.startswith(FOREIGN)}:
            raise WrongWorldError(f"{MERGE}: rows of other writers are wrong: {wrong}")
        if self.rewound and table.ever_rolled_back:
            return
        expected: dict[str, Last] = {}
        began = {
            p: 0 if table.whole else prop.opened[p].next
            for p in self.partitions()
            if self.required_end(p)
        }
        starts = {p: max(first, self.rewound.get(p, [0])[-1]) for p, first in began.items()}
        events = [
            (row, p, n)
            for p in starts
            for n, row in enumerate(self.logs[p.partition])
            if MERGE in row.tables
        ]
        skipped = {p: self.skipped(table, p) for p in starts}
        due = [
            (row, n)
            for row, p, n in events
            if starts[p] <= n < self.required_end(p) and n not in skipped[p]
        ]
        self.replay(due, expected)
        complete = table.whole and self.bounds is None  # otherwise, a delete may be missing
        if self.events[Event.STOOD_STILL] and complete and not (self.rewound or self.skips):
            raise WrongWorldError(
                f"{MERGE}: partitions waited for each other, although no delete is missing"
            )
        for key, last in expected.items():
            actual = rows.get(key, GONE)
            if actual[:2] != last[:2] or not self.is_value(actual, last):
                raise WrongWorldError(f"{MERGE}: {key} is {rows.get(key)}, expected {last}")

    def replay(self, events: Sequence[tuple[Row, int]], state: dict[str, Last]) -> None:
        """Apply rows with their offsets in the order of the source."""
        values: dict[str, Value | None] = {}  # by pair
        for row, offset in sorted(events, key=lambda each: each[0].at):
            last: Last = (self.topic_no, offset)
            if row.effect is Effect.LEAVE:
                old = state.get(row.key, GONE)
                values[row.pair] = None if old == GONE else value_of(row.key, old)
            elif row.effect is Effect.ARRIVE:
                last = (*last, values.get(row.pair))
            row.apply(state, last, GONE)

    def is_value(self, actual: Last, expected: Last) -> bool:
        """Return True if the value of a row is correct.

        It is not determined if the delete of the pair is before the start.
        """
        if len(expected) == 2 or actual == expected:
            return actual == expected
        if expected[2] is None and (self.rewound or self.skips):
            return True  # an earlier value of the table
        unknown = len(actual) == 3 and actual[2] is None
        return unknown and bool(self.rewound or self.skips or self.events[Event.STOOD_STILL])


def is_ours(table: Table | None) -> bool:
    """Return True if a table has a commit of the connector. Its property may be a copy."""
    if table is None or table.property is None:
        return False
    ledger = LedgerProperty.from_json(table.property).ledger
    return (ledger.table, ledger.cluster) == (table.uuid, "cluster")


class SimTask:
    """Task around a `TaskState`: consumer, staged rows, and channel position."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = world.unique("task")
        self.of_load = world.loading is not None
        self.state = TaskState(
            self.name,
            world.start_number,
            lambda: world.unique("n"),
            max_staged_cycles=world.random.choice((1, 2)),
            ask_interval_ms=25,
            rules=world.rules,
        )
        self.routes = world.routes
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.staged: dict[tuple[TopicPartition, str], list[tuple[RowId, Row]]] = {}
        self.read = len(world.channel)
        self.wipes = world.wipes
        self.commit_due = False
        self.dead = False
        self.waits = KeyChangeWaits(STANDSTILL)
        self.read_pairs: dict[TopicPartition, set[str]] = {}
        self.alone: set[tuple[TopicPartition, str]] = set()

    def turn(self) -> None:
        world = self.world
        mine = {p for p, owner in world.owners.items() if owner is self}
        if mine != self.assigned and not world.chance(Fault.ZOMBIE_TASK, 0.6):
            self.rebalance(mine)
            return
        choice = world.random.random()
        if choice < 0.45:
            self.read_channel()
        elif choice < 0.85:
            self.poll()
        elif choice < 0.95 or self.commit_due:
            self.commit()
        else:
            self.carry_out(self.state.on_tick(world.now))
        if self.waits:
            self.look_after_waits()

    def look_after_waits(self) -> None:
        """End waits like the task of the sink."""
        for partition in self.waits.read(self.known_pairs, self.state.filter_position):
            self.end_wait(partition)
        at = self.state.read_to, self.state.committed_to
        for partition in self.waits.expired(self.world.clock, self.ends_of_others, *at):
            ends = self.ends_of_others(partition)
            stuck = any((self.state.read_to(other) or 0) < end for other, end in ends.items())
            self.world.events[Event.STOOD_STILL if stuck else Event.WAITED_IN_VAIN] += 1
            self.alone.add((partition, self.waits.unread(partition).pair))
            self.end_wait(partition)

    def end_wait(self, partition: TopicPartition) -> None:
        self.waits.end(partition)
        self.carry_out(self.state.release(partition))

    def known_pairs(self, table: str) -> set[str]:
        answer = self.state.answer(table) or ""
        return set(answer.split("|")[1:]).union(*self.read_pairs.values())

    def ends_of_others(self, partition: TopicPartition) -> dict[TopicPartition, int]:
        return {other: end for other, end in self.world.log_ends().items() if other != partition}

    def has_to_wait(self, partition: TopicPartition, offset: int, pair: str) -> bool:
        if Switch.WAIT_FOR_THE_DELETE in self.world.off:
            return False
        if (
            Switch.OTHERS_COMMITTED_BEFORE_IN_VAIN in self.world.off
            and pair not in self.known_pairs(MERGE)
        ):
            self.alone.add((partition, pair))  # as if no other partition could have the delete
        needed = self.state.filter_position(MERGE, partition)
        is_known = pair in self.known_pairs(MERGE) or (partition, pair) in self.alone
        return needed is not None and offset >= needed and not is_known

    def turn_of_zombie(self) -> None:
        """Take a turn of a task that has lost its partitions and does not notice it."""
        if self.world.random.random() < 0.005:
            self.world.zombies.remove(self)
        elif Switch.ONLY_OWNERS_COMMIT in self.world.off and self.world.random.random() < 0.1:
            self.commit()
        elif self.world.random.random() < 0.5:
            self.read_channel()
        else:
            self.poll()

    def rebalance(self, mine: set[TopicPartition]) -> None:
        # sorted, so that the result does not depend on the process
        revoked, new = (sorted(self.assigned - mine), sorted(mine - self.assigned))
        for partition in revoked:
            self.waits.end(partition)
        self.assigned = mine
        self.carry_out(self.state.revoke(revoked))
        marks = {
            p: OffsetMetadata.from_text(self.world.group[p][1])
            for p in new
            if p in self.world.group
        }
        self.carry_out(
            self.state.assign(dict.fromkeys(new, self.world.topic_id), marks, self.world.now)
        )

    def read_channel(self) -> None:
        if self.wipes != self.world.wipes:
            self.wipes, self.read = self.world.wipes, 0
        for _ in range(3):
            if self.read >= len(self.world.channel) or self.dead:
                return
            message = self.world.channel[self.read]
            self.read += 1
            self.carry_out(self.state.on_message(message, self.world.now))
            if isinstance(message, TableOpened):
                self.waits.answered(message.table)

    def poll(self) -> None:
        ready = [p for p in sorted(self.assigned - self.paused) if self.state.is_reading(p)]
        if not ready:
            return
        partition = self.world.random.choice(ready)
        log = self.world.logs[partition.partition]
        at = self.positions.get(partition, 0)
        start = self.world.log_start(partition)
        if not start <= at <= len(log):
            if not self.world.off & {Rule.TOPIC_ID_EVERYWHERE, Rule.LOG_STILL_HOLDS_IT}:
                self.carry_out(self.state.position_lost(partition, self.world.now))
                return
            at = start  # as with auto.offset.reset=earliest
        first: dict[str, int | None] = {}
        bound, following = (
            self.state.end(partition),
            min(len(log), at + self.world.random.choice((1, 2, 3, 8))),
        )
        for offset in range(
            at, following if bound is None or bound < at else min(following, bound)
        ):
            row = log[offset]
            routed = [t for t in row.tables if t in self.routes]
            unopened = [t for t in routed if self.state.filter_position(t, partition) is None]
            if unopened:
                self.close_batch(partition, first, offset)
                stop = self.state.hold(partition, unopened[0], Need.CREATE, "{}", self.world.now)
                if Switch.HOLD_AT_UNOPENED_TABLE not in self.world.off:
                    self.carry_out(stop)
                    return
                self.carry_out([a for a in stop if isinstance(a, act.Send)])
            if row.effect is Effect.ARRIVE and self.has_to_wait(partition, offset, row.pair):
                self.close_batch(partition, first, offset)
                self.wait(partition, offset, row.pair)
                return
            for table in routed:
                needed = self.state.filter_position(table, partition)
                if needed is None:
                    continue  # only if rule 6 is disabled: the row is skipped
                first.setdefault(table, None)
                if offset >= needed:
                    if first[table] is None:
                        first[table] = offset
                    where = (self.world.topic_id, partition.partition, offset)
                    alone = (
                        Switch.WAIT_FOR_THE_DELETE in self.world.off
                        or (partition, row.pair) in self.alone
                    )
                    staged = replace(row, alone=alone) if row.effect is Effect.ARRIVE else row
                    self.staged.setdefault((partition, table), []).append((where, staged))
                    if row.effect is Effect.LEAVE:
                        self.read_pairs.setdefault(partition, set()).add(row.pair)
            at = offset + 1  # next offset to read
        self.close_batch(partition, first, at)

    def wait(self, partition: TopicPartition, offset: int, pair: str) -> None:
        """Hold the partition before the insert of a changed key whose delete was not read."""
        self.world.events[Event.WAITED] += 1
        self.waits.begin(partition, UnreadPair(MERGE, offset, pair, ""), self.world.clock)
        self.carry_out(self.state.hold(partition, MERGE, Need.PAIR, "{}", self.world.now))

    def close_batch(
        self, partition: TopicPartition, first: Mapping[str, int | None], following: int
    ) -> None:
        for table, offset in first.items():
            self.state.handled(partition, table, offset)
        self.state.advance(partition, following)
        self.positions[partition] = following

    def commit(self) -> None:
        self.commit_due = False
        for partition, offset in self.state.offsets_to_commit().items():
            refused = self.world.owners.get(partition) is not self
            if self.of_load and not any(task.assigned for task in self.world.tasks):
                refused = False  # the group has no members
            if refused and Switch.ONLY_OWNERS_COMMIT not in self.world.off:
                # the framework revokes the partition later
                self.world.faults[Fault.GROUP_COMMIT_REFUSED] += 1
            else:
                assert offset.mark is not None
                self.world.group[partition] = (offset.offset, offset.mark.to_text())

    def carry_out(self, actions: list[act.TaskAction]) -> None:
        for action in actions:
            match action:
                case act.Send():
                    self.world.send(action.message)
                case act.Pause():
                    self.paused |= action.partitions
                case act.Resume():
                    self.paused -= action.partitions
                case act.Seek():
                    self.positions[action.partition] = action.offset
                case act.Discard():
                    self.read_pairs.pop(action.partition, None)
                    self.staged = {k: v for k, v in self.staged.items() if k[0] != action.partition}
                case act.CloseFiles():
                    self.close_files(action.cycle)
                    if self.dead:
                        return
                case act.DescribeTopics():
                    ids = {TOPIC: self.world.topic_id}
                    self.carry_out(self.state.on_topic_ids(ids, self.world.now))
                case act.RequestCommit():
                    self.commit_due = True
                case act.Fail():
                    self.world.failed(action.reason)
                    raise WrongWorldError(action.reason)

    def close_files(self, cycle: int) -> None:
        epoch = self.state.epoch
        assert epoch is not None
        files: dict[tuple[TopicPartition, str], list[StagedFile]] = {}
        for (partition, table), rows in self.staged.items():
            uuid = (self.state.answer(table) or "").partition("|")[0]
            path = f"{table}/{uuid}/{epoch.number}/{epoch.nonce}/{self.world.unique('f')}"
            self.world.lake.staged[path] = rows
            files[partition, table] = [StagedFile(StagedKind.ROWS, path, len(rows), 0, 0, 0)]
        self.staged = {}
        if self.world.chance(Fault.TASK_KILLED_BEFORE_REPORT, 0.05):
            self.dead = True
            self.world.kill_task(self)
            return
        ids = {TOPIC: self.world.topic_id}
        self.carry_out(self.state.report(cycle, files, ids, self.world.now))


@dataclass(frozen=True, slots=True, eq=False)
class Committing:
    """Commit in progress."""

    commit: Commit
    steps: Steps


TABLE_ACTIONS = (act.LoadTable, act.PrepareTable, act.CommitTable, act.CleanFiles)


class SimCoordinator:
    """Coordinator thread around a `CoordinatorState`.

    It performs one action at a time, so that it may be killed between any two of them.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.awake = True
        self.state: CoordinatorState | None = None
        self.todo: list[act.CoordinatorAction | Committing] = []
        world.producer = self  # fences the previous coordinator
        self.read = len(world.channel)
        self.wipes = world.wipes
        epochs = [m.seen if isinstance(m, Attach) else m.epoch for m in world.channel]
        self.channel_epoch = max((e for e in epochs if e is not None), default=None)
        self.topics = world.topics()
        self.group: dict[TopicPartition, GroupOffset] | None = None
        self.looks: list[tuple[str, TableView | None]] = []  # views to be processed
        self.compaction: Generator[None, None, None] | None = None  # in progress

    def turn(self) -> None:
        if not self.awake:
            return
        if self.state is None:
            self.begin()
        elif self.state.ended:
            if self.world.commits_in_parallel and (commits := self.committing()):
                self.todo.remove(commits[0])
                # the coordinator waits for the commits in progress, and ignores their outcome
                self.advance(commits[0])
                return
            for action in self.todo:
                if isinstance(action, act.Fail):
                    self.world.failed(action.reason)
            self.end()
        elif (action := self.next_action()) is not None:
            self.do(action)
        elif self.world.random.random() < 0.6:
            self.read_channel()
        else:
            self.take(self.state.on_tick(self.world.now))
            if self.world.random.random() < 0.1:
                self.take(self.state.on_topics(self.world.topics()))
            if not self.world.off:  # the seeds that need a rule were found without looks
                self.look()
        if self.world.compacts and self.state is not None:
            self.compact()

    def committing(self) -> list[Committing]:
        """The commits in progress, each of a different table."""
        return [action for action in self.todo if isinstance(action, Committing)]

    def next_action(self) -> act.CoordinatorAction | Committing | None:
        """Remove and return the next action. None: read the channel, or advance the time.

        In parallel worlds, commits take their steps in any order, concurrently with other actions.
        Actions on the table of a commit in progress wait for its end, as in `TableExecutor`.
        """
        if not self.world.commits_in_parallel:
            return self.todo.pop(0) if self.todo else None
        choices: list[act.CoordinatorAction | Committing | None] = [*self.committing()]
        busy = {under_way.commit.request.table for under_way in self.committing()}
        waiting_actions = [a for a in self.todo if not isinstance(a, Committing)]
        if not waiting_actions:
            choices.append(None)
        for action in waiting_actions:
            table = action.table if isinstance(action, TABLE_ACTIONS) else None
            if table not in busy:
                choices.append(action)
                break
            busy.add(table)  # later actions on the same table wait, too
        action = self.world.draw_parallel.choice(choices)
        if action is not None:
            self.todo.remove(action)
        return action

    def idle(self) -> bool:
        return self.state is None or (not self.todo and self.world.producer is not self)

    def begin(self) -> None:
        world = self.world
        if self.group is None:
            self.group = world.group_offsets()
            return
        settings = CoordinatorSettings(
            "cluster",
            world.start_number,
            commit_interval_ms=15,
            commit_timeout_ms=10 if world.short else 50,
            dynamic=world.dynamic,
            new_topic_allowed=world.new_topic_allowed,
            bounds=world.bounds,
            retry_delay_ms=5,
        )
        self.state = CoordinatorState(
            settings, world.unique("e"), lambda: world.unique("c"), world.rules
        )
        views = {name: world.view(name) for name in world.routes}
        self.take(self.state.begin(self.topics, self.group, views, self.channel_epoch, world.now))
        if Switch.KEEP_OLD_FILES_UNTIL_OWN_COMMIT in world.off:
            for name, table in world.tables.items():
                world.clean(act.CleanFiles(name, table.uuid, self.state.epoch))

    def leave_compaction(self) -> None:
        """Leave a compaction to the Spark driver, which continues it."""
        if self.compaction is not None:
            self.world.continue_compaction(self.compaction)

    def end(self) -> None:
        self.leave_compaction()
        if self.world.coordinator is self:
            self.world.coordinator = None
        if self in self.world.sleepers:
            self.world.sleepers.remove(self)

    def read_channel(self) -> None:
        assert self.state is not None
        if self.wipes != self.world.wipes:
            self.wipes, self.read = self.world.wipes, 0
        for _ in range(3):
            if self.read < len(self.world.channel):
                message = self.world.channel[self.read]
                self.read += 1
                self.take(self.state.on_message(message))

    def look(self) -> None:
        """Load a table that receives no rows. The view may be processed later, but in order."""
        assert self.state is not None
        if self.looks and self.world.draw_look.random() < 0.5:
            self.see()
        quiet = self.state.quiet_tables
        if quiet and self.world.draw_look.random() < 0.1:
            name = self.world.draw_look.choice(quiet)
            self.looks.append((name, self.world.view(name)))

    def compact(self) -> None:
        """Take a step of a compaction, or start one."""
        world = self.world
        assert self.state is not None
        if self.compaction is not None and world.draw_compaction.random() < 0.5:
            if next(self.compaction, True):
                self.compaction = None
        elif (
            self.compaction is None
            and self.state.epoch is not None
            and world.draw_compaction.random() < 0.02
        ):
            table = world.tables.get(MERGE)
            if table is not None and table.property is not None:
                self.compaction = Compaction(world, table, self.state.epoch).steps()

    def see(self) -> None:
        assert self.state is not None
        while self.looks:
            self.take(self.state.on_table_seen(*self.looks.pop(0)))

    def take(self, actions: list[act.CoordinatorAction]) -> None:
        self.todo += actions

    def do(self, action: act.CoordinatorAction | Committing) -> None:
        state, world, now = self.state, self.world, self.world.now
        assert state is not None
        if isinstance(action, act.LoadTable | act.PrepareTable | act.CommitTable):
            self.see()  # one thread accesses the catalog
        match action:
            case act.Send():
                if world.producer is not self:
                    state.ended = True
                else:
                    world.send(action.message)
            case act.Stop():
                pass
            case act.Fail():
                pass  # the state has ended
            case act.LoadTable():
                if world.chance(Fault.LOAD_FAILED, 0.1):
                    self.take(state.on_load_failed(action.table, "catalog is away", now))
                else:
                    self.take(state.on_table_loaded(action.table, world.view(action.table), now))
            case act.PrepareTable():
                if action.table not in world.tables:
                    world.create(action.table, whole=False)
                view = world.view(action.table)
                assert view is not None
                answer = world.describe(world.tables[action.table])
                self.take(state.on_table_prepared(action.table, view, answer))
            case act.ReadGroupOffsets():
                self.take(state.on_group_offsets(world.group_offsets()))
            case act.DescribeTopics():
                self.take(state.on_topics(world.topics()))
            case act.ProveLeadership():
                self.take(state.on_leadership(action.token, world.producer is self))
            case act.CommitTable():
                commit = Commit(world, action)
                self.advance(Committing(commit, commit.steps()))
            case Committing():
                self.advance(action)
            case act.CleanFiles():
                if Switch.KEEP_OLD_FILES_UNTIL_OWN_COMMIT not in world.off:
                    world.clean(action)
            case act.Warn():
                rolled_back = any(
                    world.faults[fault] for fault in (Fault.ROLL_BACK, Fault.RESTORED)
                )
                if "replaced with an empty table" in action.text:  # the table had no rows
                    rolled_back = rolled_back or bool(world.faults[Fault.REPLACE_BY_ITS_ROWS])
                is_correct = (
                    rolled_back
                    if "was rolled back" in action.text
                    else world.faults[Fault.RESTORED]
                )
                if not is_correct and not world.off:
                    raise WrongWorldError(f"false warning: {action.text}")
            case act.ReportFailure():
                pass

    def advance(self, under_way: Committing) -> None:
        """Take some steps of a commit."""
        world, request = self.world, under_way.commit.request
        try:
            next(under_way.steps)
            while world.random.random() < 0.5:
                next(under_way.steps)
        except StopIteration as end:
            answer: Answer = end.value
        except DeleteUnreadError:
            world.events[Event.DELETE_UNREAD] += 1
            assert self.state is not None
            self.state.ended = True
            return
        else:
            self.todo.insert(0, under_way)
            if world.chance(Fault.DRIVER_LOST, 0.15 if under_way.commit.pending else 0.05):
                self.lose_driver()
            return
        self.commit_ended(request, answer)

    def lose_driver(self) -> None:
        """End all commits in progress, because the driver failed."""
        for under_way in self.committing():
            self.todo.remove(under_way)
            self.world.lose(under_way)
            unknown = under_way.commit.unknown or self.world.random.random() < 0.5
            status = CommitStatus.UNKNOWN if unknown else CommitStatus.FAILED
            self.commit_ended(under_way.commit.request, (status, None))

    def commit_ended(self, request: act.CommitTable, answer: Answer) -> None:
        assert self.state is not None
        status, snapshot = answer
        self.take(
            self.state.on_commit_outcome(
                request.table, request.commit, status, "why", snapshot, self.world.now
            )
        )

    def die(self) -> None:
        self.leave_compaction()
        for action in self.todo:
            if isinstance(action, Committing):
                self.world.lose(action)


def simulate(seed: int, off: Off = frozenset(), faults: Sequence[Fault] = tuple(Fault)) -> World:
    """Run one seed with some of these faults until the world is at rest, and verify it.

    Raises:
        WrongWorldError: A table is wrong.
    """
    world = World(seed, off, faults)
    world.run()
    return world
