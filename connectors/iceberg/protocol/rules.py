"""Named switches for the rules of the protocol. A value begins with its rule's number in `docs/protocol.md`.

Production code always runs with `ALL_RULES`. The simulation switches rules off one at a time to show
that it notices; a rule without a failing seed would be unnecessary.
"""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """One switch per rule that the state machines apply. The comment says what goes wrong without it."""

    LEDGER_BOUND_TO_TABLE = "1"  # a re-created table with copied properties would count as filled
    ALL_POSITIONS_IN_EVERY_COMMIT = "2"  # a newly routed table would get rows from before its start
    PROPERTY_BACKS_THE_LEDGER = "3"  # expiry by others, or a roll-back, would go unnoticed
    REPLACED_IS_NOT_ROLLED_BACK = "3 replaced"  # a table made anew of its own rows would get all of them once more
    GROUP_OFFSETS_NEED_OUR_MARK = "4"  # a tool's reset would skip rows
    EPOCH_ABOVE_EVERY_TRACE = "5"  # after a wiped channel an old coordinator would be followed
    MARK_KNOWS_NEWEST_COMMITS = "4 commits"  # what a catalog forgot that was restored from a backup would stay out
    REWIND_REACHES_EVERY_TABLE = "7"  # rows that a deliberate rewind asks for would stay out of tables ahead of it
    NEWER_LEDGER_BEFORE_GROUP = "7 group"  # what an owner of an earlier epoch committed late would fill a new table
    REFILL_EXACTLY_FROM_LEDGER = "8"  # a rolled-back table would keep its hole
    LOWERED_GROUP_BEFORE_REFILL = "8 guard"  # a crash after the first refill would leave the rest out
    LOWERED_GROUP_BEFORE_NEW_TABLE = "8 new"  # so would a table that is made in place of one that was rolled back
    OWNER_FOLLOWED_BEFORE_REFILL = "8 owner"  # a floor that an owner got before the roll-back would get into the group
    PROOF_BEFORE_FIRST_LEDGER = "9"  # a sleeper would give a re-created table another start
    HIGHER_EPOCH_DETACHES = "10"  # files of an ended epoch, which are removed, would be reported to the next
    REPORT_FILTERED_TABLES = "11"  # a table would advance over rows that a stale filter dropped
    REPORTS_OF_OUR_START_ONLY = "14 start"  # a task with an older configuration would hide rows
    ACCEPT_CONTIGUOUS_ONLY = "14"  # gaps and repetitions would count as progress
    CHECK_FILTER_AND_FIRST = "15"  # missing or doubled rows
    QUIET_TABLE_MOVES_WITHOUT_GAP = "19"  # a table would pass over rows that no task staged for it
    FLOOR_IS_THE_LOWEST_TABLE = "20"  # after a crash no task would read again what only some tables have
    SEND_BACK_BELOW_APPLIED = "20 rewind"  # a range that a table refused would never be read again
    NO_OLDER_GENERATION = "21 guard"  # who read the group just before it was altered would write the old offsets back
    FILES_BOUND_TO_TABLE = "22"  # files of a table that was replaced meanwhile would be looked for in vain
    MISSING_IS_NOT_DONE = "22 missing"  # rows would pass by a table that was dropped for a moment
    TOPIC_ID_EVERYWHERE = "23"  # offsets of one topic would count for another of the same name
    ONE_CLUSTER_PER_LEDGER = "24"  # offsets of another cluster's topics would count for ours
    LOG_STILL_HOLDS_IT = "28"  # what retention removed before a table had it would be passed over in silence


Rules = frozenset[Rule]
ALL_RULES: Rules = frozenset(Rule)
