"""In-memory state of the config topic, built from its records without I/O or threads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from connect_py.log_context import LEVELS
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage import compact_json

log = logging.getLogger(__name__)

ConnectorConfig: TypeAlias = Mapping[str, str | None]
TaskConfig: TypeAlias = Mapping[str, str | None]
INT32 = range(-(2**31), 2**31)

TARGET_STATE_PREFIX = "target-state-"
CONNECTOR_PREFIX = "connector-"
TASK_PREFIX = "task-"
COMMIT_PREFIX = "commit-"
RESTART_PREFIX = "restart-connector-"
FENCING_PREFIX = "tasks-fencing-"
SESSION_KEY = "session-key"
LOGGER_PREFIX = "logger-cluster-"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Key that workers use to sign requests to each other."""

    key: str  # base64
    algorithm: str
    creation_timestamp: int  # ms since the epoch

    def __repr__(self) -> str:
        return (
            f"SessionKey(algorithm={self.algorithm!r}, "
            f"creation_timestamp={self.creation_timestamp})"
        )


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """Request to restart a connector, optionally with its tasks or only its failed instances."""

    connector: str
    include_tasks: bool
    only_failed: bool

    @property
    def impact(self) -> int:
        """Priority of the request among the pending requests for the same connector."""
        return 2 * (not self.only_failed) + self.include_tasks


@dataclass(frozen=True, slots=True)
class ConnectorChanged:
    name: str


@dataclass(frozen=True, slots=True)
class ConnectorRemoved:
    name: str


@dataclass(frozen=True, slots=True)
class TasksChanged:
    name: str


@dataclass(frozen=True, slots=True)
class TargetStateChanged:
    name: str


@dataclass(frozen=True, slots=True)
class SessionKeyChanged:
    key: SessionKey


@dataclass(frozen=True, slots=True)
class RestartRequested:
    request: RestartRequest


@dataclass(frozen=True, slots=True)
class LoggerLevelRequested:
    logger: str
    level: str  # upper case


Change: TypeAlias = (
    ConnectorChanged
    | ConnectorRemoved
    | TasksChanged
    | TargetStateChanged
    | SessionKeyChanged
    | RestartRequested
    | LoggerLevelRequested
)


@dataclass(frozen=True, slots=True)
class ClusterConfigState:
    """Snapshot of the config topic's state."""

    offset: int = -1  # next offset to read, or -1 before the first record
    session_key: SessionKey | None = None
    configs: Mapping[str, ConnectorConfig] = field(default_factory=dict)
    target_states: Mapping[str, TargetState] = field(default_factory=dict)
    task_counts: Mapping[str, int] = field(default_factory=dict)
    task_configs: Mapping[ConnectorTaskId, TaskConfig] = field(default_factory=dict)
    applied_configs: Mapping[str, ConnectorConfig] = field(default_factory=dict)
    # number of task sets published so far, minus one
    generations: Mapping[str, int] = field(default_factory=dict)
    # offset of the current task set's commit record
    start_numbers: Mapping[str, int] = field(default_factory=dict)
    # offset of the record that contains the connector's configuration
    config_offsets: Mapping[str, int] = field(default_factory=dict)
    inconsistent: frozenset[str] = frozenset()
    task_count_records: Mapping[str, int] = field(default_factory=dict)
    pending_fencing: frozenset[str] = frozenset()
    # for each connector that was not stopped by a user, the reason it was stopped
    stop_reasons: Mapping[str, str] = field(default_factory=dict)

    def connectors(self) -> list[str]:
        """Return the sorted names of the configured connectors."""
        return sorted(self.configs)

    def target_state(self, name: str) -> TargetState:
        return self.target_states.get(name, TargetState.STARTED)

    def tasks(self, name: str) -> list[ConnectorTaskId]:
        """Return the current task set, or an empty list while its configurations are incomplete."""
        if name in self.inconsistent or name not in self.configs:
            return []
        return [ConnectorTaskId(name, number) for number in range(self.task_counts.get(name, 0))]

    def all_task_configs(self, name: str) -> list[TaskConfig]:
        """Return the configurations of `tasks(name)` in order."""
        return [self.task_configs[task] for task in self.tasks(name)]


def task_key(task: ConnectorTaskId) -> str:
    return f"{TASK_PREFIX}{task.connector}-{task.task}"


def target_state_value(state: TargetState, reason: str | None = None) -> dict[str, str]:
    """Return the value of a target state record.

    The value has two state fields. Readers that do not support STOPPED use the older field, which
    contains PAUSED for a stopped connector. Java workers ignore the reason.
    """
    older = TargetState.PAUSED if state is TargetState.STOPPED else state
    reason_field = {} if reason is None else {"reason": reason}
    return {"state": older.value, "state.v2": state.value, **reason_field}


class ConfigTable:
    """Builds the state of the config topic by applying its records in order. Not thread-safe."""

    def __init__(self) -> None:
        self._offset = -1
        self._session_key: SessionKey | None = None
        self._configs: dict[str, ConnectorConfig] = {}
        self._target_states: dict[str, TargetState] = {}
        self._task_counts: dict[str, int] = {}
        self._task_configs: dict[ConnectorTaskId, TaskConfig] = {}
        self._buffered: dict[str, dict[int, TaskConfig]] = {}
        self._applied: dict[str, ConnectorConfig] = {}
        self._generations: dict[str, int] = {}
        self._start_numbers: dict[str, int] = {}
        self._config_offsets: dict[str, int] = {}
        self._inconsistent: set[str] = set()
        self._task_count_records: dict[str, int] = {}
        self._pending_fencing: set[str] = set()
        self._stop_reasons: dict[str, str] = {}

    def snapshot(self) -> ClusterConfigState:
        return ClusterConfigState(
            self._offset,
            self._session_key,
            MappingProxyType(dict(self._configs)),
            MappingProxyType(dict(self._target_states)),
            MappingProxyType(dict(self._task_counts)),
            MappingProxyType(dict(self._task_configs)),
            MappingProxyType(dict(self._applied)),
            MappingProxyType(dict(self._generations)),
            MappingProxyType(dict(self._start_numbers)),
            MappingProxyType(dict(self._config_offsets)),
            frozenset(self._inconsistent),
            MappingProxyType(dict(self._task_count_records)),
            frozenset(self._pending_fencing),
            MappingProxyType(dict(self._stop_reasons)),
        )

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> list[Change]:
        """Apply one record and return the resulting changes.

        Malformed records and unknown keys are logged and skipped.
        """
        self._offset = offset + 1
        try:
            name = (key or b"").decode("utf-8")
            data = None if value is None else compact_json.decode(value)
        except ValueError as error:
            log.error(
                "config topic, offset %d: skipping record that is not valid JSON (%s)",
                offset,
                type(error).__name__,
            )
            return []
        if data is not None and not isinstance(data, dict):
            log.error(
                "config topic, key %s: skipping record, expected an object but found a %s",
                name,
                type(data).__name__,
            )
            return []
        for prefix, method in (
            (TARGET_STATE_PREFIX, self._target_state),
            (CONNECTOR_PREFIX, self._connector),
            (TASK_PREFIX, self._task),
            (COMMIT_PREFIX, self._commit),
            (RESTART_PREFIX, self._restart),
            (FENCING_PREFIX, self._task_count),
            (LOGGER_PREFIX, self._logger),
        ):
            if name.startswith(prefix):
                return method(name[len(prefix) :], data, offset)
        if name == SESSION_KEY:
            return self._session(data)
        log.error("config topic, offset %d: skipping unknown key %s", offset, name)
        return []

    def _target_state(self, name: str, data: dict[str, Any] | None, offset: int) -> list[Change]:
        if data is None:
            self._target_states.pop(name, None)
            self._stop_reasons.pop(name, None)
            # a null value resets the state, so an existing connector is restarted
            if name in self._configs:
                self._target_states[name] = TargetState.STARTED
            return []
        value = data.get("state.v2", data.get("state"))
        try:
            state = TargetState(value)
        except ValueError:
            log.error(
                "config topic: skipping unknown target state of connector %s: %r",
                name,
                value,
            )
            return []
        changed = self._target_states.get(name) is not state
        self._target_states[name] = state
        self._stop_reasons.pop(name, None)
        if state is TargetState.STOPPED and isinstance(reason := data.get("reason"), str):
            self._stop_reasons[name] = reason
        return [TargetStateChanged(name)] if changed and name in self._configs else []

    def _connector(self, name: str, data: dict[str, Any] | None, offset: int) -> list[Change]:
        if data is None:
            exists = name in self._configs
            self._forget(name)
            return [ConnectorRemoved(name)] if exists else []
        properties = _properties(data)
        if properties is None:
            log.error("config topic: skipping malformed configuration of connector %s", name)
            return []
        self._configs[name] = properties
        self._config_offsets[name] = offset
        self._target_states.setdefault(name, TargetState.STARTED)
        return [ConnectorChanged(name)]

    def _forget(self, name: str) -> None:
        """Remove a connector but retain its task count record.

        Its producers may still be running when a connector with the same name is created. The new
        connector must fence all of them.
        """
        for entries in (
            self._configs,
            self._config_offsets,
            self._task_counts,
            self._buffered,
            self._applied,
            self._generations,
            self._start_numbers,
        ):
            entries.pop(name, None)
        self._inconsistent.discard(name)
        self._pending_fencing.discard(name)
        self._drop_task_configs(name)

    def _drop_task_configs(self, name: str) -> None:
        for task in [task for task in self._task_configs if task.connector == name]:
            del self._task_configs[task]

    def _task(self, rest: str, data: dict[str, Any] | None, offset: int) -> list[Change]:
        connector, dash, number = rest.rpartition("-")
        properties = None if data is None else _properties(data)
        if not dash or not number.isdecimal() or int(number) not in INT32:
            log.error(
                "config topic: skipping task key %s without connector and number",
                TASK_PREFIX + rest,
            )
        elif properties is None:
            log.error(
                "config topic: skipping missing or malformed configuration of task %s",
                rest,
            )
        else:
            self._buffered.setdefault(connector, {})[int(number)] = properties
        return []

    def _commit(self, name: str, data: dict[str, Any] | None, offset: int) -> list[Change]:
        if name not in self._configs:
            # compaction has removed the configuration, so the remaining records are obsolete
            self._forget(name)
            return []
        count = _int32(data, "tasks")
        if count is None or count < 0:
            log.error("config topic: skipping commit of connector %s without a task count", name)
            return []
        buffered = self._buffered.pop(name, {})
        missing = [number for number in range(count) if number not in buffered]
        if missing:
            log.debug(
                "task configurations of connector %s are incomplete: %d of %d missing",
                name,
                len(missing),
                count,
            )
            self._inconsistent.add(name)
        else:
            self._drop_task_configs(name)
            for number in range(count):
                self._task_configs[ConnectorTaskId(name, number)] = buffered[number]
            self._applied[name] = self._configs[name]
            self._generations[name] = self._generations.get(name, -1) + 1
            self._start_numbers[name] = offset
            self._inconsistent.discard(name)
        self._task_counts[name] = count
        self._pending_fencing.add(name)
        return [TasksChanged(name)]

    def _restart(self, name: str, data: dict[str, Any] | None, offset: int) -> list[Change]:
        if data is None:
            return []
        flags = [data.get(flag, False) for flag in ("include-tasks", "only-failed")]
        if not all(isinstance(flag, bool) for flag in flags):
            log.error("config topic: skipping malformed restart request for connector %s", name)
            return []
        return [RestartRequested(RestartRequest(name, *flags))]

    def _task_count(self, name: str, data: dict[str, Any] | None, offset: int) -> list[Change]:
        count = _int32(data, "task-count")
        if count is None:
            log.error("config topic: skipping malformed task count record for connector %s", name)
            return []
        self._task_count_records[name] = count
        self._pending_fencing.discard(name)
        return []

    def _logger(self, name: str, data: dict[str, Any] | None, offset: int) -> list[Change]:
        level = None if data is None else data.get("level")
        if not isinstance(level, str) or level.strip().upper() not in LEVELS:
            log.warning("config topic: skipping missing or unknown level of logger %s", name)
            return []
        return [LoggerLevelRequested(name, level.strip().upper())]

    def _session(self, data: dict[str, Any] | None) -> list[Change]:
        key, algorithm, created = (
            (data or {}).get(part) for part in ("key", "algorithm", "creation-timestamp")
        )
        if (
            not isinstance(key, str)
            or not isinstance(algorithm, str)
            or not isinstance(created, int)
        ):
            log.error("config topic: skipping malformed session key")
            return []
        self._session_key = SessionKey(key, algorithm, created)
        return [SessionKeyChanged(self._session_key)]


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _int32(data: dict[str, Any] | None, field_name: str) -> int | None:
    value = (data or {}).get(field_name)
    return value if _is_integer(value) and value in INT32 else None


def _properties(data: dict[str, Any]) -> ConnectorConfig | None:
    properties = data.get("properties")
    if not isinstance(properties, dict):
        return None
    if not all(value is None or isinstance(value, str) for value in properties.values()):
        return None
    return MappingProxyType(properties)
