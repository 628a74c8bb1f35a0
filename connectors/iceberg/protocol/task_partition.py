"""State of one partition in a task, including its open range, which is not reported yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connectors.iceberg.protocol.messages import Attachment, Need, Range, TableNeed, TablePart
from connectors.iceberg.protocol.positions import Bound
from connectors.iceberg.protocol.rules import ProtocolRules
from connectors.iceberg.table.table import StagedFile


@dataclass(slots=True)
class OpenPart:
    """Part of the open range for one table."""

    uuid: str
    filter: int
    first: int | None = None


@dataclass(slots=True)
class TableQuestion:
    """Pending request for the next row's table. The partition waits for the response."""

    table: str
    need: Need
    schema: str
    asked_ms: int


@dataclass(slots=True)
class TaskPartition:
    """State of one partition, which is paused until a coordinator attaches it.

    Only `TaskState` changes this state.
    """

    topic_id: str
    nonce: str
    asked_ms: int
    attached: bool = False
    paused: bool = True
    # generation in the offset metadata; a coordinator with a lower generation is outdated
    least_generation: int = 0
    generation: int = 0
    rewind: int = 0
    floor: int = 0
    commits: str = ""  # encoded `LastCommits` that was received with the floor
    start: int = 0  # start of the open range
    next: int = 0  # all lower offsets have been processed
    timestamp_ms: int | None = None
    needs: dict[str, TableNeed] = field(default_factory=dict)
    parts: dict[str, OpenPart] = field(default_factory=dict)
    hold: TableQuestion | None = None
    reported: deque[int] = field(default_factory=deque)  # ends of reported ranges above the floor
    bound: Bound | None = None

    @property
    def is_at_bound(self) -> bool:
        """True if no more rows are required (rule 35 of the commit protocol).

        The position determines this, because there may be no record at the bound.
        """
        return self.bound is not None and self.next >= self.bound.end

    def detached(self, now_ms: int) -> TaskPartition:
        """Return a new, unattached state for the partition."""
        return TaskPartition(
            self.topic_id, "", now_ms, paused=self.paused, least_generation=self.least_generation
        )

    def adopt(self, attachment: Attachment, commits: str) -> None:
        """Adopt the state in an attachment, and start an empty range at its position."""
        self.attached = True
        self.generation = attachment.generation
        self.rewind, self.floor = attachment.rewind, attachment.floor
        self.commits = commits
        self.start = self.next = attachment.position
        self.timestamp_ms = None
        self.needs = dict(attachment.needs)
        self.bound = attachment.bound
        self.parts.clear()
        self.reported.clear()
        self.hold = None

    def handled(self, table: str, first: int | None) -> None:
        """Record rows for a table; see `TaskState.handled`."""
        need = self.needs[table]
        part = self.parts.setdefault(table, OpenPart(need.uuid, need.next))
        part.filter = max(part.filter, need.next)
        if part.first is None:
            part.first = first

    def advance(self, following: int, timestamp_ms: int | None) -> None:
        """Advance the position; see `TaskState.advance`."""
        self.next = max(
            self.next, following if self.bound is None else min(following, self.bound.end)
        )
        if timestamp_ms is not None:
            self.timestamp_ms = max(self.timestamp_ms or 0, timestamp_ms)

    def release(self, floor: int, commits: str) -> None:
        """Record the floor, which is the offset below which all tables are complete."""
        if floor >= self.floor:
            self.floor, self.commits = floor, commits
        while self.reported and self.reported[0] <= self.floor:
            self.reported.popleft()

    def close(self, files: Mapping[str, Sequence[StagedFile]], rules: ProtocolRules) -> Range:
        """Return the open range with its files, and start the next range at its end."""
        first_offsets = {table: part.first for table, part in self.parts.items()}
        tables = {
            table: TablePart(
                self.parts[table].uuid,
                self.parts[table].filter,
                self.parts[table].first,
                tuple(files.get(table, ())),
            )
            for table in rules.reported_tables(first_offsets)
        }
        closed_range = Range(
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
        return closed_range
