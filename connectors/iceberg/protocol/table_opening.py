"""`TableOpening`: determines the offsets from which a table needs rows."""

from __future__ import annotations

from connectors.iceberg.protocol.actions import (
    CoordinatorAction,
    EpochEndedError,
    Stop,
    Warn,
    failed,
)
from connectors.iceberg.protocol.last_commits import stamp_of
from connectors.iceberg.protocol.ledger import Ledger, Lookup, Standing
from connectors.iceberg.protocol.positions import Position, TopicPartition
from connectors.iceberg.protocol.source_progress import PartitionState, SourceProgress, TableState

_UNKNOWN_CONTENTS = {
    Standing.LOST: "was rolled back to a snapshot whose ledger has expired, so its contents are "
    "unknown; roll it back to another snapshot, or replace it with an empty table, which the "
    "connector refills",
    Standing.BRANCH_LOST: "no longer has the branch that the connector commits to, and main may "
    "contain some of the branch's rows; create the branch at snapshot {snapshot}, or at the "
    "head of main if all rows were published, or replace the table with an empty table, which the "
    "connector refills",
    Standing.REPLACED: "contains rows that this connector did not commit, for example after CREATE "
    "OR REPLACE TABLE ... AS SELECT, so its contents are unknown; make snapshot {snapshot} current "
    "again, or replace the table with an empty table, which the connector refills",
}

_RESTORED = (
    "table {name} is older than its last commit: the catalog was probably restored from a backup; "
    "refilling the table from its current position"
)

_ROLLED_BACK = (
    "table {name} was rolled back {where}; refilling it from the positions in its ledger{again}"
)


class TableOpening:
    """Opens tables at the offsets from which they need rows.

    Rules 7 and 8 of the commit protocol determine these offsets from a table's ledger, the
    partitions, and the group offsets.
    """

    def __init__(self, progress: SourceProgress) -> None:
        self._progress = progress
        self._rules = progress.rules

    def open(self, name: str, lookup: Lookup) -> list[CoordinatorAction]:
        """Open a table at the offsets from which it needs rows (rules 7 and 8)."""
        if lookup.highest_epoch and lookup.highest_epoch > self._progress.epoch:
            raise EpochEndedError(
                Stop(
                    f"table {name} has a commit from a later epoch, {lookup.highest_epoch}",
                    overtaken=True,
                )
            )
        self._check_uuid(name, lookup)
        ledger, cluster = lookup.ledger, self._progress.settings.cluster
        if ledger and not self._rules.is_same_cluster(ledger.cluster, cluster):
            raise failed(
                f"table {name} has commits from a connector with the same name on Kafka cluster "
                f"{ledger.cluster}, but this connector reads cluster {cluster}; rename one of the "
                "connectors"
            )
        if lookup.standing in _UNKNOWN_CONTENTS:
            reason = _UNKNOWN_CONTENTS[lookup.standing]
            reason = reason.format(snapshot=lookup.version.property_snapshot)
            raise failed(f"table {name} {reason}")
        is_restored = self._is_restored(lookup)
        if is_restored and ledger is None:
            raise failed(
                f"table {name} has no commit from this connector, but the offset metadata contains "
                "one: the catalog was probably restored from a backup, or the table property with "
                "the ledger was removed; alter the offsets of all partitions to the position of "
                "the table"
            )
        is_refilled = self._rules.is_refilled(
            is_rolled_back=lookup.standing is Standing.ROLLED_BACK, is_restored=is_restored
        )
        needs: dict[TopicPartition, int] = {}
        bases: dict[TopicPartition, int] = {}
        opened: dict[TopicPartition, Position] = {}
        for partition, state in self._progress.partitions.items():
            needed = self._needed(name, partition, state, lookup, is_refilled, is_restored)
            if self._progress.misses_rows(partition, needed, state.log_start):
                raise failed(
                    f"table {name} needs {partition} from offset {needed}, but the log starts at "
                    f"{state.log_start}, so rows are lost"
                )
            needs[partition] = needed
            opened[partition] = self._start(lookup, partition, state) or Position(
                state.generation, needed
            )
            entry = ledger.entry(partition, state.topic_id) if ledger else None
            bases[partition] = (
                entry.next if entry and entry.generation == state.generation else needed
            )
        previous = self._progress.tables.get(name)
        is_same_table = previous is not None and previous.uuid == lookup.version.uuid
        self._progress.tables[name] = TableState(
            lookup.version,
            ledger,
            opened,
            needs,
            bases,
            awaits_lowered_group=self._rules.requires_lowered_group(
                is_refilled=is_refilled,
                is_below_sent_floor=self._progress.is_below_sent_floor(needs),
            ),
            answer=previous.answer if previous and is_same_table else None,
            committed=bool(previous and previous.committed and is_same_table),
            failures=previous.failures if previous else 0,
        )
        if ledger is not None:
            self._progress.commits.note(lookup.version.uuid, ledger)
        if is_restored:
            return [Warn(_RESTORED.format(name=name))]
        return [self._rollback_warning(name, lookup)] if is_refilled else []

    def _rollback_warning(self, name: str, lookup: Lookup) -> Warn:
        """Return the warning for a rolled-back table, with the number of offsets to read again."""
        snapshot, newest = lookup.version.ledger_snapshot, lookup.version.property_snapshot
        where = "to before its first commit, or replaced with an empty table"
        if snapshot is not None:
            where = f"to snapshot {snapshot} from snapshot {newest}, its last commit"
        needs = self._progress.tables[name].needs
        offsets = sum(
            max(0, self._progress.partitions[p].applied - needed) for p, needed in needs.items()
        )
        again = f"; offsets to read again: {offsets}" if offsets else ""
        return Warn(_ROLLED_BACK.format(name=name, where=where, again=again))

    def _is_restored(self, lookup: Lookup) -> bool:
        """Return True if the table has lost commits without a rollback (rule 4)."""
        commit = None if lookup.ledger is None else stamp_of(lookup.ledger)
        newest_commit = self._progress.commits.newest(lookup.version.uuid)
        is_current = lookup.standing in (Standing.FOUND, Standing.EXPIRED, Standing.NONE)
        return is_current and self._rules.is_older_commit(commit, newest_commit)

    def _check_uuid(self, name: str, lookup: Lookup) -> None:
        """Fail if another name refers to the same table.

        Both names share one ledger, so rows that are committed under one name would be dropped
        under the other name.
        """
        for other, table in self._progress.tables.items():
            if other != name and table.uuid == lookup.version.uuid and not table.missing:
                raise failed(
                    f"{other} and {name} are the same table (UUID {table.uuid}), as in a catalog "
                    "with case-insensitive names; use only one name in the routes, or restart the "
                    "connector if the table has just been renamed"
                )

    def _start(
        self, lookup: Lookup, partition: TopicPartition, state: PartitionState
    ) -> Position | None:
        """Return the table's recorded start position in the current topic, or None."""
        if lookup.topic_ids.get(partition.topic) != state.topic_id:
            return None
        return lookup.opened.get(partition)

    def _needed(
        self,
        name: str,
        partition: TopicPartition,
        state: PartitionState,
        lookup: Lookup,
        is_refilled: bool,
        is_restored: bool,
    ) -> int:
        """Return the offset from which the table needs rows from a partition.

        If `is_restored` is True, the table property is also from the backup.
        """
        floor = self._progress.floor(partition)
        ledger = lookup.ledger
        topic = ledger.topics.get(partition.topic) if ledger else None
        if topic and not self._rules.is_same_topic(topic.topic_id, state.topic_id):
            if not self._progress.settings.new_topic_allowed:
                raise failed(
                    f"table {name} has rows from a deleted topic {partition.topic}; to read the "
                    "new topic from its start, set iceberg.ext.recreated-topic=restart"
                )
            # the lost commits may have contained rows from the new topic
            return 0 if is_refilled else state.log_start
        entry = topic.partitions.get(partition.partition) if topic else None
        if entry and entry.generation > state.generation:
            # the group offsets no longer reflect this deliberate rewind
            state.generation = entry.generation
            return entry.next
        if is_refilled:
            position = entry.position if entry else self._start(lookup, partition, state)
            if position is None:
                # the partition was added after the table's property was written
                return 0 if is_restored else state.log_start
            if position.generation == state.generation:
                return position.next
            return min(position.next, floor)
        if entry is None or self._rules.is_before_rewind(entry.generation, state.generation):
            return floor
        if self._is_newer_than_group(ledger, state):
            return entry.next
        return max(entry.next, floor)

    def _is_newer_than_group(self, ledger: Ledger | None, state: PartitionState) -> bool:
        """Return True if the ledger is from a later epoch than the group offset (rule 7)."""
        return ledger is not None and self._rules.is_newer_than_group(
            ledger.epoch.number, state.mark_epoch, self._progress.epoch.number
        )
