"""Audit of a table: verifies from the metadata that every offset was committed exactly once.

Computes an `AuditReport` from a `TableHistory`, without I/O. The audit follows the history of the
commit ref and verifies for each connect group:

- In every partition, each commit begins where the previous commit of the same generation ended.
  Therefore, the ranges are disjoint and have no gaps.
- Commits are in the order of their epochs and cycles, and no commit is repeated.
- The table property matches the newest ledger.
- No data file was added twice.

Deliberate rewinds, re-created topics, and expired snapshots are reported but are not violations.
Commits by other writers that changed rows have a separate verdict, because the ledgers do not
describe these changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from connect_py.plurals import pluralize
from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerFormatError,
    LedgerProperty,
    LedgerTooNewError,
    source_offsets_key,
)
from connectors.iceberg.protocol.positions import Position, TopicPartition
from connectors.iceberg.table.table_history import (
    LEDGER_PREFIX,
    REBUILD_KEY,
    REWIND_KEY,
    HistoricSnapshot,
    TableHistory,
    loading_group,
)

MAINTENANCE = "replace"  # operation of a snapshot with the same rows as its parent
# Keys of counts in a snapshot summary, with words that describe them. Zero counts are omitted.
COUNTS = (
    ("added-records", "row", "added"),
    ("deleted-records", "row", "in removed files"),
    ("added-position-deletes", "row", "deleted by position"),
    ("added-dvs", "deletion vector", "added"),
    ("added-equality-deletes", "equality delete", "added"),
    ("removed-position-deletes", "position delete", "removed"),
    ("removed-dvs", "deletion vector", "removed"),
    ("removed-equality-deletes", "equality delete", "removed"),
)


class Verdict(IntEnum):
    """Result of an audit. The values are the exit statuses of the command."""

    PROVEN = 0
    VIOLATED = 1
    UNDECIDED = 2
    # every offset was committed once, but other writers added, removed, or replaced rows
    CHANGED = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding, with a machine-readable kind and a description."""

    kind: str
    text: str
    snapshot: int | None = None


@dataclass(slots=True)
class Segment:
    """A gapless offset range [first, next) of a partition, with one topic ID and one generation."""

    partition: TopicPartition
    topic_id: str
    generation: int
    first: int
    next: int
    commits: int = 1

    def to_json(self) -> dict[str, Any]:
        at = self.partition
        return {
            "topic": at.topic,
            "topic_id": self.topic_id,
            "partition": at.partition,
            "generation": self.generation,
            "from": self.first,
            "to": self.next,
            "commits": self.commits,
        }


@dataclass(slots=True)
class GroupAudit:
    """Findings about one connector's commits."""

    group: str
    commits: int = 0
    segments: list[Segment] = field(default_factory=list)
    violations: list[Finding] = field(default_factory=list)
    undecided: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        if self.violations:
            return Verdict.VIOLATED
        return Verdict.UNDECIDED if self.undecided else Verdict.PROVEN

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "verdict": self.verdict.name.lower(),
            "commits": self.commits,
            "ranges": [segment.to_json() for segment in self.segments],
            "violations": _listed(self.violations),
            "undecided": _listed(self.undecided),
            "notes": _listed(self.notes),
        }


@dataclass(slots=True)
class AuditReport:
    """Result of the audit of one table."""

    table: str
    ref: str
    uuid: str
    snapshots: int
    live_files: int
    groups: list[GroupAudit]
    # violations that are not specific to a connector
    files: list[Finding] = field(default_factory=list)
    undecided: list[Finding] = field(default_factory=list)
    foreign: list[Finding] = field(default_factory=list)  # commits by other writers

    @property
    def verdict(self) -> Verdict:
        verdicts = [group.verdict for group in self.groups]
        if self.files or Verdict.VIOLATED in verdicts:
            return Verdict.VIOLATED
        if self.undecided or Verdict.UNDECIDED in verdicts:
            return Verdict.UNDECIDED
        return Verdict.CHANGED if self.changes else Verdict.PROVEN

    @property
    def changes(self) -> list[Finding]:
        """Commits by other writers that changed rows."""
        return [finding for finding in self.foreign if finding.kind == "foreign_change"]

    def to_json(self) -> dict[str, Any]:
        """Return the report in JSON form."""
        return {
            "table": self.table,
            "ref": self.ref,
            "uuid": self.uuid,
            "verdict": self.verdict.name.lower(),
            "snapshots": self.snapshots,
            "live_data_files": self.live_files,
            "violations": _listed(self.files),
            "undecided": _listed(self.undecided),
            "foreign_commits": _listed(self.foreign),
            "groups": [group.to_json() for group in self.groups],
        }


def _listed(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [
        {"kind": f.kind, "text": f.text} | ({} if f.snapshot is None else {"snapshot": f.snapshot})
        for f in findings
    ]


def audit(history: TableHistory, group: str | None = None) -> AuditReport:
    """Audit a table.

    Args:
        history: The snapshots and properties of the table.
        group: The connect group whose ledger is audited, or None for all groups that wrote to the
            table.
    """
    names = {name for snapshot in history.ancestors for name in snapshot.groups} | set(
        history.properties
    )
    loading = {
        loading_group(s.summary[REBUILD_KEY]) for s in history.ancestors if REBUILD_KEY in s.summary
    }
    groups = sorted(names) if group is None else [group, *sorted(loading & names)]
    report = AuditReport(
        history.table,
        history.ref,
        history.uuid,
        len(history.ancestors),
        history.live_files,
        [_GroupWalk(history, name, loads=name in loading).walk() for name in groups],
    )
    if all(each.verdict is Verdict.PROVEN and not each.commits for each in report.groups):
        finding = Finding("no_ledger", "no commit or property of this sink refers to this table")
        for undecided in [each.undecided for each in report.groups] or [report.undecided]:
            undecided.append(finding)
    if not history.ref_exists and history.ref != "main":
        report.undecided.append(
            Finding("no_ref", f"ref {history.ref} does not exist; the history of main was audited")
        )
    for path in history.live_twice:
        report.files.append(
            Finding("file_live_twice", f"the head contains data file {path} more than once")
        )
    for path, older, newer in history.added_twice:
        repetition = f"data file {path} had already been added by snapshot {older}"
        report.files.append(Finding("file_added_twice", repetition, newer))
    for snapshot in reversed(history.ancestors):
        if not snapshot.groups:
            report.foreign.append(_foreign(snapshot))
    return report


def _foreign(snapshot: HistoricSnapshot) -> Finding:
    if (loader := snapshot.summary.get(REBUILD_KEY)) is not None:
        return Finding(
            "rebuild",
            f"a rebuild starts here with an empty table; {loading_group(loader)} loads the rows",
            snapshot.id,
        )
    by = (
        snapshot.summary.get("engine-name")
        or snapshot.summary.get("app-name")
        or "an unnamed writer"
    )
    counts = [
        f"{pluralize(count, noun)} {change}"
        for key, noun, change in COUNTS
        if (count := int(snapshot.summary.get(key, "0")))
    ]
    counted = (
        any(key in snapshot.summary for key, *_ in COUNTS) or "total-records" in snapshot.summary
    )
    description = (
        f"{snapshot.operation} by {by}: "
        f"{', '.join(counts) or ('no rows' if counted else 'without counts')}"
    )
    if snapshot.operation == MAINTENANCE or (counted and not counts):
        return Finding("foreign_commit", description, snapshot.id)
    return Finding(
        "foreign_change", f"{description}; the ledger does not cover these rows", snapshot.id
    )


class _GroupWalk:
    """Checks one group's ledgers, oldest first."""

    def __init__(self, history: TableHistory, group: str, *, loads: bool) -> None:
        """Create a walk.

        Args:
            history: The snapshots and properties of the table.
            group: The connect group.
            loads: True if the group loaded the rows for a rebuild. A rebuild ends by removing the
                group's property.
        """
        self._history = history
        self._loads = loads
        self._key = LEDGER_PREFIX + group
        self._audit = GroupAudit(group)
        self._open: dict[TopicPartition, Segment] = {}  # includes topics that later ledgers omit
        self._last: tuple[HistoricSnapshot, Ledger] | None = None
        self._snapshots_by_commit: dict[str, int] = {}  # snapshot IDs by commit ID
        # current snapshot, or None while the table property is checked
        self._at: HistoricSnapshot | None = None
        self._property: LedgerProperty | None = None

    def walk(self) -> GroupAudit:
        self._read_property()
        for snapshot in reversed(self._history.ancestors):
            self._at = snapshot
            text = snapshot.summary.get(self._key)
            ledger = self._read(text) if text is not None else None
            if ledger is not None:
                self._check_commit(snapshot, ledger)
        self._at = None
        self._check_property()
        self._note_expired_commits()
        return self._audit

    @property
    def _is_rewind(self) -> bool:
        """Return True if the snapshot adds no rows but has the positions of a later snapshot."""
        return self._at is not None and REWIND_KEY in self._at.summary

    @property
    def _is_rebuilt(self) -> bool:
        """Return True if the snapshot ends a rebuild, whose rows were loaded on another branch."""
        return self._at is not None and REBUILD_KEY in self._at.summary

    # --- reading

    def _read(self, text: str) -> Ledger | None:
        try:
            ledger = Ledger.from_json(text)
        except LedgerTooNewError as error:
            self._undecided("ledger_too_new", str(error))
            return None
        except LedgerFormatError as error:
            self._violated("ledger_unreadable", str(error))
            return None
        if ledger.table != self._history.uuid:
            self._note(
                "ledger_of_other_table",
                f"ignoring a ledger that was copied from table {ledger.table}",
            )
            return None
        return ledger

    def _read_property(self) -> None:
        text = self._history.properties.get(self._audit.group)
        if text is None:
            return
        try:
            ledger_property = LedgerProperty.from_json(text)
        except LedgerTooNewError as error:
            self._undecided("property_too_new", f"the table property: {error}")
        except LedgerFormatError as error:
            self._violated("property_unreadable", f"the table property: {error}")
        else:
            if ledger_property.ledger.table == self._history.uuid:
                self._property = ledger_property
            else:
                self._note(
                    "property_of_other_table",
                    f"the table property is from table {ledger_property.ledger.table}",
                )

    # --- commits

    def _check_commit(self, snapshot: HistoricSnapshot, ledger: Ledger) -> None:
        self._audit.commits += 1
        if ledger.commit in self._snapshots_by_commit:
            where = self._snapshots_by_commit[ledger.commit]
            self._violated(
                "commit_twice", f"commit {ledger.commit} was already committed in snapshot {where}"
            )
        self._snapshots_by_commit[ledger.commit] = snapshot.id
        self._check_summary(snapshot, ledger)
        if self._last is not None:
            self._check_order(ledger, self._last[1])
        for topic, entries in ledger.topics.items():
            for number, entry in entries.partitions.items():
                self._check_entry(TopicPartition(topic, number), entries.topic_id, entry)
        if self._last is not None:
            self._check_partitions(ledger, self._last[1])
        self._last = (snapshot, ledger)

    def _check_summary(self, snapshot: HistoricSnapshot, ledger: Ledger) -> None:
        """Check the redundant values in the summary and the epochs of the files."""
        if snapshot.summary.get(COMMIT_ID_KEY, ledger.commit) != ledger.commit:
            self._violated(
                "commit_id_differs", f"{COMMIT_ID_KEY} differs from the ledger's {ledger.commit}"
            )
        source_offsets = snapshot.summary.get(source_offsets_key(self._audit.group))
        if source_offsets is not None and source_offsets != ledger.source_offsets():
            self._violated(
                "source_offsets_differ",
                f"the source offsets {source_offsets} differ from the ledger",
            )
        epoch = _epoch(ledger)
        for stager in snapshot.stagers:
            if stager != epoch:
                self._violated(
                    "files_of_other_epoch",
                    f"contains files of epoch {stager}, but the ledger is from epoch {epoch}",
                )

    def _check_order(self, ledger: Ledger, last: Ledger) -> None:
        if ledger.epoch < last.epoch:
            self._violated(
                "epoch_goes_back", f"epoch {_epoch(ledger)} committed after {_epoch(last)}"
            )
        elif (
            ledger.epoch == last.epoch
            and ledger.cycle <= last.cycle
            and not (self._is_rewind or self._is_rebuilt)
        ):
            self._violated(
                "cycle_goes_back", f"cycle {ledger.cycle} committed after cycle {last.cycle}"
            )
        if ledger.cluster != last.cluster:
            self._violated(
                "cluster_differs",
                f"is from cluster {ledger.cluster}, but earlier commits are from {last.cluster}",
            )

    def _check_entry(self, partition: TopicPartition, topic_id: str, entry: LedgerEntry) -> None:
        segment = self._open.get(partition)
        if entry.next < entry.base:
            self._violated(
                "range_goes_back",
                f"{partition}: ends at {entry.next}, before its base {entry.base}",
            )
        if segment is None:
            self._begin(partition, topic_id, entry)
            self._check_beginning(partition, topic_id, entry)
        elif segment.topic_id != topic_id:
            read = f"topic ID {segment.topic_id} up to {segment.next}, then topic ID {topic_id}"
            self._note("topic_created_again", f"{partition}: read {read}")
            self._begin(partition, topic_id, entry)
        elif entry.generation > segment.generation:
            way = (
                "backward"
                if entry.base < segment.next
                else "forward"
                if entry.base > segment.next
                else "to the same offset"
            )
            movement = (
                f"deliberately moved {way}, from {segment.next} to {entry.base} (generation "
                f"{entry.generation})"
            )
            self._note("offsets_altered", f"{partition}: {movement}")
            self._begin(partition, topic_id, entry)
        elif entry.generation < segment.generation:
            back = f"{partition}: generation {entry.generation} after {segment.generation}"
            self._violated("generation_goes_back", back)
        else:
            self._extend(segment, entry)

    def _extend(self, segment: Segment, entry: LedgerEntry) -> None:
        if entry.base > segment.next and self._is_rewind:
            skipped = (
                f"{segment.partition}: offsets {segment.next} to {entry.base - 1} were "
                f"skipped by a rewind"
            )
            self._note("skipped", skipped)
            self._begin(segment.partition, segment.topic_id, entry)
            return
        if entry.base > segment.next:
            missing = f"offsets {segment.next} to {entry.base - 1} are in no commit"
            self._violated("gap", f"{segment.partition}: {missing}")
        elif entry.base < segment.next:
            doubled = f"offsets {entry.base} to {segment.next - 1} are in more than one commit"
            self._violated("overlap", f"{segment.partition}: {doubled}")
        segment.next = max(entry.next, segment.next)
        segment.commits += 1

    def _begin(self, partition: TopicPartition, topic_id: str, entry: LedgerEntry) -> None:
        segment = Segment(partition, topic_id, entry.generation, entry.base, entry.next)
        self._open[partition] = segment
        self._audit.segments.append(segment)

    def _check_beginning(
        self, partition: TopicPartition, topic_id: str, entry: LedgerEntry
    ) -> None:
        """Check that the oldest entry begins where the table was opened, unless commits expired."""
        opened = self._opened(partition, topic_id)
        if opened is None or opened.generation != entry.generation or opened.next == entry.base:
            return
        if opened.next < entry.base and not self._history.complete:
            expired = (
                f"offsets {opened.next} to {entry.base - 1} are in commits whose snapshots "
                f"were expired"
            )
            self._note("expired", f"{partition}: {expired}; later ledgers cover them")
        else:
            begins = f"{partition}: begins at {entry.base}, but was opened at {opened.next}"
            self._violated("beginning_differs", begins)

    def _opened(self, partition: TopicPartition, topic_id: str) -> Position | None:
        if self._property is None:
            return None
        topic = self._property.ledger.topics.get(partition.topic)
        return (
            self._property.opened.get(partition)
            if topic is not None and topic.topic_id == topic_id
            else None
        )

    def _check_partitions(self, ledger: Ledger, last: Ledger) -> None:
        """Check that the commit has the positions of all partitions.

        A topic may be removed from the connector, but a partition may not.
        """
        for topic, entries in last.topics.items():
            if topic not in ledger.topics:
                self._note("topic_left_out", f"topic {topic} is no longer read")
                continue
            for number in sorted(set(entries.partitions) - set(ledger.topics[topic].partitions)):
                if ledger.topics[topic].topic_id == entries.topic_id:
                    self._violated(
                        "partition_missing", f"{topic}-{number}: no longer has a position"
                    )

    # --- table property

    def _check_property(self) -> None:
        """Check that the property equals the newest ledger. Report the reason if it does not."""
        ledger_property = self._property
        if ledger_property is None:
            if (
                self._last is not None
                and self._audit.group not in self._history.properties
                and not self._loads
            ):
                self._violated(
                    "property_missing",
                    "the table property is missing; without it, rollbacks are not detected",
                )
            return
        if self._last is None:
            if not self._history.complete and ledger_property.snapshot not in self._history.present:
                self._undecided(
                    "all_expired",
                    "all commits of this connector were expired; only the table property "
                    "indicates that it contains everything before "
                    f"{ledger_property.ledger.source_offsets()}",
                )
            else:
                self._undecided(
                    "rolled_back",
                    "the table was rolled back to a snapshot before the first remaining commit",
                )
            return
        snapshot, ledger = self._last
        if ledger_property.snapshot == snapshot.id:
            if ledger_property.ledger != ledger:
                self._violated(
                    "property_differs",
                    "the table property differs from the ledger of its snapshot",
                )
        elif (ledger_property.ledger.epoch, ledger_property.ledger.cycle) < (
            ledger.epoch,
            ledger.cycle,
        ):
            self._violated(
                "property_behind",
                f"the table property refers to snapshot {ledger_property.snapshot}, "
                "an older commit",
            )
        else:
            self._note(
                "rolled_back",
                f"rolled back to here from snapshot {ledger_property.snapshot}; the connector "
                "adds the missing rows with its next commit",
                at=snapshot,
            )

    def _note_expired_commits(self) -> None:
        history, group = self._history, self._audit.group
        ancestor_ids = {snapshot.id for snapshot in history.ancestors}
        other_commits = [
            each
            for each, groups in history.present.items()
            if group in groups and each not in ancestor_ids
        ]
        if other_commits:
            self._note(
                "not_ancestors",
                pluralize(
                    len(other_commits),
                    "commit is not in this history because it was rolled back or is on another ref",
                    "commits are not in this history because they were rolled back or are on "
                    "other refs",
                ),
            )
        if not history.complete and self._last is not None:
            oldest = history.ancestors[-1]
            self._note("history_cut", "earlier snapshots were expired", at=oldest)

    def _violated(self, kind: str, text: str) -> None:
        self._audit.violations.append(Finding(kind, text, self._at.id if self._at else None))

    def _undecided(self, kind: str, text: str) -> None:
        self._audit.undecided.append(Finding(kind, text, self._at.id if self._at else None))

    def _note(self, kind: str, text: str, at: HistoricSnapshot | None = None) -> None:
        at = at or self._at
        self._audit.notes.append(Finding(kind, text, at.id if at else None))


def _epoch(ledger: Ledger) -> str:
    return f"{ledger.epoch.number}-{ledger.epoch.nonce}"
