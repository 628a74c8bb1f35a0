"""`OffsetCommits`: sends the offset commits of a sink task and processes the results."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.task import SafeOffset
from connect_py.clock import Clock
from connect_py.metrics.sink_metrics import SinkMetrics
from connect_py.task.sink.sink_consumer import SinkConsumer

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Commit:
    """A commit in progress."""

    sequence: int
    offsets: dict[TopicPartition, OffsetAndMetadata]
    started: float
    read: int  # number of records read before the commit was sent


@dataclass(slots=True)
class Positions:
    """A task's positions in its partitions. Each position is the next offset to read."""

    # all records before this position have been put or dropped
    current: dict[TopicPartition, int] = field(default_factory=dict)
    # the group's committed offsets
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    # position to return to after a failed commit
    back: dict[TopicPartition, int] = field(default_factory=dict)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.current.pop(tp, None)
            self.committed.pop(tp, None)
            self.back.pop(tp, None)


class OffsetCommits:
    """Sends and tracks one commit at a time. Used on the loop's thread."""

    def __init__(
        self,
        positions: Positions,
        consumer: SinkConsumer,
        clock: Clock,
        metrics: SinkMetrics,
        timeout_ms: int,
    ) -> None:
        self._positions = positions
        self._consumer = consumer
        self._clock = clock
        self._metrics = metrics
        self._timeout_ms = timeout_ms
        self._in_flight: deque[_Commit] = deque()
        self._running: int | None = None

    @property
    def running(self) -> bool:
        """Return True if a commit is in progress."""
        return self._running is not None

    def acceptable(
        self, safe: Mapping[TopicPartition, SafeOffset], current: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the valid offsets in `safe` that have not been committed yet."""
        offsets = {}
        for tp, value in safe.items():
            at = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
            if tp not in current:
                level = logging.DEBUG if tp in self._consumer.assigned else logging.WARNING
                log.log(
                    level,
                    "ignoring offset that pre_commit returned for %s, which is not being committed",
                    tp,
                )
            elif at.offset > current[tp]:
                log.warning(
                    "ignoring offset %d that pre_commit returned for %s: it is beyond %d",
                    at.offset,
                    tp,
                    current[tp],
                )
            elif self._positions.committed.get(tp) != at:
                offsets[tp] = at
        return offsets

    def send(self, offsets: dict[TopicPartition, OffsetAndMetadata], *, wait: bool) -> None:
        """Commit offsets. Block until the response arrives if `wait` is True."""
        if not offsets:
            self._metrics.skipped()
            return
        commit = _Commit(
            self._metrics.sequence, offsets, self._clock.monotonic(), self._metrics.read
        )
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "committing offsets: %s",
                ", ".join(f"{tp}: {at.offset}" for tp, at in offsets.items()),
            )
        if wait:
            self._completed(commit, self._consumer.commit_and_wait(offsets))
            return
        self._in_flight.append(commit)
        self._running = commit.sequence
        self._consumer.commit(offsets)

    def answered(
        self, error: KafkaError | None, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Process the result of a commit. Called from the client's `poll`."""
        for commit in self._in_flight:
            if commit.offsets.keys() == offsets.keys() and all(
                commit.offsets[tp].offset == at.offset for tp, at in offsets.items()
            ):
                self._in_flight.remove(commit)
                if commit.sequence == self._running:
                    self._running = None
                    self._completed(commit, error)
                else:
                    # this commit was abandoned after a timeout; a newer one may be in progress
                    self._metrics.skipped()
                return

    def _completed(self, commit: _Commit, error: KafkaError | None) -> None:
        seconds = self._clock.monotonic() - commit.started
        if error is not None:
            self.failed(error.str(), seconds)
            return
        self._metrics.completed(seconds, commit.read)
        for tp, at in commit.offsets.items():
            if tp in self._positions.current:
                self._positions.committed[tp] = at
                self._positions.back[tp] = at.offset

    def failed(self, reason: str, seconds: float = 0.0) -> None:
        """Count and log a failed commit."""
        self._metrics.commits.failed(seconds)
        log.error("failed to commit offsets: %s", reason, extra={"action": "commit_failed"})

    def forget_slow(self, now: float) -> None:
        """Count the commit as failed if it has timed out. Its response may still arrive."""
        if self._running is None:
            return
        commit = next((c for c in self._in_flight if c.sequence == self._running), None)
        if commit is not None and now - commit.started > self._timeout_ms / 1000:
            self._running = None
            self.failed(f"no response within {self._timeout_ms} ms", now - commit.started)
