"""`RebalanceMetrics`: number and duration of this worker's rebalances."""

from __future__ import annotations

from collections.abc import Iterator

from connect_py.clock import Clock
from connect_py.metrics.sampled import SampledStat, Window
from connect_py.metrics.samples import AnySample, Sample, TextSample

REBALANCES = "connect-worker-rebalance-metrics"
COORDINATOR = "connect-coordinator-metrics"
PROTOCOL = "sessioned"  # Java's name for the group protocol


class RebalanceMetrics:
    """Rebalance metrics of one worker, updated by the herder's thread. Reading is thread-safe."""

    def __init__(self, clock: Clock, window: Window) -> None:
        self._clock = clock
        self._seconds = SampledStat(clock, window)
        self._completed = 0
        # start time while the worker waits for an assignment or applies one, otherwise None
        self._since: float | None = clock.monotonic()
        self._last: float | None = None

    def began(self) -> None:
        """Record that the assignment has changed or been lost."""
        if self._since is None:
            self._since = self._clock.monotonic()

    def completed(self) -> None:
        """Record that the worker has applied its assignment."""
        now = self._clock.monotonic()
        if self._since is not None:
            self._seconds.record(now - self._since)
        self._since = None
        self._completed += 1
        self._last = now

    def samples(
        self,
        *,
        generation: int,
        leader_url: str | None,
        connectors: int,
        tasks: int,
        client_id: str,
    ) -> Iterator[AnySample]:
        """Yield the current values of all metrics."""
        since_last = (
            float("inf") if self._last is None else 1000 * (self._clock.monotonic() - self._last)
        )
        yield TextSample(REBALANCES, "connect-protocol", PROTOCOL)
        yield TextSample(REBALANCES, "leader-name", leader_url or "")
        for name, value in {
            "epoch": generation,
            "completed-rebalances-total": self._completed,
            "rebalancing": 0 if self._since is None else 1,
            "rebalance-max-time-ms": 1000 * self._seconds.max(),
            "rebalance-avg-time-ms": 1000 * self._seconds.avg(),
            "time-since-last-rebalance-ms": since_last,
        }.items():
            yield Sample(REBALANCES, name, value)
        tags = {"client-id": client_id}
        yield Sample(COORDINATOR, "assigned-connectors", connectors, tags)
        yield Sample(COORDINATOR, "assigned-tasks", tasks, tags)
