"""The audit: from what a table remembers to a verdict on what it holds. Pure; `TableHistory` in,
`AuditReport` out.

What is proven, per connect group, along the commit ref: each commit of ours begins, in every
partition, where the one before ended (within a generation), so that the ranges are disjoint and
without gap; commits come in the order of their epochs and cycles, each once; the property agrees;
and no data file is in twice. Deliberate rewinds, re-created topics and expired snapshots are shown,
not judged. Commits of others that changed rows make a verdict of their own: what the table holds is
then more, or less, than what the ledgers speak of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

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

MAINTENANCE = "replace"  # the operation of a snapshot that holds the same rows as the one before
# What Iceberg counts in a snapshot's summary, and what that is. A snapshot leaves out what is 0.
COUNTS = (
    ("added-records", "rows added"),
    ("deleted-records", "rows in removed files"),
    ("added-position-deletes", "rows deleted by position"),
    ("added-dvs", "deletion vectors added"),
    ("added-equality-deletes", "equality deletes added"),
    ("removed-position-deletes", "deletes by position removed"),
    ("removed-dvs", "deletion vectors removed"),
    ("removed-equality-deletes", "equality deletes removed"),
)


class Verdict(IntEnum):
    """How an audit ends; the values are exit statuses of the command."""

    PROVEN = 0
    VIOLATED = 1
    UNDECIDED = 2
    CHANGED = 3  # ours is in once; commits of others added, removed or replaced rows beside it


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. Its kind is a word for machines, its text a sentence for people."""

    kind: str
    text: str
    snapshot: int | None = None


@dataclass(slots=True)
class Segment:
    """Offsets [first, next) of one partition, one generation and one topic id, covered by commits
    without gap."""

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
    """What is known of one connector's commits."""

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
    """One table, audited."""

    table: str
    ref: str
    uuid: str
    snapshots: int
    live_files: int
    groups: list[GroupAudit]
    # violations that are no connector's in particular
    files: list[Finding] = field(default_factory=list)
    undecided: list[Finding] = field(default_factory=list)
    foreign: list[Finding] = field(default_factory=list)  # commits of others

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
        """Commits of others that changed rows."""
        return [finding for finding in self.foreign if finding.kind == "foreign_change"]

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form."""
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
    """Judge a table. `group`: this connector's ledger only; else those of all that ever wrote
    here."""
    found = {name for snapshot in history.ancestors for name in snapshot.groups} | set(
        history.properties
    )
    loading = {
        loading_group(s.summary[REBUILD_KEY]) for s in history.ancestors if REBUILD_KEY in s.summary
    }
    groups = sorted(found) if group is None else [group, *sorted(loading & found)]
    report = AuditReport(
        history.table,
        history.ref,
        history.uuid,
        len(history.ancestors),
        history.live_files,
        [_GroupWalk(history, name, loads=name in loading).walk() for name in groups],
    )
    if all(each.verdict is Verdict.PROVEN and not each.commits for each in report.groups):
        finding = Finding(
            "no_ledger", "no commit and no property of this sink speaks of this table"
        )
        for undecided in [each.undecided for each in report.groups] or [report.undecided]:
            undecided.append(finding)
    if not history.ref_exists and history.ref != "main":
        report.undecided.append(
            Finding("no_ref", f"there is no ref {history.ref}: this is main's history")
        )
    for path in history.live_twice:
        report.files.append(
            Finding("file_live_twice", f"the head names data file {path} more than once")
        )
    for path, older, newer in history.added_twice:
        again = f"data file {path} was added by snapshot {older}, and again"
        report.files.append(Finding("file_added_twice", again, newer))
    for snapshot in reversed(history.ancestors):
        if not snapshot.groups:
            report.foreign.append(_foreign(snapshot))
    return report


def _foreign(snapshot: HistoricSnapshot) -> Finding:
    if (loader := snapshot.summary.get(REBUILD_KEY)) is not None:
        return Finding(
            "rebuild",
            f"a rebuild begins here without rows; {loading_group(loader)} loads them",
            snapshot.id,
        )
    by = (
        snapshot.summary.get("engine-name")
        or snapshot.summary.get("app-name")
        or "an unnamed writer"
    )
    counts = [
        f"{text} {what}" for key, what in COUNTS if (text := snapshot.summary.get(key, "0")) != "0"
    ]
    counted = (
        any(key in snapshot.summary for key, _ in COUNTS) or "total-records" in snapshot.summary
    )
    what = (
        f"{snapshot.operation} by {by}: "
        f"{', '.join(counts) or ('no rows' if counted else 'without any count')}"
    )
    if snapshot.operation == MAINTENANCE or (counted and not counts):
        return Finding("foreign_commit", what, snapshot.id)
    return Finding(
        "foreign_change", f"{what}; the ledger says nothing about these rows", snapshot.id
    )


class _GroupWalk:
    """One walk along the ledgers of one group, oldest first."""

    def __init__(self, history: TableHistory, group: str, *, loads: bool) -> None:
        """`loads`: whether it loaded a rebuild, whose end took its property away."""
        self._history = history
        self._loads = loads
        self._key = LEDGER_PREFIX + group
        self._audit = GroupAudit(group)
        self._open: dict[
            TopicPartition, Segment
        ] = {}  # also of topics that later ledgers leave out
        self._last: tuple[HistoricSnapshot, Ledger] | None = None
        self._seen: dict[str, int] = {}  # commit -> snapshot
        self._at: HistoricSnapshot | None = None  # what is looked at; None: the table's properties
        self._property: LedgerProperty | None = None

    def walk(self) -> GroupAudit:
        self._read_property()
        for snapshot in reversed(self._history.ancestors):
            self._at = snapshot
            text = snapshot.summary.get(self._key)
            ledger = self._read(text) if text is not None else None
            if ledger is not None:
                self._take(snapshot, ledger)
        self._at = None
        self._check_property()
        self._say_what_expired()
        return self._audit

    @property
    def _is_rewind(self) -> bool:
        """Whether the snapshot holds the positions of a later one, and no rows."""
        return self._at is not None and REWIND_KEY in self._at.summary

    @property
    def _is_rebuilt(self) -> bool:
        """Whether the snapshot ends a rebuild: its positions are those of a commit in another
        history."""
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
                "ledger_of_other_table", f"speaks of table {ledger.table}: copied here, and ignored"
            )
            return None
        return ledger

    def _read_property(self) -> None:
        text = self._history.properties.get(self._audit.group)
        if text is None:
            return
        try:
            found = LedgerProperty.from_json(text)
        except LedgerTooNewError as error:
            self._undecided("property_too_new", f"the table property: {error}")
        except LedgerFormatError as error:
            self._violated("property_unreadable", f"the table property: {error}")
        else:
            if found.ledger.table == self._history.uuid:
                self._property = found
            else:
                self._note(
                    "property_of_other_table",
                    f"the table property speaks of table {found.ledger.table}",
                )

    # --- one commit after the other

    def _take(self, snapshot: HistoricSnapshot, ledger: Ledger) -> None:
        self._audit.commits += 1
        if ledger.commit in self._seen:
            where = self._seen[ledger.commit]
            self._violated(
                "commit_twice", f"commit {ledger.commit} landed before, in snapshot {where}"
            )
        self._seen[ledger.commit] = snapshot.id
        self._check_itself(snapshot, ledger)
        if self._last is not None:
            self._check_order(ledger, self._last[1])
        for topic, entries in ledger.topics.items():
            for number, entry in entries.partitions.items():
                self._chain(TopicPartition(topic, number), entries.topic_id, entry)
        if self._last is not None:
            self._check_whole(ledger, self._last[1])
        self._last = (snapshot, ledger)

    def _check_itself(self, snapshot: HistoricSnapshot, ledger: Ledger) -> None:
        """The summary's other words for the same things, and the files that came with it."""
        if snapshot.summary.get(COMMIT_ID_KEY, ledger.commit) != ledger.commit:
            self._violated(
                "commit_id_differs", f"{COMMIT_ID_KEY} is not the ledger's {ledger.commit}"
            )
        shown = snapshot.summary.get(source_offsets_key(self._audit.group))
        if shown is not None and shown != ledger.source_offsets():
            self._violated(
                "source_offsets_differ", f"offsets for people, {shown}, are not the ledger's"
            )
        epoch = _epoch(ledger)
        for stager in snapshot.stagers:
            if stager != epoch:
                self._violated(
                    "files_of_other_epoch", f"has files staged in epoch {stager}, it is {epoch}'s"
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
                "cluster_differs", f"is of cluster {ledger.cluster}, before it was {last.cluster}"
            )

    def _chain(self, partition: TopicPartition, topic_id: str, entry: LedgerEntry) -> None:
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
            read = f"id {segment.topic_id} was read to {segment.next}; from here on {topic_id}"
            self._note("topic_created_again", f"{partition}: {read}")
            self._begin(partition, topic_id, entry)
        elif entry.generation > segment.generation:
            way = (
                "back"
                if entry.base < segment.next
                else "forward"
                if entry.base > segment.next
                else "nowhere"
            )
            moved = (
                f"moved {way} on purpose, from {segment.next} to {entry.base} (generation "
                f"{entry.generation})"
            )
            self._note("offsets_altered", f"{partition}: {moved}")
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
        """The first entry that is left begins where the property says the table began, unless older
        ones are gone."""
        opened = self._opened(partition, topic_id)
        if opened is None or opened.generation != entry.generation or opened.next == entry.base:
            return
        if opened.next < entry.base and not self._history.complete:
            expired = (
                f"offsets {opened.next} to {entry.base - 1} are in commits whose snapshots "
                f"were expired"
            )
            self._note("expired", f"{partition}: {expired}; the ledgers after them vouch for them")
        else:
            begins = f"{partition}: begins at {entry.base}, the table was opened at {opened.next}"
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

    def _check_whole(self, ledger: Ledger, last: Ledger) -> None:
        """Every commit writes the positions of all partitions; a topic may leave the connector, a
        partition may not."""
        for topic, entries in last.topics.items():
            if topic not in ledger.topics:
                self._note("topic_left_out", f"topic {topic} is not read any more")
                continue
            for number in sorted(set(entries.partitions) - set(ledger.topics[topic].partitions)):
                if ledger.topics[topic].topic_id == entries.topic_id:
                    self._violated(
                        "partition_missing", f"{topic}-{number}: has no position any more"
                    )

    # --- the end

    def _check_property(self) -> None:
        """The property repeats the newest ledger, or names the reason why not."""
        found = self._property
        if found is None:
            if (
                self._last is not None
                and self._audit.group not in self._history.properties
                and not self._loads
            ):
                self._violated(
                    "property_missing",
                    "the table property is gone: without it a roll-back goes unnoticed",
                )
            return
        if self._last is None:
            if not self._history.complete and found.snapshot not in self._history.present:
                self._undecided(
                    "all_expired",
                    "all commits of this connector were expired; the table property alone says "
                    f"that it holds everything below {found.ledger.source_offsets()}",
                )
            else:
                self._undecided(
                    "rolled_back",
                    "the table was rolled back to before the first commit that is left",
                )
            return
        snapshot, ledger = self._last
        if found.snapshot == snapshot.id:
            if found.ledger != ledger:
                self._violated(
                    "property_differs",
                    "the table property is not the ledger of the snapshot it names",
                )
        elif (found.ledger.epoch, found.ledger.cycle) < (ledger.epoch, ledger.cycle):
            self._violated(
                "property_behind",
                f"the table property names snapshot {found.snapshot}, an older commit",
            )
        else:
            self._note(
                "rolled_back",
                f"rolled back to here from snapshot {found.snapshot}; the connector fills in what "
                "is missing with its next commit",
                at=snapshot,
            )

    def _say_what_expired(self) -> None:
        history, group = self._history, self._audit.group
        ours = {snapshot.id for snapshot in history.ancestors}
        beside = [
            each for each, groups in history.present.items() if group in groups and each not in ours
        ]
        if beside:
            self._note(
                "not_ancestors",
                f"{len(beside)} commits are not in this history: rolled back, or on other refs",
            )
        if not history.complete and self._last is not None:
            oldest = history.ancestors[-1]
            self._note("history_cut", "what came before was expired", at=oldest)

    def _violated(self, kind: str, text: str) -> None:
        self._audit.violations.append(Finding(kind, text, self._at.id if self._at else None))

    def _undecided(self, kind: str, text: str) -> None:
        self._audit.undecided.append(Finding(kind, text, self._at.id if self._at else None))

    def _note(self, kind: str, text: str, at: HistoricSnapshot | None = None) -> None:
        at = at or self._at
        self._audit.notes.append(Finding(kind, text, at.id if at else None))


def _epoch(ledger: Ledger) -> str:
    return f"{ledger.epoch.number}-{ledger.epoch.nonce}"
