"""Faults, switches, and rows of the simulation of the sink's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from iceberg_protocol_rules import Rule

KEYS = 3  # per partition

RowId = tuple[str, int, int]  # topic id, partition, offset
T = TypeVar("T")


class Fault(Enum):
    """Faults that a storm may have. Each must occur in a run of many seeds."""

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


# Drawn from a separate random source, so that they do not change seeds without them.
APART = (Fault.REPLACE_BY_ITS_ROWS, Fault.RESTORED)
OWN_SOURCE = (Fault.REWIND_SKIPS, Fault.LOADED, Fault.REBUILT)  # the same; in few storms


class Switch(Enum):
    """Switches for rules that the simulated world applies instead of `ProtocolRules`."""

    # a tag may retain the snapshot of the ledger after the history of main has expired
    RETAINED_IS_NOT_ROLLED_BACK = "3 retained"
    HOLD_AT_UNOPENED_TABLE = "6"
    ONLY_OWNERS_COMMIT = "12"
    ONE_RANGE_PER_CYCLE = "13"
    COMPARE_AND_SWAP = "16"
    CHECK_ON_THE_BASE = "16 base"  # instead of on the head that the MERGE read
    PROPERTY_IN_VERSION = "16 property"
    PROPERTY_IN_THE_SWAP = "16 together"
    VALIDATE_DATA_FILES = "16 validation"  # deletes from an older head must still be valid
    # if the reader skipped missing files, old rows would remain in newer files
    START_OVER_IF_A_FILE_IS_GONE = "16 gone"
    DELETES_NAME_THEIR_FILES = "16 repeat"  # otherwise, they cannot be validated on another head
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


class ExpectedFailureError(Exception):
    """The connector fails as it should, because an external event made rows unavailable."""


class WrongWorldError(AssertionError):
    """A table has wrong rows, a ledger does not chain, or the world does not become idle."""


class Effect(Enum):
    """Effect of a row on a merge table."""

    WRITE = auto()
    DELETE = auto()
    MOVE = auto()  # removes the old key and writes the new one
    TRUNCATE = auto()  # removes all keys of its partition
    LEAVE = auto()  # delete of a row whose key changes, possibly to another partition
    ARRIVE = auto()  # insert of that row, which lacks a value


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    tables: tuple[str, ...]
    effect: Effect = Effect.WRITE
    old: str = ""  # for MOVE and ARRIVE
    pair: str = ""  # identifies both halves of a changed key
    at: int = 0  # position in the source
    alone: bool = False  # staged after the wait for the other half ended without it

    def apply(self, state: dict[str, T], last: T, removed: T | None = None) -> None:
        """Apply the row to the contents of a table by key.

        Written keys have the value `last`, and removed keys have the value `removed`, if any.
        """
        for key in self.removed():
            state.pop(key, None)
            if removed is not None:
                state[key] = removed
        if self.effect in (Effect.WRITE, Effect.MOVE, Effect.ARRIVE):
            state[self.key] = last

    def removed(self) -> list[str]:
        """Return the keys that the row removes."""
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
        """Return the keys whose existing rows a MERGE removes."""
        return [self.key, *self.removed()]
