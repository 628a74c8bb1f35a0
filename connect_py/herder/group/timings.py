"""How long things last in a worker group, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from connect_py.config.worker_config import DistributedConfig


@dataclass(frozen=True, slots=True)
class Timings:
    """The same on all workers of a group; each measures on its own monotonic clock."""

    session: float  # a member that was not heard of for so long has surely stopped
    interval: float  # between two hellos
    rebalance: float  # for a member to do what an assignment asks
    max_delay: float  # how long lost work waits for its worker

    @classmethod
    def of(cls, config: DistributedConfig) -> Self:
        """As a worker is configured."""
        return cls(
            config["session.timeout.ms"] / 1000,
            config["heartbeat.interval.ms"] / 1000,
            config["rebalance.timeout.ms"] / 1000,
            config["scheduled.rebalance.max.delay.ms"] / 1000,
        )

    @property
    def lease(self) -> float:
        """How long a member may work after it sent the last hello that arrived."""
        return self.session - self.interval

    @property
    def grace(self) -> float:
        """From the end of a lease until everything must have been killed; the leader waits longer
        than that."""
        return self.interval / 2
