"""`MaintenancePolicy`: when a table is compacted, expired, and cleaned. Standard library only.

The settings are keys of a connector, below `iceberg.ext.maintenance.`, and of single tables, below
`iceberg.table.<table>.maintenance.`.
"""

# ruff: noqa: RUF009 - a call declares the setting whose value an attribute holds

# ruff: noqa: RUF009 - a call declares the setting whose value an attribute holds

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, TypeVar

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
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HourWindow:
    """A time of each day, in UTC. It may include midnight."""

    begin: int  # minutes since midnight
    end: int

    def holds(self, timestamp_ms: int) -> bool:
        """Return True if the window includes this time."""
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        minute = time.hour * 60 + time.minute
        if self.begin <= self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


class MaintenanceMode(Enum):
    """Value of `enabled`: which tables the sink maintains, and how."""

    # compaction and snapshot expiration of tables created by the sink, in the driver of the commits
    AUTO = "auto"
    TRUE = "true"  # the whole policy on every table, in a separate driver
    FALSE = "false"


def created_properties(mode: MaintenanceMode) -> Mapping[str, str]:
    """Return the maintenance properties of a new table."""
    return {CREATED_KEY: "true"} if mode is MaintenanceMode.FALSE else CREATED_PROPERTIES


def _mode(string: str) -> MaintenanceMode:
    value = string.strip().lower()
    if value not in {mode.value for mode in MaintenanceMode}:
        raise ValueError(f"invalid value {value!r}: expected auto, true, or false")
    return MaintenanceMode(value)


def _boolean(string: str) -> bool:
    value = string.strip().lower()
    if value not in ("true", "false"):
        raise ValueError(f"invalid value {value!r}: expected true or false")
    return value == "true"


def _count(string: str) -> int:
    if not string.strip().isdecimal():
        raise ValueError(f"invalid value {string!r}: expected an integer of at least 0")
    return int(string)


def _positive(string: str) -> int:
    if _count(string) < 1:
        raise ValueError("must be at least 1")
    return int(string)


def _ratio(string: str) -> float:
    if not 0 <= float(string) <= 1:
        raise ValueError(f"invalid value {string!r}: expected a number between 0 and 1")
    return float(string)


def _window(string: str) -> HourWindow:
    match = _WINDOW.fullmatch(string.strip())
    if match is None:
        raise ValueError(f"invalid window {string!r}: expected a value such as 22:00-06:00")
    begin_hour, begin_minute, end_hour, end_minute = map(int, match.groups())
    begin, end = begin_hour * 60 + begin_minute, end_hour * 60 + end_minute
    if begin == end:
        raise ValueError(f"invalid window {string!r}: it ends when it begins")
    return HourWindow(begin, end)


def _orphan_age(string: str) -> int:
    age_ms = parse_duration(string)
    if age_ms < DAYS:  # no snapshot refers to the files of a commit in progress yet
        raise ValueError("must be at least 1d: younger files may belong to a commit in progress")
    return age_ms


def _operations_table(string: str) -> str | None:
    return None if string.strip() == "none" else string.strip()


def _optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a parser whose result for an empty string is None."""
    return lambda string: parse(string) if string.strip() else None


def _setting(
    name: str, default: str, parse: Callable[[str], Any], doc: str, *, applies_to_auto: bool = False
) -> Any:
    """Declare a setting and the attribute of the policy that holds its value."""
    metadata = {
        "name": name,
        "default": default,
        "parse": parse,
        "doc": doc,
        "applies_to_auto": applies_to_auto,
    }
    return field(default=parse(default), metadata=metadata)


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """Maintenance settings of one table, with defaults."""

    mode: MaintenanceMode = _setting(
        "enabled",
        "auto",
        _mode,
        "`auto`: compact tables created by the sink and expire their old snapshots, between "
        "commits and in the same Spark driver. `true`: apply the whole policy to all tables, in a "
        "separate driver. `false`: no maintenance.",
        applies_to_auto=True,
    )
    window: HourWindow | None = _setting(
        "window",
        "",
        _optional(_window),
        "Hours of the day, in UTC, in which maintenance starts, such as `22:00-06:00`. Unset: all "
        "hours.",
        applies_to_auto=True,
    )
    interval_ms: int = _setting(
        "interval", "1m", parse_duration, "Interval at which a table with new commits is inspected."
    )
    budget_ms: int = _setting(
        "budget", "10m", parse_duration, "Maximum duration of one round of actions on a table."
    )
    small_files: int = _setting(
        "small-files",
        "10",
        _count,
        "Number of data files of one partition below 75 % of the target size from which they are "
        "compacted. 0: never.",
        applies_to_auto=True,
    )
    delete_ratio: float = _setting(
        "delete-ratio",
        "0.1",
        _ratio,
        "Ratio of deleted rows to all rows in data files from which data files are rewritten. 0: "
        "never.",
        applies_to_auto=True,
    )
    delete_files: int = _setting(
        "delete-files",
        "50",
        _count,
        "Number of position delete files from which they are compacted, in tables of format "
        "version 2. 0: never.",
    )
    target_file_size_bytes: int | None = _setting(  # None: the size of the table
        "target-file-size-bytes",
        "",
        _optional(_positive),
        "Size of compacted data files, in bytes. Unset: the table property "
        "`write.target-file-size-bytes`.",
        applies_to_auto=True,
    )
    snapshots: int | None = _setting(  # None: `AUTO_SNAPSHOTS` or `FULL_SNAPSHOTS`
        "snapshots",
        "",
        _optional(_count),
        "Number of snapshots above which old snapshots expire. 0: never. Unset: "
        f"{FULL_SNAPSHOTS}; with `enabled=auto`, {AUTO_SNAPSHOTS}, above which snapshots expire "
        "before they reach the age `keep`, but not within an hour.",
        applies_to_auto=True,
    )
    keep_ms: int = _setting(
        "keep",
        "5d",
        parse_duration,
        "Age up to which snapshots are retained, unless there are more than `snapshots`.",
        applies_to_auto=True,
    )
    keep_snapshots: int = _setting(
        "keep-snapshots",
        "20",
        _positive,
        "Number of the newest snapshots, which never expire.",
        applies_to_auto=True,
    )
    manifests: int = _setting(
        "manifests",
        "100",
        _count,
        "Number of manifests from which they are rewritten into fewer manifests. 0: never.",
    )
    orphan_age_ms: int | None = _setting(  # None: orphan files are not removed
        "orphan-age",
        "",
        _optional(_orphan_age),
        "Age from which files without a snapshot are removed, at least `1d`. They are searched for "
        "once a day. Unset: never.",
    )
    orphan_dry_run: bool = _setting(
        "orphan-dry-run", "false", _boolean, "Whether to only count these files."
    )
    tiering_age_ms: int | None = _setting(  # None: files are not moved
        "tiering-age",
        "",
        _optional(parse_duration),
        "Age from which the files of a time partition are moved to another location, such as "
        "`90d`. Unset: never.",
    )
    tiering_location: str = _setting(  # empty: `cold` in the location of the table
        "tiering-location",
        "",
        str.strip,
        "URI of the folder to which they are moved. Each table has a separate folder in it. Unset: "
        "`cold` in the location of the table.",
    )
    tiering_storage_class: str = _setting(  # of S3; empty: the default of the storage
        "tiering-storage-class",
        "",
        str.strip,
        "S3 storage class of the moved files, such as `GLACIER_IR`. Unset: the default.",
    )
    operations_table: str | None = _setting(  # empty: `<table>_operations`; None: none
        "operations-table",
        "",
        _operations_table,
        "Table that receives one row for each action. Unset: the name of the table, followed by "
        "`_operations`. `none`: no such table.",
    )

    @property
    def is_full(self) -> bool:
        """True if the whole policy applies, in a separate driver."""
        return self.mode is MaintenanceMode.TRUE

    @property
    def is_auto(self) -> bool:
        """True if the driver of the commits maintains the table, if the sink created it."""
        return self.mode is MaintenanceMode.AUTO

    @property
    def full_snapshots(self) -> int:
        """Number of snapshots above which the whole policy expires old snapshots; 0: never."""
        return FULL_SNAPSHOTS if self.snapshots is None else self.snapshots

    @property
    def auto_snapshots(self) -> int:
        """Number of snapshots above which `auto` expires the oldest at any age; 0: never."""
        return AUTO_SNAPSHOTS if self.snapshots is None else self.snapshots


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """One setting as users write it."""

    member: str  # attribute of `MaintenancePolicy`
    name: str  # below the prefix
    default: str
    parse: Callable[[str], Any]
    doc: str
    applies_to_auto: bool  # the others concern the whole policy or its separate driver


SETTINGS: Final = tuple(
    PolicySetting(member.name, **member.metadata) for member in fields(MaintenancePolicy)
)


def keys_without_effect(props: Mapping[str, str]) -> list[str]:
    """Return the keys of a connector without effect, because their tables have `enabled=auto`.

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
