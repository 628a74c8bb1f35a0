"""Switches for the rules that `ProtocolRules` decides.

To disable a rule, the simulation passes the state machines a subclass of `ProtocolRules` that
overrides one or two of its decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import TypeVar

from connectors.iceberg.protocol.messages import Range
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition
from connectors.iceberg.protocol.rules import PROTOCOL_RULES, ProtocolRules

_T = TypeVar("_T")


class Rule(Enum):
    """One switch per decision. The comment describes the failure if the rule is disabled.

    A value starts with the number of the rule in `docs/protocol.md`.
    """

    LEDGER_BOUND_TO_TABLE = "1"  # a re-created table with copied properties counts as filled
    ALL_POSITIONS_IN_EVERY_COMMIT = "2"  # a newly routed table gets rows from before its start
    PROPERTY_BACKS_THE_LEDGER = "3"  # an expiration by others, or a rollback, goes unnoticed
    # a table that was replaced by a copy of its own rows receives all of them a second time
    REPLACED_IS_NOT_ROLLED_BACK = "3 replaced"
    GROUP_OFFSETS_NEED_OUR_MARK = "4"  # resetting the group with a tool skips rows
    # rows of commits that a catalog lost when it was restored from a backup are missing
    MARK_KNOWS_NEWEST_COMMITS = "4 commits"
    EPOCH_ABOVE_EVERY_TRACE = "5"  # after the channel was emptied, tasks follow an old coordinator
    # rows that a deliberate rewind asks for are missing from tables that are ahead of it
    REWIND_REACHES_EVERY_TABLE = "7"
    # the late commit of an owner from an earlier epoch determines the start of a new table
    NEWER_LEDGER_BEFORE_GROUP = "7 group"
    REFILL_EXACTLY_FROM_LEDGER = "8"  # the gap in a rolled-back table remains
    # a crash after the first commit of a refill leaves a gap
    LOWERED_GROUP_BEFORE_REFILL = "8 guard"
    # the same for a table that is created in place of one that was rolled back
    LOWERED_GROUP_BEFORE_NEW_TABLE = "8 new"
    # an owner commits a floor that it received before the rollback
    OWNER_FOLLOWED_BEFORE_REFILL = "8 owner"
    PROOF_BEFORE_FIRST_LEDGER = "9"  # a paused coordinator gives a re-created table another start
    # files of an ended epoch, which are deleted, are reported to the next epoch
    HIGHER_EPOCH_DETACHES = "10"
    REPORT_FILTERED_TABLES = "11"  # a table advances over rows that an outdated filter dropped
    ACCEPT_CONTIGUOUS_ONLY = "14"  # gaps and repetitions count as progress
    REPORTS_OF_OUR_START_ONLY = "14 start"  # ranges of a task with an old configuration lack rows
    CHECK_FILTER_AND_FIRST = "15"  # rows are missing or duplicated
    QUIET_TABLE_MOVES_WITHOUT_GAP = "19"  # a table advances over rows that no task staged for it
    # after a crash, no task reads the rows again that only some tables have
    FLOOR_IS_THE_LOWEST_TABLE = "20"
    SEND_BACK_BELOW_APPLIED = "20 rewind"  # a range that a table refused is never read again
    # a coordinator that read the group before an alteration writes the old offsets back
    NO_OLDER_GENERATION = "21 guard"
    FILES_BOUND_TO_TABLE = "22"  # a table refers to deleted files of its predecessor
    MISSING_IS_NOT_DONE = "22 missing"  # a table that was dropped for a moment lacks rows
    TOPIC_ID_EVERYWHERE = "23"  # offsets count for another topic of the same name
    ONE_CLUSTER_PER_LEDGER = "24"  # offsets of the topics of another cluster count for ours
    # rows that retention deleted before a table had them are skipped without an error
    LOG_STILL_HOLDS_IT = "28"


class AcceptForeignLedgers(ProtocolRules):
    def is_bound_to_table(self, uuid: str, table_uuid: str) -> bool:
        return True


class WritePositionsWithRows(ProtocolRules):
    def ledger_positions(
        self, positions: Mapping[TopicPartition, int], with_rows: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return {partition: positions[partition] for partition in with_rows}


class IgnoreProperty(ProtocolRules):
    def compared_property(self, ledger_property: _T | None) -> _T | None:
        return None


class RefillReplacedTables(ProtocolRules):
    def is_replaced(self, *, is_complete: bool, has_other_rows: bool) -> bool:
        return False


class AcceptResetOffsets(ProtocolRules):
    def accepts_offsets_without_metadata(self, *, has_ledger: bool, has_metadata: bool) -> bool:
        return True


class IgnoreRestoredCatalogs(ProtocolRules):
    def is_older_commit(
        self, commit: tuple[int, int] | None, newest_commit: tuple[int, int] | None
    ) -> bool:
        return False


class EpochOfChannel(ProtocolRules):
    def epoch_number(
        self, start_number: int, channel_epoch: Epoch | None, recorded_epochs: Sequence[Epoch]
    ) -> int:
        return super().epoch_number(start_number, channel_epoch, [])

    def is_coordinator_of_earlier_start(self, epoch: Epoch, start_number: int) -> bool:
        return False

    def has_ended(self, epoch: Epoch, highest_epoch: Epoch) -> bool:
        return False


class KeepLedgersAheadOfRewind(ProtocolRules):
    def is_before_rewind(self, table_generation: int, generation: int) -> bool:
        return False


class PreferGroup(ProtocolRules):
    def is_newer_than_group(
        self, ledger_epoch: int, group_epoch: int | None, current_epoch: int
    ) -> bool:
        return False


class KeepRolledBackTables(ProtocolRules):
    def is_refilled(self, *, is_rolled_back: bool, is_restored: bool) -> bool:
        return is_restored


class CommitAboveGroup(ProtocolRules):
    def requires_lowered_group(self, *, is_refilled: bool, is_below_sent_floor: bool) -> bool:
        return False


class CommitNewTablesAboveGroup(ProtocolRules):
    def requires_lowered_group(self, *, is_refilled: bool, is_below_sent_floor: bool) -> bool:
        return is_refilled


class IgnoreSentFloors(ProtocolRules):
    def highest_committable(self, offset: int, sent_floors: Sequence[int]) -> int:
        return offset


class CommitWithoutProof(ProtocolRules):
    def requires_proof_of_leadership(self, *, has_ledger: bool) -> bool:
        return False


class StayAttached(ProtocolRules):
    def detached_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> Collection[TopicPartition]:
        return ()


class ReportTablesWithRows(ProtocolRules):
    def reported_tables(self, first_offsets: Mapping[str, int | None]) -> Collection[str]:
        return [table for table, first in first_offsets.items() if first is not None]


class AcceptEveryStart(ProtocolRules):
    def is_from_earlier_start(self, start_number: int, current_start_number: int) -> bool:
        return False


class AcceptEveryRange(ProtocolRules):
    def continues(self, start: Position, accepted: Position) -> bool:
        return True


class CommitEveryRangeWithRows(ProtocolRules):
    def is_exact(self, lower_bound: int, first: int, needed: int) -> bool:
        return True


class AdvanceOverGaps(ProtocolRules):
    def is_gapless(self, lower_bound: int, needed: int) -> bool:
        return True


class ReleaseAppliedRanges(ProtocolRules):
    def floor(
        self, applied: int, needed: Iterable[int], needed_by_missing_tables: Iterable[int]
    ) -> int:
        return applied


class NeverReadAgain(ProtocolRules):
    def must_be_read_again(self, lowest: int, applied: int) -> bool:
        return False


class AcceptOlderGenerations(ProtocolRules):
    def is_older_generation(self, generation: int, group_generation: int) -> bool:
        return False


class CommitFilesOfPredecessors(ProtocolRules):
    def is_staged_for(self, uuid: str, table_uuid: str) -> bool:
        return True


class SkipRowsOfMissingTables(ProtocolRules):
    def is_open(self, *, is_missing: bool) -> bool:
        return True

    def floor(
        self, applied: int, needed: Iterable[int], needed_by_missing_tables: Iterable[int]
    ) -> int:
        return super().floor(applied, needed, ())


class IgnoreTopicIds(ProtocolRules):
    def is_same_topic(self, topic_id: str, expected_id: str) -> bool:
        return True


class IgnoreClusters(ProtocolRules):
    def is_same_cluster(self, cluster: str, expected_cluster: str) -> bool:
        return True


class IgnoreRetention(ProtocolRules):
    def is_deleted(self, position: int, log_start: int) -> bool:
        return False


class CommitAllQueuedRanges(ProtocolRules):
    """Rule 13 disabled: a cycle commits all queued ranges, and checks them as one range."""

    def next_range(self, queue: deque[Range]) -> Range:
        merged = queue.popleft()
        for later in queue:
            tables = dict(merged.tables)
            for name, part in later.tables.items():
                if name in tables:
                    first = tables[name].first
                    first = part.first if first is None else first
                    part = replace(part, first=first, files=(*tables[name].files, *part.files))
                tables[name] = part
            merged = replace(merged, next=later.next, tables=tables)
        queue.clear()
        return merged


SWITCHES: Mapping[Rule, type[ProtocolRules]] = {
    Rule.LEDGER_BOUND_TO_TABLE: AcceptForeignLedgers,
    Rule.ALL_POSITIONS_IN_EVERY_COMMIT: WritePositionsWithRows,
    Rule.PROPERTY_BACKS_THE_LEDGER: IgnoreProperty,
    Rule.REPLACED_IS_NOT_ROLLED_BACK: RefillReplacedTables,
    Rule.GROUP_OFFSETS_NEED_OUR_MARK: AcceptResetOffsets,
    Rule.MARK_KNOWS_NEWEST_COMMITS: IgnoreRestoredCatalogs,
    Rule.EPOCH_ABOVE_EVERY_TRACE: EpochOfChannel,
    Rule.REWIND_REACHES_EVERY_TABLE: KeepLedgersAheadOfRewind,
    Rule.NEWER_LEDGER_BEFORE_GROUP: PreferGroup,
    Rule.REFILL_EXACTLY_FROM_LEDGER: KeepRolledBackTables,
    Rule.LOWERED_GROUP_BEFORE_REFILL: CommitAboveGroup,
    Rule.LOWERED_GROUP_BEFORE_NEW_TABLE: CommitNewTablesAboveGroup,
    Rule.OWNER_FOLLOWED_BEFORE_REFILL: IgnoreSentFloors,
    Rule.PROOF_BEFORE_FIRST_LEDGER: CommitWithoutProof,
    Rule.HIGHER_EPOCH_DETACHES: StayAttached,
    Rule.REPORT_FILTERED_TABLES: ReportTablesWithRows,
    Rule.ACCEPT_CONTIGUOUS_ONLY: AcceptEveryRange,
    Rule.REPORTS_OF_OUR_START_ONLY: AcceptEveryStart,
    Rule.CHECK_FILTER_AND_FIRST: CommitEveryRangeWithRows,
    Rule.QUIET_TABLE_MOVES_WITHOUT_GAP: AdvanceOverGaps,
    Rule.FLOOR_IS_THE_LOWEST_TABLE: ReleaseAppliedRanges,
    Rule.SEND_BACK_BELOW_APPLIED: NeverReadAgain,
    Rule.NO_OLDER_GENERATION: AcceptOlderGenerations,
    Rule.FILES_BOUND_TO_TABLE: CommitFilesOfPredecessors,
    Rule.MISSING_IS_NOT_DONE: SkipRowsOfMissingTables,
    Rule.TOPIC_ID_EVERYWHERE: IgnoreTopicIds,
    Rule.ONE_CLUSTER_PER_LEDGER: IgnoreClusters,
    Rule.LOG_STILL_HOLDS_IT: IgnoreRetention,
}


@cache
def combined_rules(overrides: frozenset[type[ProtocolRules]]) -> ProtocolRules:
    """Return the rules of the protocol with the decisions of all these subclasses."""
    if not overrides:
        return PROTOCOL_RULES
    bases = sorted(overrides, key=lambda override: override.__name__)
    rules: ProtocolRules = type("CombinedRules", tuple(bases), {})()
    return rules
