"""`MaintenancePolicy`: when to run compaction, expire snapshots, and remove or move files.

The prefix of the connector keys is `iceberg.ext.maintenance.`, and the prefix of the table keys is
`iceberg.table.<table>.maintenance.`.

Standard library only.
"""

# ruff: noqa: RUF009 - the default of each attribute is a call that declares its setting

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
AUTO_SNAPSHOTS: Final = 1000  # default for `snapshots` with `enabled=auto`
# default for `snapshots` with `enabled=true` and in `connect-py maintain`
FULL_SNAPSHOTS: Final = 100
# table property that marks tables created by the sink, which `auto` maintains
CREATED_KEY: Final = "connect-py.created-by-sink"
# Properties of tables created by the sink. With these properties, each commit deletes the oldest
# metadata file if there are more files than the limit.
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
    """Daily time window in UTC. It may span midnight."""

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
    """Value of `enabled`, which determines the tables that the sink maintains."""

    # compaction and snapshot expiration for tables created by the sink, in the driver that commits
    AUTO = "auto"
    TRUE = "true"  # the whole policy, for every table, in a separate driver
    FALSE = "false"


def created_properties(mode: MaintenanceMode) -> Mapping[str, str]:
    """Return the maintenance properties for a new table."""
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
        raise ValueError(f"invalid window {string!r}: the start and the end must differ")
    return HourWindow(begin, end)


def _orphan_age(string: str) -> int:
    age_ms = parse_duration(string)
    if age_ms < DAYS:  # the files of a commit in progress are not part of any snapshot yet
        raise ValueError("must be at least 1d; younger files may be part of a commit in progress")
    return age_ms


def _operations_table(string: str) -> str | None:
    return None if string.strip() == "none" else string.strip()


def _optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a parser that returns None for a blank string."""
    return lambda string: parse(string) if string.strip() else None


def _setting(
    name: str, default: str, parse: Callable[[str], Any], doc: str, *, applies_to_auto: bool = False
) -> Any:
    """Declare a setting and the policy attribute for its value."""
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
    """Maintenance settings for one table, with defaults."""

    mode: MaintenanceMode = _setting(
        "enabled",
        "auto",
        _mode,
        "`auto` compacts tables created by the sink and expires their old snapshots, between "
        "commits and in the same Spark driver. `true` applies the whole policy to all tables, in a "
        "separate driver. `false` disables maintenance.",
        applies_to_auto=True,
    )
    window: HourWindow | None = _setting(
        "window",
        "",
        _optional(_window),
        "Time of day, in UTC, during which maintenance may start, such as `22:00-06:00`. If unset, "
        "it may start at any time.",
        applies_to_auto=True,
    )
    interval_ms: int = _setting(
        "interval",
        "1m",
        parse_duration,
        "Interval between inspections of a table with new commits.",
    )
    budget_ms: int = _setting(
        "budget", "10m", parse_duration, "Maximum duration of one maintenance run on a table."
    )
    small_files: int = _setting(
        "small-files",
        "10",
        _count,
        "Minimum number of data files smaller than 75% of the target size that triggers the "
        "compaction of a partition. 0 disables this trigger.",
        applies_to_auto=True,
    )
    delete_ratio: float = _setting(
        "delete-ratio",
        "0.1",
        _ratio,
        "Minimum ratio of deleted rows to all rows in data files that triggers a rewrite of data "
        "files. 0 disables this trigger.",
        applies_to_auto=True,
    )
    delete_files: int = _setting(
        "delete-files",
        "50",
        _count,
        "Minimum number of position delete files that triggers their compaction in tables of "
        "format version 2. 0 disables this trigger.",
    )
    target_file_size_bytes: int | None = _setting(  # the table property applies if None
        "target-file-size-bytes",
        "",
        _optional(_positive),
        "Size of compacted data files, in bytes. If unset, the table property "
        "`write.target-file-size-bytes` applies.",
        applies_to_auto=True,
    )
    snapshots: int | None = _setting(  # `AUTO_SNAPSHOTS` or `FULL_SNAPSHOTS` if None
        "snapshots",
        "",
        _optional(_count),
        "Number of snapshots above which old snapshots expire. 0 disables expiration. The default "
        f"is {AUTO_SNAPSHOTS} with `enabled=auto` and {FULL_SNAPSHOTS} otherwise. With "
        "`enabled=auto`, excess snapshots expire before they reach the age `keep`, but not within "
        "an hour of their creation.",
        applies_to_auto=True,
    )
    keep_ms: int = _setting(
        "keep",
        "5d",
        parse_duration,
        "Minimum age at which snapshots expire. With `enabled=auto`, snapshots in excess of "
        "`snapshots` may expire earlier.",
        applies_to_auto=True,
    )
    keep_snapshots: int = _setting(
        "keep-snapshots",
        "20",
        _positive,
        "Number of most recent snapshots that never expire.",
        applies_to_auto=True,
    )
    manifests: int = _setting(
        "manifests",
        "100",
        _count,
        "Minimum number of manifests that triggers a rewrite into fewer manifests. 0 disables this "
        "trigger.",
    )
    orphan_age_ms: int | None = _setting(  # orphan files are not removed if None
        "orphan-age",
        "",
        _optional(_orphan_age),
        "Minimum age at which orphan files, which are not part of any snapshot, are removed. Must "
        "be at least `1d`. The search runs once a day. If unset, orphan files are not removed.",
    )
    orphan_dry_run: bool = _setting(
        "orphan-dry-run",
        "false",
        _boolean,
        "Whether to count orphan files instead of removing them.",
    )
    tiering_age_ms: int | None = _setting(  # files are not moved if None
        "tiering-age",
        "",
        _optional(parse_duration),
        "Minimum age at which the files of a time partition are moved to another location, such as "
        "`90d`. If unset, files are not moved.",
    )
    tiering_location: str = _setting(  # `cold` in the table's location if empty
        "tiering-location",
        "",
        str.strip,
        "URI of the folder to which the files of time partitions are moved. Each table has a "
        "separate subfolder. If unset, the folder is `cold` in the location of the table.",
    )
    tiering_storage_class: str = _setting(  # the storage's default if empty
        "tiering-storage-class",
        "",
        str.strip,
        "S3 storage class of the moved files, such as `GLACIER_IR`. If unset, the default storage "
        "class is used.",
    )
    # `<table>_operations` if empty; no operations table if None
    operations_table: str | None = _setting(
        "operations-table",
        "",
        _operations_table,
        "Table that receives one row for each maintenance action. If unset, its name is the name "
        "of the maintained table followed by `_operations`. `none` disables the table.",
    )

    @property
    def is_full(self) -> bool:
        """True if the whole policy applies, in a separate driver."""
        return self.mode is MaintenanceMode.TRUE

    @property
    def is_auto(self) -> bool:
        """True if the driver that commits to the table also maintains it.

        It maintains only tables that the sink created.
        """
        return self.mode is MaintenanceMode.AUTO

    @property
    def full_snapshots(self) -> int:
        """Number of snapshots above which `enabled=true` expires some. 0 disables expiration."""
        return FULL_SNAPSHOTS if self.snapshots is None else self.snapshots

    @property
    def auto_snapshots(self) -> int:
        """Number of snapshots above which `enabled=auto` expires the oldest regardless of `keep`.

        0 disables expiration.
        """
        return AUTO_SNAPSHOTS if self.snapshots is None else self.snapshots


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """Definition of one setting."""

    member: str  # attribute of `MaintenancePolicy`
    name: str  # key without the prefix
    default: str
    parse: Callable[[str], Any]
    doc: str
    applies_to_auto: bool  # whether the setting has an effect with `enabled=auto`


SETTINGS: Final = tuple(
    PolicySetting(member.name, **member.metadata) for member in fields(MaintenancePolicy)
)


def keys_without_effect(props: Mapping[str, str]) -> list[str]:
    """Return the keys that have no effect because their tables have `enabled=auto`.

    A connector key has an effect if any table has `enabled=true`.
    """
    connector_keys = {key: key.removeprefix(MAINTENANCE_PREFIX) for key in props}
    table_keys = {
        key: key.removeprefix(TABLE_PREFIX).split(_TABLE_SETTING, 1)
        for key in props
        if key.startswith(TABLE_PREFIX) and _TABLE_SETTING in key
    }
    modes: dict[str, str] = {}  # by the full name of each table and by the last part of that name
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
