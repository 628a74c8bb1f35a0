"""Timeouts of a worker group, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from connect_py.config.worker_config import DistributedConfig


@dataclass(frozen=True, slots=True)
class Timings:
    """Timeouts that are equal on all workers of a group.

    Each worker measures them on its own monotonic clock.
    """

    # a member without a heartbeat for this long has stopped all of its items
    session_timeout: float
    heartbeat_interval: float  # between two heartbeats
    rebalance_timeout: float  # time that a member has to apply an assignment
    max_delay: float  # time for which lost items wait for their worker to return

    @classmethod
    def of(cls, config: DistributedConfig) -> Self:
        """Return the timeouts of a worker configuration."""
        return cls(
            config["session.timeout.ms"] / 1000,
            config["heartbeat.interval.ms"] / 1000,
            config["rebalance.timeout.ms"] / 1000,
            config["scheduled.rebalance.max.delay.ms"] / 1000,
        )

    @property
    def lease(self) -> float:
        """Time that a member may run its items after sending its last acknowledged heartbeat."""
        return self.session_timeout - self.heartbeat_interval

    @property
    def grace(self) -> float:
        """Time between the end of a lease and the forced termination; the leader waits longer."""
        return self.heartbeat_interval / 2
