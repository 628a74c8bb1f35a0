"""What may go wrong in the simulated world of the sink's protocol, which rules can be off, and what
a row is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from iceberg_protocol_rules import Rule

KEYS = 3  # per partition

RowId = tuple[str, int, int]  # topic id, partition, offset
T = TypeVar("T")


class Fault(Enum):
    """What the storm may do. Every kind must happen in a run of many seeds."""

    MESSAGE_LOST = auto()
    MESSAGE_TWICE = auto()
    MESSAGE_LATE = auto()
    CHANNEL_WIPED = auto()
    TASK_KILLED = auto()
    TASK_KILLED_BEFORE_REPORT = auto()
    COORDINATOR_KILLED = auto()
    COORDINATOR_SLEEPS = auto()
    SLEEPER_WAKES = auto()
    EVERYTHING_KILLED = auto()
    REBALANCE = auto()
    ZOMBIE_TASK = auto()
    ZOMBIE_OF_EARLIER_START = auto()
    GROUP_LOST = auto()
    GROUP_RESET = auto()
    GROUP_COMMIT_REFUSED = auto()
    FOREIGN_COMMIT = auto()
    SPURIOUS_CONFLICT = auto()
    ROLL_BACK = auto()
    EXPIRE = auto()
    DROP = auto()
    REPLACE = auto()
    REPLACE_WITH_PROPERTIES = auto()
    REPLACE_BY_ITS_ROWS = auto()
    RESTORED = auto()
    UNKNOWN_APPLIED = auto()
    UNKNOWN_LOST = auto()
    UNKNOWN_LATE = auto()
    COMMIT_FAILED = auto()
    LOAD_FAILED = auto()
    TOPIC_REPLACED = auto()
    PARTITION_ADDED = auto()
    ROUTE_ADDED = auto()
    OFFSETS_ALTERED = auto()
    OFFSETS_ALTERED_LATE = auto()
    OFFSETS_SKIPPED = auto()
    RETENTION = auto()
    RETENTION_TOO_SOON = auto()
    OTHER_CLUSTER = auto()
    TIMEOUT_SHORT = auto()
    FOREIGN_UPSERT = auto()
    COMPACTION = auto()
    MANIFESTS_REWRITTEN = auto()
    EXPIRED_UNDER_A_MERGE = auto()
    TAGGED = auto()
    SCRATCH_LEFT_BEHIND = auto()
    SCRATCH_SWAP_LATE = auto()
    COMPACTION_LATE = auto()
    DRIVER_LOST = auto()
    MERGE_LATE = auto()
    REFUSED_THOUGH_MADE = auto()
    REWIND_SKIPS = auto()
    LOADED = auto()
    REBUILT = auto()


# Drawn from a random source of their own, so that storms without them stay what they were.
APART = (Fault.REPLACE_BY_ITS_ROWS, Fault.RESTORED)
OWN_SOURCE = (Fault.REWIND_SKIPS, Fault.LOADED, Fault.REBUILT)  # the same, and in few storms


class Switch(Enum):
    """Rules that hold outside the two state machines, or that are policy methods of theirs."""

    # a tag may keep the ledger's snapshot when main's history is expired
    RETAINED_IS_NOT_ROLLED_BACK = "3 retained"
    HOLD_AT_UNOPENED_TABLE = "6"
    ONLY_OWNERS_COMMIT = "12"
    ONE_RANGE_PER_CYCLE = "13"
    COMPARE_AND_SWAP = "16"
    CHECK_ON_THE_BASE = "16 base"  # and not at the head that the MERGE began from
    PROPERTY_IN_VERSION = "16 property"
    PROPERTY_IN_THE_SWAP = "16 together"
    VALIDATE_DATA_FILES = "16 validation"  # a delete that was found on an older head must still fit
    # a reader that skips missing files would leave old rows in newer files
    START_OVER_IF_A_FILE_IS_GONE = "16 gone"
    DELETES_NAME_THEIR_FILES = "16 repeat"  # otherwise, nothing could be validated on another head
    FULL_MERGE_ON_ITS_HEAD = "16 full"  # its data files replace those of the head that it read
    LOOK_FOR_COMMIT_ID = "17"
    # a swap of unknown outcome may land late and refer to them
    KEEP_FILES_OF_A_SENT_SWAP = "17 files"
    KEEP_OLD_FILES_UNTIL_OWN_COMMIT = "18"
    RAISE_GENERATION = "21"
    WAIT_FOR_THE_DELETE = "29"
    ONLY_THE_PAIR_NAMES_THE_ROW = "30"
    OPEN_PAIRS_WITH_THE_COMMIT = "31"
    PROPERTY_NAMES_OPEN_PAIRS = "31 property"
    OTHERS_COMMITTED_BEFORE_IN_VAIN = "32"
    COMPACTION_VALIDATES_ITS_SNAPSHOT = "39"  # rows that were deleted since then would return
    COMPACTION_OF_ITS_EPOCH = "39 epoch"  # a newer epoch may have removed its files (rule 18)
    UPGRADE_REMOVES_SCRATCH = "40"
    # a branch whose MERGE changed nothing points at a snapshot of main
    UPGRADE_KEEPS_SNAPSHOTS_OF_MAIN = "40 main"
    # until then, a late swap of the previous version may refer to them
    SCRATCH_FILES_AFTER_THE_SWAP = "40 files"


Off = frozenset[Rule | Switch]


class ToldWorldError(Exception):
    """Rows are beyond reach, by somebody's act, and the connector says so instead of going on: a
    good end."""


class WrongWorldError(AssertionError):
    """A table holds too much or too little, a ledger does not chain, or the world does not come to
    rest."""


class Effect(Enum):
    """What a row does to a merge table."""

    WRITE = auto()  # of its key
    DELETE = auto()
    MOVE = auto()  # touches two keys: the old one goes, its key is written
    # touches all keys of its partition, which are those of its table of the database
    TRUNCATE = auto()
    LEAVE = auto()  # a delete whose row gets another key, in any partition
    ARRIVE = auto()  # the insert of that row, which does not send all of it


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    tables: tuple[str, ...]
    effect: Effect = Effect.WRITE
    old: str = ""  # of a move, and of an arrival
    pair: str = ""  # of both halves of a changed key
    at: int = 0  # place in the source
    alone: bool = False  # as staged: the other half was waited for in vain

    def apply(self, state: dict[str, T], last: T, gone: T | None = None) -> None:
        """Change what a table holds by key: `last` where it is written, `gone` (None: nothing)
        where it is removed."""
        for key in self.removed():
            state.pop(key, None)
            if gone is not None:
                state[key] = gone
        if self.effect in (Effect.WRITE, Effect.MOVE, Effect.ARRIVE):
            state[self.key] = last

    def removed(self) -> list[str]:
        match self.effect:
            case Effect.DELETE | Effect.LEAVE:
                return [self.key]
            case Effect.MOVE:
                return [self.old]
            case Effect.TRUNCATE:
                partition, _, _ = self.key.partition("-")
                return [f"{partition}-{number}" for number in range(KEYS)]
        return []

    def touched(self) -> list[str]:
        """The keys whose rows a merge removes, to write another in their place or none."""
        return [self.key, *self.removed()]
