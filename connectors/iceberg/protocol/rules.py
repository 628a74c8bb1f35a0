"""`ProtocolRules`: decisions of the commit protocol that implement the rules in `docs/protocol.md`.

Each method makes one decision for the state machines from plain values. The rule numbers refer to
that page. A simulation passes the state machines a subclass that makes one decision differently,
to prove that the protocol fails without the rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from connectors.iceberg.protocol.messages import Range
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition

_PropertyT = TypeVar("_PropertyT")
_CommitStamp = tuple[int, int]  # epoch number and cycle


class ProtocolRules:
    """Makes decisions for the coordinator, its tables, and the tasks. Stateless."""

    # Ledgers

    def is_bound_to_table(self, uuid: str, table_uuid: str) -> bool:
        """Return True if a ledger was written to this table (rule 1).

        A re-created table may have a copy of its predecessor's properties.
        """
        return uuid == table_uuid

    def ledger_positions(
        self, positions: Mapping[TopicPartition, int], with_rows: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the positions that a commit writes, for all partitions (rule 2).

        If only the positions of partitions with rows were written, a later re-read would give a
        newly routed table rows from before its start position.
        """
        return positions

    def compared_property(self, ledger_property: _PropertyT | None) -> _PropertyT | None:
        """Return the property to compare with the newest ledger in the history (rule 3).

        The comparison shows why the history has no ledger, or an older one than the property.
        """
        return ledger_property

    def is_replaced(self, *, is_complete: bool, has_other_rows: bool) -> bool:
        """Return True if a table without any ledger has rows of unknown origin (rule 3).

        Such a table may contain the rows that were committed to its predecessor. A refill would add
        these rows a second time.
        """
        return is_complete and has_other_rows

    def is_same_topic(self, topic_id: str, expected_id: str) -> bool:
        """Return True if two topic IDs are equal, so that offsets are comparable (rule 23)."""
        return topic_id == expected_id

    def is_same_cluster(self, cluster: str, expected_cluster: str) -> bool:
        """Return True if a ledger contains offsets from the connector's Kafka cluster (rule 24)."""
        return cluster == expected_cluster

    # Start of an epoch

    def accepts_offsets_without_metadata(self, *, has_ledger: bool, has_metadata: bool) -> bool:
        """Return True if group offsets without metadata are used as start positions (rule 4).

        Before the first commit, these offsets are from the connector that this one replaces. Later,
        they are from a tool that has reset the group.
        """
        return not has_ledger and not has_metadata

    def is_older_commit(
        self, commit: _CommitStamp | None, newest_commit: _CommitStamp | None
    ) -> bool:
        """Return True if the newest commit to a table is older than a recorded commit (rule 4).

        This means that the catalog was restored from a backup. None means that there is no commit.
        """
        return newest_commit is not None and (commit is None or commit < newest_commit)

    def epoch_number(
        self, start_number: int, channel_epoch: Epoch | None, recorded_epochs: Sequence[Epoch]
    ) -> int:
        """Return the number of a new epoch, which exceeds every other epoch (rule 5).

        Args:
            start_number: The lowest epoch number for this start of the connector.
            channel_epoch: The highest epoch in the channel, or None if the channel has no epoch.
            recorded_epochs: The epochs in group offsets and tables.
        """
        epochs = [*recorded_epochs] if channel_epoch is None else [*recorded_epochs, channel_epoch]
        return max(max((epoch.number for epoch in epochs), default=0) + 1, start_number)

    def is_deleted(self, position: int, log_start: int) -> bool:
        """Return True if retention has deleted the record at a position (rule 28)."""
        return position < log_start

    # Opening a table

    def is_before_rewind(self, table_generation: int, generation: int) -> bool:
        """Return True if a table does not reflect a deliberate rewind or skip yet (rule 7)."""
        return table_generation < generation

    def is_newer_than_group(
        self, ledger_epoch: int, group_epoch: int | None, current_epoch: int
    ) -> bool:
        """Return True if a ledger takes precedence over the group offset (rule 7).

        This is the case if the offset is from an epoch that ended before the last commit to the
        table. A task of that epoch may have committed the offset after the table was replaced and
        opened at a lower position.
        """
        return group_epoch is not None and group_epoch < ledger_epoch < current_epoch

    def is_refilled(self, *, is_rolled_back: bool, is_restored: bool) -> bool:
        """Return True if a table starts exactly at its ledger, regardless of the floor (rule 8)."""
        return is_rolled_back or is_restored

    def requires_lowered_group(self, *, is_refilled: bool, is_below_sent_floor: bool) -> bool:
        """Return True if the group offsets must be lowered before the first commit (rule 8).

        That commit removes the evidence of the rollback. If the coordinator crashed after the
        commit, the next coordinator would start at the higher group offsets and skip rows.
        """
        return is_refilled or is_below_sent_floor

    def highest_committable(self, offset: int, sent_floors: Sequence[int]) -> int:
        """Return the highest offset that the owner of a partition can still commit (rule 8).

        Args:
            offset: The group offset.
            sent_floors: The floors that were sent since the last rewind that the owner applied.
        """
        return max([offset, *sent_floors])

    def requires_proof_of_leadership(self, *, has_ledger: bool) -> bool:
        """Return True if a commit requires a new proof of leadership (rule 9).

        The first commit to a table requires one, because the commit cannot be compared with an
        earlier ledger.
        """
        return not has_ledger

    # Reports from tasks

    def is_from_earlier_start(self, start_number: int, current_start_number: int) -> bool:
        """Return True if a task's configuration is from an earlier connector start (rule 14).

        This configuration may lack routes, so the task's ranges may lack rows.
        """
        return start_number < current_start_number

    def continues(self, start: Position, accepted: Position) -> bool:
        """Return True if a range starts where the last accepted range ended (rule 14)."""
        return start == accepted

    # A commit cycle

    def next_range(self, queue: deque[Range]) -> Range:
        """Remove and return the range that a cycle commits for a partition (rule 13).

        Later ranges wait, because they would leave a gap if this range were refused.
        """
        return queue.popleft()

    def is_exact(self, lower_bound: int, first: int, needed: int) -> bool:
        """Return True if a range with rows neither lacks nor repeats rows for a table (rule 15).

        Args:
            lower_bound: Offset below which the task dropped rows or did not read them.
            first: Offset of the first row for the table.
            needed: Offset from which the table needs rows.
        """
        return lower_bound <= needed <= first

    def is_gapless(self, lower_bound: int, needed: int) -> bool:
        """Return True if a range without rows may advance the position of a table (rule 19)."""
        return lower_bound <= needed

    def is_staged_for(self, uuid: str, table_uuid: str) -> bool:
        """Return True if files were staged for this table and not for a predecessor (rule 22)."""
        return uuid == table_uuid

    def is_open(self, *, is_missing: bool) -> bool:
        """Return True if tasks may stage rows for a table without requesting it again (rule 22)."""
        return not is_missing

    def floor(
        self, applied: int, needed: Iterable[int], needed_by_missing_tables: Iterable[int]
    ) -> int:
        """Return the offset below which all tables are complete (rules 20 and 22).

        Missing tables are included, because they may be created again.

        Args:
            applied: End of the last range that a cycle has processed.
            needed: Offsets from which the existing tables need rows.
            needed_by_missing_tables: Offsets from which missing tables need rows.
        """
        return min([applied, *needed, *needed_by_missing_tables])

    def must_be_read_again(self, lowest: int, applied: int) -> bool:
        """Return True if a table needs rows from below the applied position (rule 20)."""
        return lowest < applied

    # Tasks

    def is_coordinator_of_earlier_start(self, epoch: Epoch, start_number: int) -> bool:
        """Return True if a coordinator is from an earlier start of the connector (rule 5)."""
        return epoch.number < start_number

    def has_ended(self, epoch: Epoch, highest_epoch: Epoch) -> bool:
        """Return True if an epoch has ended because a later epoch was seen (rule 5)."""
        return epoch < highest_epoch

    def detached_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> Collection[TopicPartition]:
        """Return the partitions that a new epoch detaches, which are all partitions (rule 10).

        The new coordinator deletes the files that were staged under the previous one.
        """
        return partitions

    def reported_tables(self, first_offsets: Mapping[str, int | None]) -> Collection[str]:
        """Return the tables that a report lists, even if all of their rows were dropped (rule 11).

        Args:
            first_offsets: By table, the first offset that passed the filter, or None if no row
                passed.
        """
        return first_offsets.keys()

    def is_older_generation(self, generation: int, group_generation: int) -> bool:
        """Return True if a coordinator read the group before its offsets were altered (rule 21)."""
        return generation < group_generation


PROTOCOL_RULES: Final = ProtocolRules()
