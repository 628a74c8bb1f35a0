"""Named switches for the rules of the protocol.

Production code always runs with `ALL_RULES`. The simulation switches rules off one at a time to show
that it notices; a rule without a failing seed would be a rule nobody needs.
"""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """What each rule forbids, in a few words. The comment says what goes wrong without it."""

    LEDGER_BOUND_TO_TABLE = 1  # a re-created table with copied properties would count as filled
    ALL_POSITIONS_IN_EVERY_COMMIT = 2  # a newly routed table would get rows from before its start
    PROPERTY_BACKS_THE_LEDGER = 3  # expiry by others, or a roll-back, would go unnoticed
    GROUP_OFFSETS_NEED_OUR_MARK = 4  # a tool's reset would skip rows
    EPOCH_ABOVE_EVERY_TRACE = 5  # after a wiped channel an old coordinator would be followed
    HOLD_AT_UNOPENED_TABLE = 6  # rows of a table would pass by before anybody knew its position
    REFILL_EXACTLY_FROM_LEDGER = 8  # a rolled-back table would stay with a hole
    PROOF_BEFORE_FIRST_LEDGER = 9  # a sleeper would give a re-created table another start
    REPORT_FILTERED_TABLES = 11  # a table would advance over rows that a stale filter dropped
    ONE_RANGE_PER_CYCLE = 13  # later ranges would be taken although an earlier one is refused
    ACCEPT_CONTIGUOUS_ONLY = 14
    CHECK_FILTER_AND_FIRST = 15  # missing or doubled rows
    COMPARE_AND_SWAP = 16  # two coordinators would both land
    LOOK_FOR_COMMIT_ID = 17  # an applied commit with an unknown outcome would land twice
    KEEP_OLD_FILES_UNTIL_OWN_COMMIT = 18  # a sleeper's swap would refer to removed files
    QUIET_TABLE_MOVES_WITHOUT_GAP = 19
    PROPERTY_IN_VERSION = 160  # roll back + late request (A-B-A) would pass
    TOPIC_ID_EVERYWHERE = 23  # rows of a re-created topic would be taken for the old ones


Rules = frozenset[Rule]
ALL_RULES: Rules = frozenset(Rule)
