"""Tables of the simulation: snapshots that refer to data files and delete files in a storage.

The rows of a merge table are the rows in the data files of its head, except the rows that its
delete files mark. Therefore, a missing delete file, or a delete file that marks a removed data
file, results in a wrong table.
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

Value = tuple[int, int, str]  # contained in complete writes only: topic number, offset, key
# Change that wrote a row of a merge table: topic number, offset, and the value if the change lacked
# it.
Last = tuple[int, int] | tuple[int, int, Value | int | None]
Rows = tuple[tuple[str, Last], ...]  # keys and changes in a data file, in order
Place = tuple[str, int]  # data file and position of a row
SCRATCH = "scratch"  # prefix of the branches of the previous version


def value_of(key: str, last: Last) -> Value | None:
    """Return the value of a complete row."""
    if len(last) == 2:
        return (*last, key)
    assert not isinstance(last[2], int)
    return last[2]


class Format(Enum):
    """Write mode of a table, which depends on its properties and format version."""

    APPEND = auto()  # no MERGE
    # v3: at most one deletion vector per data file; a newer vector includes the older one
    VECTORS = auto()
    POSITIONS = auto()  # v2: position deletes per partition, which do not name their data files
    WHOLE = auto()  # copy-on-write: a full MERGE rewrites data files


@dataclass(slots=True)
class Snapshot:
    id: int
    parent: int | None
    ledger: str | None
    content: dict[tuple[RowId, int], int]  # (row, generation) -> number of occurrences
    data: tuple[str, ...]
    deletes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()  # new files
    replaced: frozenset[str] = frozenset()  # delete files of its parent that new ones include
    branch: str | None = None  # scratch branch in the summary, from the previous version
    open_pairs: tuple[OpenHalf, ...] = ()  # in the summary of our snapshots

    @property
    def files(self) -> tuple[str, ...]:
        return self.data + self.deletes


@dataclass(slots=True)
class Change:
    """Changes of a MERGE to the files of one snapshot."""

    data: dict[str, Rows] = field(default_factory=dict)  # new data files
    removed: set[str] = field(default_factory=set)  # data files that they replace
    deletes: dict[str, frozenset[Place]] = field(default_factory=dict)  # new delete files
    replaced: set[str] = field(default_factory=set)  # delete files that the new ones include

    def __bool__(self) -> bool:
        return bool(self.data or self.removed or self.deletes)

    def new_files(self) -> tuple[str, ...]:
        return (*self.data, *self.deletes)

    def of(self, snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the data files and delete files of the next snapshot."""
        data = (*(path for path in snapshot.data if path not in self.removed), *self.data)
        deletes = (*(path for path in snapshot.deletes if path not in self.replaced), *self.deletes)
        return data, deletes


@dataclass(slots=True)
class Table:
    name: str
    uuid: str
    born_at: dict[TopicPartition, int]  # log ends at its creation; later rows are required
    topic_ids: dict[str, str]
    whole: bool  # first table of its name, routed from the start: every row is required
    format: Format
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    head: int | None = None
    property: str | None = None
    open_pairs: tuple[OpenHalf, ...] = ()  # in a property
    rolled_back: bool = False
    ever_rolled_back: bool = False
    foreign: set[tuple[RowId, int]] = field(default_factory=set)  # rows of other writers
    # tags, and scratch branches of the previous version
    refs: dict[str, int] = field(default_factory=dict)
    # scratch branches that one of our swaps had to remove
    seen_scratch: set[str] = field(default_factory=set)
    version: int = 0  # changes with the metadata
    moves: int = 0  # changes with main and with the property
    backup: Table | None = None

    def current(self) -> Snapshot | None:
        return self.snapshots[self.head] if self.head is not None else None

    def ancestors(self, at: int | None = None) -> list[Snapshot]:
        """Return the ancestors of the head, or of another snapshot."""
        ancestors = []
        at = self.head if at is None else at
        while at is not None and at in self.snapshots:
            ancestors.append(self.snapshots[at])
            at = self.snapshots[at].parent
        return ancestors


def is_scratch(ref: str) -> bool:
    return ref.startswith(SCRATCH)


class MissingFileError(Exception):
    """A file was deleted."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Lake:
    """Storage of immutable files, which may be deleted."""

    def __init__(self) -> None:
        self.staged: dict[str, list[tuple[RowId, Row]]] = {}
        self.data: dict[str, Rows] = {}
        self.deletes: dict[str, frozenset[Place]] = {}
        self._upserts: dict[str, Rows] = {}
        self._numbers = 0

    def __contains__(self, path: str) -> bool:
        return path in self.staged or path in self.data or path in self.deletes

    def remove(self, paths: Iterable[str], tables: Iterable[Table], why: str) -> None:
        """Delete files. Files in the history of main must not be deleted."""
        paths = set(paths)
        for path in paths:
            self.staged.pop(path, None)
            self.data.pop(path, None)
            self.deletes.pop(path, None)
        for table in tables:
            for snapshot in table.ancestors():
                if lost := paths & {*snapshot.files}:
                    raise WrongWorldError(
                        f"{table.name}: {why} deleted {lost}, which snapshot {snapshot.id} uses"
                    )

    def purge(self, table: Table) -> None:
        """Delete all files in the directory of a table, staged or not."""
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
        """Return the rows of a staged file as a data file of a merge table: the last per key."""
        rows = self.staged_rows(path)
        if path not in self._upserts:
            state: dict[str, Last] = {}
            for where, row in rows:
                row.apply(state, (int(where[0][1:]), where[2]))
            self._upserts[path] = tuple(state.items())
        return self._upserts[path]

    def has_pairs(self, paths: Iterable[str]) -> bool:
        """Return True if staged files have halves of changed keys."""
        halves = (Effect.LEAVE, Effect.ARRIVE)
        return any(row.effect in halves for path in paths for _, row in self.staged_rows(path))

    def touched(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the keys that staged files write or remove."""
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
        """Return the change that removes the rows with these keys, without storing it.

        In a copy-on-write table, it also writes the new rows.

        Raises:
            MissingFileError: A file of the snapshot was deleted.
        """
        change = Change()
        rows = self.alive(table, snapshot, skip_missing=skip_missing)
        places = [place for place, key, _ in rows if key in keys]
        match table.format:
            case Format.WHOLE:
                change.removed = {path for path, _ in places}
                unchanged = tuple(
                    (key, last)
                    for place, key, last in rows
                    if place[0] in change.removed and key not in keys
                )
                if unchanged or upserts:
                    change.data[self.name(table, kind)] = (*unchanged, *upserts)
            case Format.VECTORS:
                for data in sorted({path for path, _ in places}):
                    marked = frozenset(place for place in places if place[0] == data)
                    older = {
                        path
                        for path in snapshot.deletes
                        if path in self and data in self.marked(path)
                    }
                    change.replaced |= older
                    marked = marked.union(*(self.deletes[path] for path in older))
                    change.deletes[self.name(table, kind)] = marked
            case _:
                if places:
                    change.deletes[self.name(table, kind)] = frozenset(places)
        return change

    def fits(self, change: Change, snapshot: Snapshot) -> bool:
        """Return True if a change is valid for a snapshot.

        The snapshot must have its data files, and no other deletes of their rows.
        """
        marked = {data for places in change.deletes.values() for data, _ in places}
        if not marked <= {*snapshot.data} or not change.replaced <= {*snapshot.deletes}:
            return False
        return not any(
            self.marked(path) & marked for path in snapshot.deletes if path not in change.replaced
        )

    def compacted(
        self, table: Table, snapshot: Snapshot, chosen: Collection[str], kind: str = "rewritten"
    ) -> Change:
        """Return the change that compacts data files into one file and applies their deletes.

        Delete files that mark no other data files are removed.
        """
        change = Change(removed=set(chosen))
        remaining = {path for path in snapshot.data if path not in change.removed}
        rows = tuple(
            (key, last)
            for place, key, last in self.alive(table, snapshot)
            if place[0] in change.removed
        )
        if rows:
            change.data[self.name(table, kind)] = rows
        change.replaced = {path for path in snapshot.deletes if not remaining & self.marked(path)}
        return change

    def marked(self, path: str) -> set[str]:
        """Return the data files that a delete file refers to."""
        return {data for data, _ in self.deletes[path]}

    def store(self, change: Change) -> None:
        self.data |= change.data
        self.deletes |= change.deletes

    def state(self, table: Table) -> Mapping[str, list[Last]]:
        """Return the rows of a merge table by key."""
        rows: dict[str, list[Last]] = {}
        for _, key, last in self.alive(table, table.current()):
            rows.setdefault(key, []).append(last)
        return rows
