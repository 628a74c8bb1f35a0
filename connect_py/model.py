"""Words that the whole worker shares: ids, states, statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

KAFKA_VERSION: Final = "4.1.1"  # of the Kafka Connect whose behaviour this worker matches


@dataclass(frozen=True, slots=True, order=True)
class ConnectorTaskId:
    """One task of one connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class TargetState(Enum):
    """What the user asked for; the values are what the config topic stores."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"  # the task keeps its partitions and receives no records
    STOPPED = "STOPPED"  # tasks are shut down; offsets may be edited


class State(Enum):
    """What was last heard of a connector or task; the values are what the status topic stores."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"  # connectors only
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"  # a tombstone in the topic


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a connector or a task waits for: it runs, and can do no work."""

    what: str  # such as `catalog`
    since_ms: int  # since 1970
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    """A status as published: by whom, in which worker generation, and why it failed."""

    state: State
    worker_id: str  # advertised host:port
    generation: int
    trace: str | None = None  # the error's full text, for FAILED
    version: str | None = None  # of the plugin; None when unknown
    waiting: Waiting | None = None  # of what is RUNNING
    warnings: tuple[str, ...] = ()  # of a running task


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """What a connector has committed, or is to have, for one of its partitions.

    A sink's partition is `{"kafka_partition": 0, "kafka_topic": "orders"}`, its offset
    `{"kafka_offset": 123}`, the next one to read; a source's are its own, of JSON scalars.
    """

    partition: Mapping[str, Any] | None
    offset: Mapping[str, Any] | None  # None: to be reset
