"""`MaintenancePolicy`: when a table is compacted, expired and cleaned. Standard library only.

The same settings stand below `iceberg.ext.maintenance.` for a connector and below
`iceberg.table.<table>.maintenance.` for one table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from connectors.iceberg.config.keys import MAINTENANCE_PREFIX, TABLE_PREFIX
from connectors.iceberg.config.tag_schedule import parse_duration

MINUTES, HOURS, DAYS = 60_000, 3_600_000, 86_400_000
AUTO_SNAPSHOTS: Final = 1000  # the default of `snapshots` with `enabled=auto`
# the default of `snapshots` with `enabled=true` and in `connect-py maintain`
FULL_SNAPSHOTS: Final = 100
# table property; `auto` maintains tables that have it
CREATED_KEY: Final = "connect-py.created-by-sink"
# Properties of tables created by the sink. Each commit then deletes the oldest metadata file beyond
# the limit.
CREATED_PROPERTIES: Final[Mapping[str, str]] = {
    CREATED_KEY: "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_HOUR = r"([01]\d|2[0-3]):([0-5]\d)"
_TABLE_SETTING: Final = ".maintenance."  # between the name of a table and a setting
_WINDOW: Final = re.compile(f"{_HOUR}-{_HOUR}")


@dataclass(frozen=True, slots=True)
class HourWindow:
    """A time of each day, in UTC; it may run over midnight."""

    begin: int  # minutes since midnight
    end: int

    def holds(self, timestamp_ms: int) -> bool:
        """Whether this time lies in it."""
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        minute = at.hour * 60 + at.minute
        if self.begin <= self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


class MaintenanceMode(Enum):
    """Value of `enabled`: which tables the sink maintains, and how."""

    # compaction and snapshot expiration of tables created by the sink, in the driver of the commits
    AUTO = "auto"
    TRUE = "true"  # the whole policy on every table, in a separate driver
    FALSE = "false"


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """Maintenance settings of one table, with defaults."""

    mode: MaintenanceMode = MaintenanceMode.AUTO
    window: HourWindow | None = None  # None: at all hours
    interval_ms: int = MINUTES
    budget_ms: int = 10 * MINUTES
    small_files: int = 10
    delete_ratio: float = 0.1
    delete_files: int = 50
    target_file_size_bytes: int | None = None  # None: the table's
    snapshots: int | None = None  # None: `AUTO_SNAPSHOTS` or `FULL_SNAPSHOTS`
    keep_ms: int = 5 * DAYS
    keep_snapshots: int = 20
    manifests: int = 100
    orphan_age_ms: int | None = None  # None: orphan files stay
    orphan_dry_run: bool = False
    tiering_age_ms: int | None = None  # None: files stay where they are
    tiering_location: str = ""  # empty: `cold` in the table's location
    tiering_storage_class: str = ""  # of S3; empty: the storage's default
    operations_table: str | None = ""  # empty: `<table>_operations`; None: none

    @property
    def is_full(self) -> bool:
        """Return True if the whole policy applies, in a separate driver."""
        return self.mode is MaintenanceMode.TRUE

    @property
    def is_auto(self) -> bool:
        """Return True if the driver of the commits maintains the table, provided that the sink
        created it."""
        return self.mode is MaintenanceMode.AUTO

    @property
    def full_snapshots(self) -> int:
        """Return the number of snapshots above which the whole policy expires old snapshots; 0:
        never."""
        return FULL_SNAPSHOTS if self.snapshots is None else self.snapshots

    @property
    def auto_snapshots(self) -> int:
        """Return the number of snapshots above which `auto` expires the oldest at any age; 0:
        never."""
        return AUTO_SNAPSHOTS if self.snapshots is None else self.snapshots


def created_properties(mode: MaintenanceMode) -> Mapping[str, str]:
    """Return the maintenance properties of a new table."""
    return {CREATED_KEY: "true"} if mode is MaintenanceMode.FALSE else CREATED_PROPERTIES


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """One setting as users write it."""

    name: str  # below the prefix
    member: str  # of `MaintenancePolicy`
    default: str
    parse: Callable[[str], Any]
    doc: str

    @property
    def applies_to_auto(self) -> bool:
        """Return True if the setting has an effect with `enabled=auto`."""
        return self.name in _AUTO_SETTINGS


# The other settings concern actions of the whole policy, or its separate driver.
_AUTO_SETTINGS: Final = frozenset(
    {
        "enabled",
        "window",
        "small-files",
        "delete-ratio",
        "target-file-size-bytes",
        "snapshots",
        "keep",
        "keep-snapshots",
    }
)


def _mode(text: str) -> MaintenanceMode:
    value = text.strip().lower()
    if value not in {mode.value for mode in MaintenanceMode}:
        raise ValueError(f"invalid value {value!r}: expected auto, true, or false")
    return MaintenanceMode(value)


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text} is neither true nor false")
    return text.strip().lower() == "true"


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text} is no number of 0 or more")
    return int(text)


def _optional_count(text: str) -> int | None:
    return _count(text) if text.strip() else None


def _positive(text: str) -> int:
    if _count(text) < 1:
        raise ValueError("must be at least 1")
    return int(text)


def _ratio(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise ValueError(f"{text} is not between 0 and 1")
    return float(text)


def _window(text: str) -> HourWindow | None:
    if not text.strip():
        return None
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text} is no window such as 22:00-06:00")
    begin_hour, begin_minute, end_hour, end_minute = map(int, found.groups())
    begin, end = begin_hour * 60 + begin_minute, end_hour * 60 + end_minute
    if begin == end:
        raise ValueError(f"{text} begins when it ends")
    return HourWindow(begin, end)


def _size(text: str) -> int | None:
    return _positive(text) if text.strip() else None


def _orphan_age(text: str) -> int | None:
    if not text.strip():
        return None
    age = parse_duration(text)
    if age < DAYS:  # a file of a commit under way belongs to no snapshot yet
        raise ValueError("must be at least 1d: younger files may belong to a commit under way")
    return age


def _age(text: str) -> int | None:
    return parse_duration(text) if text.strip() else None


def _operations(text: str) -> str | None:
    return None if text.strip() == "none" else text.strip()


SETTINGS: Final = (
    PolicySetting(
        "enabled",
        "mode",
        "auto",
        _mode,
        "`auto`: compact tables created by the sink and expire their old snapshots, between "
        "commits and in the same Spark driver. `true`: apply the whole policy to all tables, in a "
        "separate driver. `false`: no maintenance.",
    ),
    PolicySetting(
        "window",
        "window",
        "",
        _window,
        "Hours of the day in UTC, as `22:00-06:00`, in which it begins. Unset: all.",
    ),
    PolicySetting(
        "interval",
        "interval_ms",
        "1m",
        parse_duration,
        "How often a table with new commits is looked at.",
    ),
    PolicySetting(
        "budget", "budget_ms", "10m", parse_duration, "Time that one round of a table may take."
    ),
    PolicySetting(
        "small-files",
        "small_files",
        "10",
        _count,
        "Data files of one partition below 75 % of the target size, from which on they are "
        "compacted. 0: never.",
    ),
    PolicySetting(
        "delete-ratio",
        "delete_ratio",
        "0.1",
        _ratio,
        "Deleted rows that data files still hold, as a share of all, from which on they are "
        "rewritten. 0: never.",
    ),
    PolicySetting(
        "delete-files",
        "delete_files",
        "50",
        _count,
        "Position delete files from which on they are compacted, in tables of format 2. 0: never.",
    ),
    PolicySetting(
        "target-file-size-bytes",
        "target_file_size_bytes",
        "",
        _size,
        "Bytes of compacted data files. Unset: the table's property "
        "`write.target-file-size-bytes`.",
    ),
    PolicySetting(
        "snapshots",
        "snapshots",
        "",
        _optional_count,
        "Number of snapshots above which old snapshots expire. 0: never. Unset: "
        f"{FULL_SNAPSHOTS}; with `enabled=auto`, {AUTO_SNAPSHOTS}, above which snapshots expire "
        "before they reach the age `keep`, but not within an hour.",
    ),
    PolicySetting(
        "keep",
        "keep_ms",
        "5d",
        parse_duration,
        "Age up to which snapshots are kept; `snapshots` may overrule it.",
    ),
    PolicySetting(
        "keep-snapshots",
        "keep_snapshots",
        "20",
        _positive,
        "Newest snapshots that are never expired.",
    ),
    PolicySetting(
        "manifests",
        "manifests",
        "100",
        _count,
        "Manifests from which on they are written anew, in fewer. 0: never.",
    ),
    PolicySetting(
        "orphan-age",
        "orphan_age_ms",
        "",
        _orphan_age,
        "Age from which on files that no snapshot needs are removed, at least `1d`; once a day. "
        "Unset: never.",
    ),
    PolicySetting("orphan-dry-run", "orphan_dry_run", "false", _boolean, "Only count such files."),
    PolicySetting(
        "tiering-age",
        "tiering_age_ms",
        "",
        _age,
        "Age from which on the files of a partition of time move to another place, such as `90d`. "
        "Unset: never.",
    ),
    PolicySetting(
        "tiering-location",
        "tiering_location",
        "",
        str.strip,
        "Folder that gets them, as a URI; a folder of its own per table. Unset: `cold` in the "
        "table's location.",
    ),
    PolicySetting(
        "tiering-storage-class",
        "tiering_storage_class",
        "",
        str.strip,
        "Storage class of S3 with which they are written, such as `GLACIER_IR`. Unset: the "
        "default.",
    ),
    PolicySetting(
        "operations-table",
        "operations_table",
        "",
        _operations,
        "Table that gets a row for each thing done. Unset: the table's name and `_operations`. "
        "`none`: no such table.",
    ),
)
assert {setting.name for setting in SETTINGS} >= _AUTO_SETTINGS
assert {setting.member for setting in SETTINGS} == {
    field.name for field in fields(MaintenancePolicy)
}


def keys_without_effect(props: Mapping[str, str]) -> list[str]:
    """Return the keys of a connector that have no effect because their tables have `enabled=auto`.

    A key of the connector has an effect if any table has `enabled=true`.
    """
    connector_keys = {key: key.removeprefix(MAINTENANCE_PREFIX) for key in props}
    table_keys = {
        key: key.removeprefix(TABLE_PREFIX).split(_TABLE_SETTING, 1)
        for key in props
        if key.startswith(TABLE_PREFIX) and _TABLE_SETTING in key
    }
    modes: dict[str, str] = {}  # by table, also by the last part of its name
    for key, (table, name) in table_keys.items():
        if name == "enabled":
            mode = props[key].strip().lower()
            modes[table] = mode
            modes.setdefault(table.rpartition(".")[2], mode)
    auto = MaintenanceMode.AUTO.value
    default_mode = props.get(MAINTENANCE_PREFIX + "enabled", auto).strip().lower()
    full = MaintenanceMode.TRUE.value
    ignored = {setting.name for setting in SETTINGS if not setting.applies_to_auto}
    keys: list[str] = []
    if default_mode == auto and full not in modes.values():
        keys += [key for key, name in connector_keys.items() if name in ignored]
    for key, (table, name) in table_keys.items():
        if name in ignored and modes.get(table, default_mode) == auto:
            keys.append(key)
    return keys
