"""Timeouts of a worker group, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from connect_py.config.worker_config import DistributedConfig


@dataclass(frozen=True, slots=True)
class Timings:
    """Timeouts that are the same on all workers of a group.

    Each worker measures the timeouts with its own monotonic clock.
    """

    # a member that has sent no heartbeat for this long has stopped all connectors and tasks
    session_timeout: float
    heartbeat_interval: float
    rebalance_timeout: float  # maximum time for a member to apply an assignment
    max_delay: float  # maximum time for which lost items wait for their worker to return

    @classmethod
    def of(cls, config: DistributedConfig) -> Self:
        """Return the timeouts in a worker configuration."""
        return cls(
            config["session.timeout.ms"] / 1000,
            config["heartbeat.interval.ms"] / 1000,
            config["rebalance.timeout.ms"] / 1000,
            config["scheduled.rebalance.max.delay.ms"] / 1000,
        )

    @property
    def lease(self) -> float:
        """Time for which a member may run its items after sending an acknowledged heartbeat."""
        return self.session_timeout - self.heartbeat_interval

    @property
    def grace(self) -> float:
        """Time from the end of a lease to forced termination.

        The leader reassigns the items later, after a full session timeout.
        """
        return self.heartbeat_interval / 2
