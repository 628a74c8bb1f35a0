"""Tables of the simulated world: snapshots that refer to data files and delete files, and a storage
that holds them.

A merge table is what its files say: the rows of the head's data files that none of its delete files
marks. So a delete file that somebody removes, or that marks a file which is not there any more,
shows as a wrong table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from iceberg_protocol_storm import Effect, Row, RowId, WrongWorldError

from connectors.iceberg.protocol.positions import TopicPartition

if TYPE_CHECKING:
    from iceberg_protocol_pairs import OpenHalf

Value = tuple[int, int, str]  # what only a full write sends: number of its topic, offset, key
# The change that wrote a row of a merge table: number of the topic, offset, and, if it did not send
# it, the value.
Last = tuple[int, int] | tuple[int, int, Value | int | None]
Rows = tuple[tuple[str, Last], ...]  # of a data file: key and change, in order
Place = tuple[str, int]  # a row's: data file, position
SCRATCH = "scratch"  # prefix of the branches of the previous version


def value_of(key: str, last: Last) -> Value | None:
    """The value of a row that is complete."""
    if len(last) == 2:
        return (*last, key)
    assert not isinstance(last[2], int)
    return last[2]


class Format(Enum):
    """How a table takes rows. What it is depends on its properties and its format version."""

    APPEND = auto()  # no merging
    # v3: at most one vector per data file, which names it; a newer one includes the older
    VECTORS = auto()
    POSITIONS = auto()  # v2: position deletes of a partition, which do not name their data files
    WHOLE = auto()  # copy-on-write: the full MERGE rewrites data files


@dataclass(slots=True)
class Snapshot:
    id: int
    parent: int | None
    ledger: str | None
    content: dict[tuple[RowId, int], int]  # (row, generation) -> how often
    data: tuple[str, ...]
    deletes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()  # the files that came with it
    replaced: frozenset[str] = frozenset()  # delete files of its parent that those include
    # name of the scratch branch, in the summary of a snapshot of the previous version
    branch: str | None = None
    open_pairs: tuple[OpenHalf, ...] = ()  # in the summary of ours

    @property
    def files(self) -> tuple[str, ...]:
        return self.data + self.deletes


@dataclass(slots=True)
class Change:
    """What a MERGE does to the files of one snapshot."""

    data: dict[str, Rows] = field(default_factory=dict)  # new data files
    gone: set[str] = field(default_factory=set)  # data files that they replace
    deletes: dict[str, frozenset[Place]] = field(default_factory=dict)  # new delete files
    replaced: set[str] = field(default_factory=set)  # delete files that they include

    def __bool__(self) -> bool:
        return bool(self.data or self.gone or self.deletes)

    def new_files(self) -> tuple[str, ...]:
        return (*self.data, *self.deletes)

    def of(self, snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Data files and delete files of a snapshot that follows this one."""
        data = (*(path for path in snapshot.data if path not in self.gone), *self.data)
        deletes = (*(path for path in snapshot.deletes if path not in self.replaced), *self.deletes)
        return data, deletes


@dataclass(slots=True)
class Table:
    name: str
    uuid: str
    born_at: dict[TopicPartition, int]  # log ends at its creation: rows from there on must be in
    topic_ids: dict[str, str]
    whole: bool  # the first of its name, routed from the start: every row must be in
    format: Format
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    head: int | None = None
    property: str | None = None
    open_pairs: tuple[OpenHalf, ...] = ()  # a property, too
    rolled_back: bool = False
    ever_rolled_back: bool = False
    foreign: set[tuple[RowId, int]] = field(default_factory=set)  # rows that others have added
    # tags, and scratch branches of the previous version
    refs: dict[str, int] = field(default_factory=dict)
    # scratch branches that an own swap had to remove
    seen_scratch: set[str] = field(default_factory=set)
    version: int = 0  # of the metadata: changes with everything that is changed in them
    moves: int = 0  # changes with main, and with the property
    backup: Table | None = None

    def current(self) -> Snapshot | None:
        return self.snapshots[self.head] if self.head is not None else None

    def ancestors(self, at: int | None = None) -> list[Snapshot]:
        """From the head, or from another snapshot."""
        found = []
        at = self.head if at is None else at
        while at is not None and at in self.snapshots:
            found.append(self.snapshots[at])
            at = self.snapshots[at].parent
        return found


def is_scratch(ref: str) -> bool:
    return ref.startswith(SCRATCH)


class MissingFileError(Exception):
    """A file does not exist any more."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Lake:
    """The storage: files, which are never changed, and may be gone."""

    def __init__(self) -> None:
        self.staged: dict[str, list[tuple[RowId, Row]]] = {}
        self.data: dict[str, Rows] = {}
        self.deletes: dict[str, frozenset[Place]] = {}
        self._upserts: dict[str, Rows] = {}
        self._numbers = 0

    def __contains__(self, path: str) -> bool:
        return path in self.staged or path in self.data or path in self.deletes

    def remove(self, paths: Iterable[str], tables: Iterable[Table], why: str) -> None:
        """Remove files; nobody may remove what a table's history on main refers to."""
        paths = set(paths)
        for path in paths:
            self.staged.pop(path, None)
            self.data.pop(path, None)
            self.deletes.pop(path, None)
        for table in tables:
            for snapshot in table.ancestors():
                if lost := paths & {*snapshot.files}:
                    raise WrongWorldError(
                        f"{table.name}: {why} removed {lost}, which snapshot {snapshot.id} "
                        f"refers to"
                    )

    def purge(self, table: Table) -> None:
        """What lies below the location of a table goes with it, staged or not."""
        paths = [*self.staged, *self.data, *self.deletes]
        self.remove([path for path in paths if path.split("/")[1] == table.uuid], [], "a drop")

    def staged_rows(self, path: str) -> list[tuple[RowId, Row]]:
        if path not in self.staged:
            raise MissingFileError(path)
        return self.staged[path]

    def name(self, table: Table, kind: str) -> str:
        self._numbers += 1
        return f"{table.name}/{table.uuid}/{kind}{self._numbers}"

    def upserts(self, path: str) -> Rows:
        """The last change per key of a staged file, deletes applied: what it holds as a data file
        of a merge table."""
        rows = self.staged_rows(path)
        if path not in self._upserts:
            state: dict[str, Last] = {}
            for where, row in rows:
                row.apply(state, (int(where[0][1:]), where[2]))
            self._upserts[path] = tuple(state.items())
        return self._upserts[path]

    def has_pairs(self, paths: Iterable[str]) -> bool:
        """Whether staged files hold halves of changed keys."""
        halves = (Effect.LEAVE, Effect.ARRIVE)
        return any(row.effect in halves for path in paths for _, row in self.staged_rows(path))

    def touched(self, paths: Iterable[str]) -> frozenset[str]:
        """The keys of staged files: of rows to write, and of rows to remove."""
        return frozenset(
            key for path in paths for _, row in self.staged_rows(path) for key in row.touched()
        )

    def rows(self, path: str) -> Rows:
        return self.data[path] if path in self.data else self.upserts(path)

    def alive(
        self, table: Table, snapshot: Snapshot | None, *, skip_missing: bool = False
    ) -> list[tuple[Place, str, Last]]:
        """Return the rows of a snapshot of a merge table. `skip_missing`: read missing files as
        empty.

        Raises:
            MissingFileError: A data file or a delete file was deleted.
            WrongWorldError: A data file has two vectors.
        """
        if snapshot is None:
            return []
        marked: set[Place] = set()
        vectors: set[str] = set()
        for path in snapshot.deletes:
            if path not in self.deletes:
                if skip_missing:
                    continue
                raise MissingFileError(path)
            places = self.deletes[path]
            marked |= places
            if table.format is Format.VECTORS:
                names = {data for data, _ in places}
                if names & vectors:
                    raise WrongWorldError(
                        f"{table.name}: snapshot {snapshot.id} has two vectors for "
                        f"{names & vectors}"
                    )
                vectors |= names
        return [
            ((path, position), key, last)
            for path in snapshot.data
            if path in self or not skip_missing
            for position, (key, last) in enumerate(self.rows(path))
            if (path, position) not in marked
        ]

    def merge(
        self,
        table: Table,
        snapshot: Snapshot,
        keys: Collection[str],
        upserts: Rows = (),
        kind: str = "merged",
        *,
        skip_missing: bool = False,
    ) -> Change:
        """Remove the rows with these keys; where the table's format rewrites rows, write new ones.
        Nothing is stored.

        Raises:
            MissingFileError: A file of the snapshot was deleted.
        """
        change = Change()
        rows = self.alive(table, snapshot, skip_missing=skip_missing)
        found = [place for place, key, _ in rows if key in keys]
        match table.format:
            case Format.WHOLE:
                change.gone = {path for path, _ in found}
                kept = tuple(
                    (key, last)
                    for place, key, last in rows
                    if place[0] in change.gone and key not in keys
                )
                if kept or upserts:
                    change.data[self.name(table, kind)] = (*kept, *upserts)
            case Format.VECTORS:
                for data in sorted({path for path, _ in found}):
                    places = frozenset(place for place in found if place[0] == data)
                    older = {
                        path
                        for path in snapshot.deletes
                        if path in self and data in self.marked(path)
                    }
                    change.replaced |= older
                    places = places.union(*(self.deletes[path] for path in older))
                    change.deletes[self.name(table, kind)] = places
            case _:
                if found:
                    change.deletes[self.name(table, kind)] = frozenset(found)
        return change

    def fits(self, change: Change, snapshot: Snapshot) -> bool:
        """Return True if the data files of a change exist in a snapshot, and nobody else has marked
        rows of them."""
        marked = {data for places in change.deletes.values() for data, _ in places}
        if not marked <= {*snapshot.data} or not change.replaced <= {*snapshot.deletes}:
            return False
        return not any(
            self.marked(path) & marked for path in snapshot.deletes if path not in change.replaced
        )

    def compacted(
        self, table: Table, snapshot: Snapshot, chosen: Collection[str], kind: str = "rewritten"
    ) -> Change:
        """These data files are rewritten into one without deletes; delete files that mark nothing
        else go, too."""
        change = Change(gone=set(chosen))
        left = {path for path in snapshot.data if path not in change.gone}
        rows = tuple(
            (key, last)
            for place, key, last in self.alive(table, snapshot)
            if place[0] in change.gone
        )
        if rows:
            change.data[self.name(table, kind)] = rows
        change.replaced = {path for path in snapshot.deletes if not left & self.marked(path)}
        return change

    def marked(self, path: str) -> set[str]:
        """The data files that a delete file speaks of."""
        return {data for data, _ in self.deletes[path]}

    def store(self, change: Change) -> None:
        self.data |= change.data
        self.deletes |= change.deletes

    def state(self, table: Table) -> Mapping[str, list[Last]]:
        """What a merge table holds by key."""
        found: dict[str, list[Last]] = {}
        for _, key, last in self.alive(table, table.current()):
            found.setdefault(key, []).append(last)
        return found
