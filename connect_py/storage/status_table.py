"""In-memory state of the status topic, built from its records without I/O or threads.

It contains the statuses of connectors and tasks, and the topics that they use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from connect_py.model import ConnectorTaskId, State, Status, Waiting
from connect_py.storage import compact_json

log = logging.getLogger(__name__)

StatusId: TypeAlias = str | ConnectorTaskId  # a connector's name, or a task

TASK_PREFIX = "status-task-"
CONNECTOR_PREFIX = "status-connector-"
TOPIC_PREFIX = "status-topic-"
TOPIC_SEPARATOR = ":connector-"
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic that a connector has used, and the task that used it first."""

    topic: str
    connector: str
    task: int
    discover_timestamp: int  # ms since the epoch


def status_key(id: StatusId) -> bytes:  # noqa: A002 - Connect's term
    if isinstance(id, ConnectorTaskId):
        return f"{TASK_PREFIX}{id.connector}-{id.task}".encode()
    return f"{CONNECTOR_PREFIX}{id}".encode()


def status_value(status: Status) -> bytes | None:
    """Return the value of a status record, which is a tombstone (None) for DESTROYED."""
    if status.state is State.DESTROYED:
        return None
    members: dict[str, Any] = {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }
    waiting = status.waiting
    if waiting is not None:  # an extension that Java workers ignore
        members["waiting"] = {
            "for": waiting.what,
            "since": waiting.since_ms,
            "reason": waiting.reason,
        }
    if status.warnings:  # an extension that Java workers ignore
        members["warnings"] = status.warnings
    return compact_json.encode(members)


def topic_key(topic: str, connector: str) -> bytes:
    return f"{TOPIC_PREFIX}{topic}{TOPIC_SEPARATOR}{connector}".encode()


def topic_value(status: TopicStatus) -> bytes:
    return compact_json.encode(
        {
            "topic": {
                "name": status.topic,
                "connector": status.connector,
                "task": status.task,
                "discoverTimestamp": status.discover_timestamp,
            }
        }
    )


class StatusTable:
    """Builds the state of the status topic by applying its records. Not thread-safe.

    A key normally occurs in one partition. If it occurs in two partitions, the record with the
    latest timestamp wins.
    """

    def __init__(self) -> None:
        self._statuses: dict[StatusId, Status] = {}
        self._numbers: dict[str, set[int]] = {}  # by connector: tasks that have a status
        self._topics: dict[str, dict[str, TopicStatus]] = {}
        self._positions: dict[bytes, tuple[int, int]] = {}  # key -> partition, timestamp
        self.highest_generation = 0

    def get(self, id: StatusId) -> Status | None:  # noqa: A002 - Connect's term
        return self._statuses.get(id)

    def tasks(self, connector: str) -> dict[int, Status]:
        """Return the statuses of a connector's tasks by task number, in ascending order."""
        return {
            number: self._statuses[ConnectorTaskId(connector, number)]
            for number in sorted(self._numbers.get(connector, ()))
        }

    def ids(self) -> Iterator[StatusId]:
        """Return all IDs that have a status."""
        return iter(list(self._statuses))

    def topics(self, connector: str) -> list[TopicStatus]:
        return list(self._topics.get(connector, {}).values())

    def has_topic(self, connector: str, topic: str) -> bool:
        return topic in self._topics.get(connector, ())

    def permits_safe_put(self, id: StatusId, status: Status) -> bool:  # noqa: A002 - Connect's term
        """Return True if UNASSIGNED or FAILED may be written.

        They may not be written if a newer owner has published a status.
        """
        current = self._statuses.get(id)
        return (
            current is None
            or current.worker_id == status.worker_id
            or current.generation <= status.generation
        )

    def apply(self, partition: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. Malformed records and unknown keys are logged and skipped."""
        try:
            name = (key or b"").decode("utf-8")
            data = None if value is None else compact_json.decode(value)
        except ValueError as error:
            log.warning(
                "status topic: skipping record that is not valid JSON (%s)", type(error).__name__
            )
            return
        if self._is_stale_copy(key or b"", partition, timestamp):
            return
        if name.startswith(TASK_PREFIX):
            connector, dash, number = name[len(TASK_PREFIX) :].rpartition("-")
            if dash and connector and number.isdecimal() and int(number) <= INT32_MAX:
                self._apply_status(ConnectorTaskId(connector, int(number)), name, data)
            else:
                log.warning("status topic: skipping task key %s without connector and number", name)
        elif name.startswith(CONNECTOR_PREFIX) and len(name) > len(CONNECTOR_PREFIX):
            self._apply_status(name[len(CONNECTOR_PREFIX) :], name, data)
        elif name.startswith(TOPIC_PREFIX):
            self._apply_topic(name, data)
        else:
            log.warning("status topic: skipping unknown key %s", name)

    def _is_stale_copy(self, key: bytes, partition: int, timestamp: int) -> bool:
        other = self._positions.get(key)
        if other is not None and other[0] != partition:
            log.warning(
                "status topic: key %r occurs in partitions %d and %d; the latest wins",
                key,
                other[0],
                partition,
            )
            if timestamp < other[1]:
                return True
        self._positions[key] = (partition, timestamp)
        return False

    def _apply_status(self, id: StatusId, name: str, data: Any) -> None:  # noqa: A002 - Connect's term
        if data is None:
            self._statuses.pop(id, None)
            if (
                isinstance(id, ConnectorTaskId)
                and (numbers := self._numbers.get(id.connector)) is not None
            ):
                numbers.discard(id.task)
                if not numbers:
                    del self._numbers[id.connector]
            return
        status = _status(data)
        if status is None:
            log.warning("status topic: skipping malformed value of %s", name)
            return
        self.highest_generation = max(self.highest_generation, status.generation)
        current = self._statuses.get(id)
        if (
            isinstance(id, ConnectorTaskId)
            and status.state is State.UNASSIGNED
            and current is not None
            and current.state is State.RUNNING
            and current.generation >= status.generation
        ):
            return  # the previous owner's last status arrived after the new owner had started
        self._statuses[id] = status
        if isinstance(id, ConnectorTaskId):
            self._numbers.setdefault(id.connector, set()).add(id.task)

    def _apply_topic(self, name: str, data: Any) -> None:
        topic, separator, connector = name[len(TOPIC_PREFIX) :].partition(TOPIC_SEPARATOR)
        if not separator or not topic or not connector:
            log.warning("status topic: skipping topic key %s without topic and connector", name)
        elif data is None:
            self._topics.get(connector, {}).pop(topic, None)
        else:
            inner = data.get("topic") if isinstance(data, dict) else None
            task, since = (
                (inner.get("task"), inner.get("discoverTimestamp"))
                if isinstance(inner, dict)
                else (None, None)
            )
            if not isinstance(task, int) or not isinstance(since, int):
                log.warning("status topic: skipping malformed value of %s", name)
                return
            self._topics.setdefault(connector, {})[topic] = TopicStatus(
                topic, connector, task, since
            )


def _status(data: Any) -> Status | None:
    if not isinstance(data, dict):
        return None
    state, trace, worker_id, generation, version = (
        data.get(part) for part in ("state", "trace", "worker_id", "generation", "version")
    )
    if (
        not isinstance(worker_id, str)
        or not isinstance(generation, int)
        or abs(generation) > INT32_MAX
    ):
        return None
    try:
        waiting, warnings = _waiting(data.get("waiting")), _warnings(data.get("warnings"))
        return Status(
            State(state), worker_id, generation, trace or None, version, waiting, warnings
        )
    except ValueError:
        return None


def _warnings(data: Any) -> tuple[str, ...]:
    return tuple(each for each in data if isinstance(each, str)) if isinstance(data, list) else ()


def _waiting(data: Any) -> Waiting | None:
    if not isinstance(data, dict):
        return None
    subject, since, reason = data.get("for"), data.get("since"), data.get("reason")
    if not isinstance(subject, str) or not isinstance(since, int) or not isinstance(reason, str):
        return None
    return Waiting(subject, since, reason)
