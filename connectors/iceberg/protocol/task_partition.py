"""`TaskPartition`: where one partition of a task stands, and what its open range holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connectors.iceberg.protocol.bounds import Bound
from connectors.iceberg.protocol.messages import Attachment, Need, Range, TableNeed, TablePart
from connectors.iceberg.protocol.rules import ProtocolRules
from connectors.iceberg.table.table import StagedFile


@dataclass(slots=True)
class OpenPart:
    """What the open range holds for one table so far."""

    uuid: str
    filter: int
    first: int | None = None


@dataclass(slots=True)
class TableQuestion:
    """What a partition waits for: a table that its next row needs."""

    table: str
    need: Need
    schema: str
    asked_ms: int


@dataclass(slots=True)
class TaskPartition:
    """Changed by `TaskState` alone; paused until a coordinator has said where it stands."""

    topic_id: str
    nonce: str
    asked_ms: int
    attached: bool = False
    paused: bool = True
    # of the group's mark: who attaches us below it has not seen offsets being altered
    least_generation: int = 0
    generation: int = 0
    rewind: int = 0
    floor: int = 0
    commits: str = ""  # received with the floor
    start: int = 0  # of the open range
    next: int = 0  # all below is handled
    timestamp_ms: int | None = None
    needs: dict[str, TableNeed] = field(default_factory=dict)
    parts: dict[str, OpenPart] = field(default_factory=dict)
    hold: TableQuestion | None = None
    reported: deque[int] = field(default_factory=deque)  # ends of reported ranges above the floor
    bound: Bound | None = None

    @property
    def is_at_bound(self) -> bool:
        """Whether no further row is wanted (rule 35); the position counts, since no record may
        stand at the end."""
        return self.bound is not None and self.next >= self.bound.end

    def detached(self, now_ms: int) -> TaskPartition:
        """The partition as it is before a coordinator has answered."""
        return TaskPartition(
            self.topic_id, "", now_ms, paused=self.paused, least_generation=self.least_generation
        )

    def adopt(self, given: Attachment, commits: str) -> None:
        """Stand where the coordinator says, with nothing staged."""
        self.attached = True
        self.generation, self.rewind, self.floor = given.generation, given.rewind, given.floor
        self.commits = commits
        self.start = self.next = given.position
        self.timestamp_ms = None
        self.needs = dict(given.needs)
        self.bound = given.bound
        self.parts.clear()
        self.reported.clear()
        self.hold = None

    def handled(self, table: str, first: int | None) -> None:
        """See `TaskState.handled`."""
        need = self.needs[table]
        part = self.parts.setdefault(table, OpenPart(need.uuid, need.next))
        part.filter = max(part.filter, need.next)
        if part.first is None:
            part.first = first

    def advance(self, following: int, timestamp_ms: int | None) -> None:
        """See `TaskState.advance`."""
        self.next = max(
            self.next, following if self.bound is None else min(following, self.bound.end)
        )
        if timestamp_ms is not None:
            self.timestamp_ms = max(self.timestamp_ms or 0, timestamp_ms)

    def release(self, floor: int, commits: str) -> None:
        """All tables are complete below the floor."""
        if floor >= self.floor:
            self.floor, self.commits = floor, commits
        while self.reported and self.reported[0] <= self.floor:
            self.reported.popleft()

    def close(self, files: Mapping[str, Sequence[StagedFile]], rules: ProtocolRules) -> Range:
        """The open range with its files by table; the next one begins at its end."""
        reported_tables = rules.reported_tables({t: part.first for t, part in self.parts.items()})
        tables = {
            table: TablePart(part.uuid, part.filter, part.first, tuple(files.get(table, ())))
            for table, part in self.parts.items()
            if table in reported_tables
        }
        closed = Range(
            self.topic_id,
            self.generation,
            self.rewind,
            self.nonce,
            self.start,
            self.next,
            tables,
            self.timestamp_ms,
        )
        if self.next > self.start:
            self.reported.append(self.next)
        self.start, self.timestamp_ms = self.next, None
        self.parts.clear()
        return closed
