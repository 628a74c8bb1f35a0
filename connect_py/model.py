"""Words that the whole worker shares: ids, states, statuses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
class Status:
    """A status as published: by whom, in which worker generation, and why it failed."""

    state: State
    worker_id: str  # advertised host:port
    generation: int
    trace: str | None = None  # the error's full text, for FAILED
    version: str | None = None  # of the plugin; None when unknown
