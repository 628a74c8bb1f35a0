"""From where on a table needs rows, decided when it is opened."""

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

_NOT_KNOWN = {  # standings of a table of which it is not known what it holds
    Standing.LOST: "was rolled back to a snapshot whose ledger was expired, so what it holds is "
    "not known: roll it "
    "back to another snapshot, or replace it by an empty one, which is filled again",
    Standing.BRANCH_LOST: "has no longer the branch that is committed to, and main holds none of "
    "its commits, so which of its rows are in main is not known: create the branch again at "
    "snapshot {snapshot}, or at main's head if all of it was published, or replace the table by "
    "an empty one, which is filled again",
    Standing.REPLACED: "holds other rows than those that were committed to it, as after CREATE OR "
    "REPLACE TABLE ... AS SELECT, so what it holds is not known: make snapshot {snapshot} its "
    "current one again, or replace it by an empty one, which is filled again",
}

_WENT_BACK = (
    "table {name} is older than what was committed to it: the catalog seems to have gone back in "
    "time, as one that was "
    "restored from a backup. The table is filled again from the position that it has now"
)

_ROLLED_BACK = (
    "table {name} was rolled back {where}: it is filled again from the positions that "
    "its ledger has there{again}"
)


class TableOpening:
    """Compares what a table says of itself with what partitions and group say (rules 7 and 8)."""

    def __init__(self, progress: SourceProgress) -> None:
        self._progress = progress
        self._rules = progress.rules

    def open(self, name: str, lookup: Lookup) -> list[CoordinatorAction]:
        """Decide from where on a table needs rows (rules 7 and 8)."""
        if lookup.highest_epoch and lookup.highest_epoch > self._progress.epoch:
            raise EpochEndedError(
                Stop(f"epoch {lookup.highest_epoch} in table {name} is above ours", overtaken=True)
            )
        self._check_twins(name, lookup)
        ledger = lookup.ledger
        cluster = self._progress.settings.cluster
        if ledger and not self._rules.is_same_cluster(ledger.cluster, cluster):
            raise failed(
                f"table {name} is written by a connector of the same name on Kafka cluster "
                f"{ledger.cluster}, "
                f"this one reads cluster {cluster}: rename one of them"
            )
        if lookup.standing in _NOT_KNOWN:
            why = _NOT_KNOWN[lookup.standing].format(snapshot=lookup.version.property_snapshot)
            raise failed(f"table {name} {why}")
        went_back = self._went_back(lookup)
        if went_back and ledger is None:
            raise failed(
                f"table {name} knows of no commit, though this connector has committed to it: the "
                "catalog seems to have gone back in time, as one that was restored from a "
                "backup, or the property that names its last commit was removed. Alter the "
                "offsets of all partitions to where the table goes on from"
            )
        rolled_back = self._rules.is_refilled(
            is_rolled_back=lookup.standing is Standing.ROLLED_BACK, is_restored=went_back
        )
        needs: dict[TopicPartition, int] = {}
        bases: dict[TopicPartition, int] = {}
        opened: dict[TopicPartition, Position] = {}
        for partition, state in self._progress.partitions.items():
            needed = self._needed(name, partition, state, lookup, rolled_back, went_back)
            if self._progress.misses_rows(partition, needed, state.log_start):
                raise failed(
                    f"table {name} needs {partition} from offset {needed}, but the log starts at "
                    f"{state.log_start}: rows are lost"
                )
            needs[partition] = needed
            opened[partition] = self._began(lookup, partition, state) or Position(
                state.generation, needed
            )
            entry = ledger.entry(partition, state.topic_id) if ledger else None
            bases[partition] = (
                entry.next if entry and entry.generation == state.generation else needed
            )
        old = self._progress.tables.get(name)
        self._progress.tables[name] = TableState(
            lookup.version,
            ledger,
            opened,
            needs,
            bases,
            guarded=self._rules.requires_lowered_group(
                is_refilled=rolled_back,
                is_below_sent_floor=self._progress.is_below_a_sent_floor(needs),
            ),
            answer=old.answer if old and old.uuid == lookup.version.uuid else None,
            committed=bool(old and old.committed and old.uuid == lookup.version.uuid),
            failures=old.failures if old else 0,
        )
        if ledger is not None:
            self._progress.commits.note(lookup.version.uuid, ledger)
        if went_back:
            return [Warn(_WENT_BACK.format(name=name))]
        return [self._rolled_back(name, lookup)] if rolled_back else []

    def _rolled_back(self, name: str, lookup: Lookup) -> Warn:
        """Tell of a table that its owner rolled back, and how much is read again for it."""
        snapshot, newest = lookup.version.ledger_snapshot, lookup.version.property_snapshot
        where = "to before its first commit, or replaced by an empty one"
        if snapshot is not None:
            where = (
                f"to snapshot {snapshot}, the newest commit of this connector was snapshot {newest}"
            )
        needs = self._progress.tables[name].needs
        rows = sum(
            max(0, self._progress.partitions[p].applied - needed) for p, needed in needs.items()
        )
        again = f", {rows} offsets are read again" if rows else ""
        return Warn(_ROLLED_BACK.format(name=name, where=where, again=again))

    def _went_back(self, lookup: Lookup) -> bool:
        """Whether a newer commit was seen than the table knows of, and no roll-back tells of it
        (rule 4)."""
        known = lookup.standing in (Standing.FOUND, Standing.EXPIRED, Standing.NONE)
        commit = None if lookup.ledger is None else stamp_of(lookup.ledger)
        newest = self._progress.commits.newest(lookup.version.uuid)
        return known and self._rules.is_older_commit(commit, newest)

    def _check_twins(self, name: str, lookup: Lookup) -> None:
        """Two names of one table have one ledger: what one name commits would count as done for the
        other."""
        for other, table in self._progress.tables.items():
            if other != name and table.uuid == lookup.version.uuid and not table.missing:
                raise failed(
                    f"{other} and {name} are one table (uuid {table.uuid}), as in a catalog that "
                    "takes no notice of case: give it one name in the routes. If it was renamed "
                    "just now, restart the connector"
                )

    def _began(
        self, lookup: Lookup, partition: TopicPartition, state: PartitionState
    ) -> Position | None:
        """Where the table began, unless that was in another topic of the same name."""
        if lookup.topic_ids.get(partition.topic) != state.topic_id:
            return None
        return lookup.opened.get(partition)

    def _needed(
        self,
        name: str,
        partition: TopicPartition,
        state: PartitionState,
        lookup: Lookup,
        rolled_back: bool,
        went_back: bool,
    ) -> int:
        """E of one partition. `went_back`: rolled back, and its property with it."""
        floor = self._progress.floor(partition)
        ledger = lookup.ledger
        topic = ledger.topics.get(partition.topic) if ledger else None
        if topic and not self._rules.is_same_topic(topic.topic_id, state.topic_id):
            if not self._progress.settings.new_topic_allowed:
                raise failed(
                    f"table {name} holds rows of a topic {partition.topic} that was deleted "
                    "since: allow the new topic to read it from its start"
                )
            # what was rolled back may have been of the new topic
            return 0 if rolled_back else state.log_start
        entry = topic.partitions.get(partition.partition) if topic else None
        if entry and entry.generation > state.generation:
            state.generation = entry.generation  # of a deliberate rewind that the group forgot
            return entry.next
        if rolled_back:
            left = entry.position if entry else self._began(lookup, partition, state)
            if left is None:
                # a table of before the partition knows not where that began
                return 0 if went_back else state.log_start
            return left.next if left.generation == state.generation else min(left.next, floor)
        if entry is None or self._rules.is_before_rewind(entry.generation, state.generation):
            return floor
        if self._is_newer_than_the_group(ledger, state):
            return entry.next
        return max(entry.next, floor)

    def _is_newer_than_the_group(self, ledger: Ledger | None, state: PartitionState) -> bool:
        """Whether the group speaks for an epoch that ended before this table's last commit (rule
        7).

        An owner of that epoch may have committed its floor after the table was replaced, and opened
        below it.
        """
        return ledger is not None and self._rules.is_newer_than_group(
            ledger.epoch.number, state.mark_epoch, self._progress.epoch.number
        )
