"""Types that the whole worker shares: IDs, states, statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

KAFKA_VERSION: Final = "4.1.1"  # version of Kafka Connect whose behavior this worker implements


@dataclass(frozen=True, slots=True, order=True)
class ConnectorTaskId:
    """One task of one connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class TargetState(Enum):
    """State that the user requested. The values are stored in the config topic."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"  # tasks keep their partitions and receive no records
    STOPPED = "STOPPED"  # tasks are shut down; offsets may be altered


class State(Enum):
    """Last reported state of a connector or task. The values are stored in the status topic."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"  # connectors only
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"  # a tombstone in the topic


@dataclass(frozen=True, slots=True)
class Waiting:
    """Reason why a running connector or task makes no progress."""

    what: str  # for example `catalog`
    since_ms: int  # since 1970
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    """A published status: the state with its worker, generation, and error."""

    state: State
    worker_id: str  # advertised host:port
    generation: int
    trace: str | None = None  # the complete error message, for FAILED
    version: str | None = None  # of the plugin; None if unknown
    waiting: Waiting | None = None  # for RUNNING
    warnings: tuple[str, ...] = ()  # of a running task


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """Committed or new offset of a connector for one of its partitions.

    For a sink, the partition is `{"kafka_partition": 0, "kafka_topic": "orders"}`, and the offset
    `{"kafka_offset": 123}` is the next offset to read. For a source, both are chosen by the
    connector and consist of JSON scalars.
    """

    partition: Mapping[str, Any] | None
    offset: Mapping[str, Any] | None  # None: reset the offset
