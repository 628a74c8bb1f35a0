"""Types that all parts of the worker use: IDs, states, and statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

KAFKA_VERSION: Final = "4.1.1"  # version of Kafka Connect whose behavior this worker implements


@dataclass(frozen=True, slots=True, order=True)
class ConnectorTaskId:
    """ID of one task of a connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class TargetState(Enum):
    """State that the user requested. The values are stored in the config topic."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"  # tasks retain their partitions but receive no records
    STOPPED = "STOPPED"  # tasks are shut down; offsets may be altered


class State(Enum):
    """Last reported state of a connector or task. The values are stored in the status topic."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"  # connectors only
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"  # stored as a tombstone


@dataclass(frozen=True, slots=True)
class Waiting:
    """Reason why a running connector or task makes no progress."""

    what: str  # for example `catalog`
    since_ms: int  # ms since the epoch
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    """Published status of a connector or task."""

    state: State
    worker_id: str  # advertised host:port
    generation: int
    trace: str | None = None  # full error message, for FAILED
    version: str | None = None  # plugin version, or None if unknown
    waiting: Waiting | None = None  # only for RUNNING
    warnings: tuple[str, ...] = ()  # only for a running task


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """Committed or new offset of a connector for one of its partitions.

    For a sink, the partition is `{"kafka_partition": 0, "kafka_topic": "orders"}`, and the offset
    `{"kafka_offset": 123}` is the next offset to read. For a source, the connector defines both,
    and they consist of JSON scalars.
    """

    partition: Mapping[str, Any] | None
    offset: Mapping[str, Any] | None  # None to reset the offset
