"""`BoundedRun`: stops a connector when it reaches its bounds.

The bounds are one end offset per partition. See rule 35 of the commit protocol.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.keys import STOP_AT
from connectors.iceberg.config.stop_at import StopAt
from connectors.iceberg.coordinator.kafka_metadata import partitions_of
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.messages import Bounded, Message
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import Bounds, Epoch
from connectors.iceberg.protocol.source_progress import TopicInfo

log = logging.getLogger(__name__)

REPEAT_SECONDS = 600.0  # interval between bounds messages; the channel retains them for one day
CHECK_SECONDS = 1.0  # interval between checks of whether the bounds have been reached
STOP_SECONDS = 10.0  # interval between requests to stop


class BoundedRun:
    """Determines a connector's bounds, and stops the connector when they are reached.

    One object serves all of a coordinator's runs. It is used on the coordinator's thread.
    """

    def __init__(
        self,
        stop_at: StopAt,
        context: SinkTaskContext,
        metrics: IcebergMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stop_at = stop_at
        self._context = context
        self._metrics = metrics
        self._clock = clock
        digest = hashlib.sha256(stop_at.text.encode()).hexdigest()[:12]
        self._run = f"{digest}/{context.start_number}"
        self._newest: Bounded | None = None  # bounds from the newest coordinator
        self._topic_ids: Mapping[str, str] = {}
        self._repeat_at = 0.0
        self._check_at = 0.0
        self.bounds = Bounds(self._run, {})

    # Start of a run

    def read(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Iterate over channel messages, and record the bounds from the newest coordinator."""
        for message in messages:
            if isinstance(message, Bounded):
                ends = message.ends
                if self._newest is not None and self._newest.epoch == message.epoch:
                    ends = {**self._newest.ends, **ends}  # another part of the bounds, or a repeat
                self._newest = replace(message, ends=ends)
            yield message

    def resolve(
        self, topics: Mapping[str, TopicInfo], group: Mapping[TopicPartition, GroupOffset]
    ) -> Bounds:
        """Return the run's bounds from the channel or the group offsets, or resolve new bounds.

        Raises:
            RetriableError: The cluster does not respond.
            ConnectError: `iceberg.ext.stop-at` contains a partition that does not exist.
        """
        ids = {topic: info.id for topic, info in topics.items()}
        newest = self._newest
        if newest is not None and self._is_this_run(newest.run):
            self._topic_ids = {
                topic: id_ for topic, id_ in newest.topic_ids.items() if ids.get(topic) == id_
            }
            ends = {p: end for p, end in newest.ends.items() if p.topic in self._topic_ids}
        else:
            marks = {p: offset.mark for p, offset in group.items() if offset.mark is not None}
            ends = {
                p: mark.bound.end
                for p, mark in marks.items()
                if mark.bound is not None
                and self._is_this_run(mark.bound.run)
                and ids.get(p.topic) == mark.topic_id
            }
            ends = {**self._current_ends(topics), **ends}
            self._topic_ids = ids
            log.info("will stop at %s", _describe(ends), extra={"action": "bounds_resolved"})
        self._repeat_at = 0.0
        self.bounds = Bounds(self._run, ends)
        return self.bounds

    def _is_this_run(self, run: str) -> bool:
        """Return True if a run is the current one.

        In standalone mode, each process counts the connector's starts from the beginning, so a
        higher number than the current one is also accepted.
        """
        digest, _, start = run.partition("/")
        current_digest, _, current_start = self._run.partition("/")
        return digest == current_digest and start.isdecimal() and int(start) >= int(current_start)

    def _current_ends(self, topics: Mapping[str, TopicInfo]) -> dict[TopicPartition, int]:
        partitions = partitions_of(topics)
        if self._stop_at.time_ms is not None:
            return dict(self._context.offsets_at(partitions, self._stop_at.time_ms))
        unknown = sorted(set(self._stop_at.offsets) - set(partitions))
        if unknown:
            raise ConnectError(
                f"{STOP_AT} contains {', '.join(map(str, unknown))}, which the connector does not "
                "read"
            )
        ends = {tp: end for tp, (_, end) in self._context.log_range(partitions).items()}
        return {**ends, **self._stop_at.offsets}

    # During a run

    def message_due(self, epoch: Epoch) -> list[Message]:
        """Return the bounds message if it is due: at first, and before the previous one expires."""
        now = self._clock()
        if now < self._repeat_at:
            return []
        self._repeat_at = now + REPEAT_SECONDS
        return [Bounded(epoch, self._run, self._topic_ids, self.bounds.ends)]

    def is_check_due(self) -> bool:
        """Return True if it is time to check how many offsets remain."""
        now = self._clock()
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_SECONDS
        return True

    def is_reached(self, remaining: int) -> bool:
        """Report the number of remaining offsets. Return True if none remain."""
        self._metrics.remaining(remaining)
        return remaining == 0

    def stop_if_committed(self) -> None:
        """Stop the connector if the group offsets have also reached the bounds. Thread-safe.

        Raises:
            RetriableError: The cluster does not respond.
        """
        ends = {p: end for p, end in self.bounds.ends.items() if end}
        committed = self._context.committed(ends)
        if all(p in committed and committed[p].offset >= end for p, end in ends.items()):
            reason = f"{STOP_AT}={self._stop_at.text} is reached: {_describe(self.bounds.ends)}"
            log.info("requesting the stop: %s", reason, extra={"action": "bounds_reached"})
            self._context.request_stop(reason)
            self._check_at = self._clock() + STOP_SECONDS


def _describe(ends: Mapping[TopicPartition, int]) -> str:
    """Return up to ten of the bounds for log messages."""
    bounds = [f"{p.topic}:{p.partition}:{end}" for p, end in sorted(ends.items())]
    more = f" and {len(bounds) - 10} more" if len(bounds) > 10 else ""
    return (",".join(bounds[:10]) or "no partition") + more
