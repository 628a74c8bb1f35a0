"""`BoundedRun`: finds out where a connector stops, remembers it, and asks for the stop in time
(rule 35)."""

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
from connectors.iceberg.protocol.bounds import Bounds
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.messages import Bounded, Message
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.source_progress import TopicInfo

log = logging.getLogger(__name__)

REPEAT_SECONDS = 600.0  # the channel keeps a day, and less if much is said
LOOK_SECONDS = 1.0  # between two looks at the floors, and at the group's offsets
ASK_SECONDS = 10.0  # between two requests to stop


class BoundedRun:
    """Of one task 0, over all lives of its coordinator; used on the coordinator's thread."""

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
        self._known: Bounded | None = None  # the newest that the channel holds
        self._topic_ids: Mapping[str, str] = {}
        self._repeat_at = 0.0
        self._look_at = 0.0
        self.bounds = Bounds(self._run, {})

    # --- the start of a life

    def noted(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Pass the channel's messages on, and keep what the newest coordinator said of bounds."""
        for message in messages:
            if isinstance(message, Bounded):
                known = self._known
                # another part of it, or it again
                same = known is not None and known.epoch == message.epoch
                ends = (
                    {**known.ends, **message.ends} if known is not None and same else message.ends
                )
                self._known = replace(message, ends=ends)
            yield message

    def resolve(
        self, topics: Mapping[str, TopicInfo], group: Mapping[TopicPartition, GroupOffset]
    ) -> Bounds:
        """Where this run stops: what the channel says of it, else the group's metadata, else the
        cluster, now.

        Raises:
            RetriableError: The cluster does not answer.
            ConnectError: The option names a partition that does not exist.
        """
        ids = {topic: info.id for topic, info in topics.items()}
        known = self._known
        if known is not None and self._goes_on(known.run):
            same = {topic for topic, id_ in known.topic_ids.items() if ids.get(topic) == id_}
            ends = {p: end for p, end in known.ends.items() if p.topic in same}
            self._topic_ids = {topic: known.topic_ids[topic] for topic in same}
        else:
            marks = {p: at.mark for p, at in group.items() if at.mark is not None}
            ends = {
                p: mark.bound.end
                for p, mark in marks.items()
                if mark.bound is not None
                and self._goes_on(mark.bound.run)
                and ids.get(p.topic) == mark.topic_id
            }
            ends = {**self._resolved_now(topics), **ends}
            self._topic_ids = ids
            log.info("stops by itself at %s", _listed(ends), extra={"action": "bounds_resolved"})
        self._repeat_at = 0.0
        self.bounds = Bounds(self._run, ends)
        return self.bounds

    def _goes_on(self, run: str) -> bool:
        """Whether a run is this one: in standalone mode start numbers begin anew with each
        process."""
        digest, _, start = run.partition("/")
        mine, _, my_start = self._run.partition("/")
        return digest == mine and start.isdecimal() and int(start) >= int(my_start)

    def _resolved_now(self, topics: Mapping[str, TopicInfo]) -> dict[TopicPartition, int]:
        partitions = partitions_of(topics)
        if self._stop_at.time_ms is not None:
            return dict(self._context.offsets_at(partitions, self._stop_at.time_ms))
        unknown = sorted(set(self._stop_at.offsets) - set(partitions))
        if unknown:
            raise ConnectError(
                f"{STOP_AT} names {', '.join(map(str, unknown))}, which the connector does not read"
            )
        ends = {tp: end for tp, (_, end) in self._context.log_range(partitions).items()}
        return {**ends, **self._stop_at.offsets}

    # --- while it lives

    def message_due(self, epoch: Epoch) -> list[Message]:
        """What is to be written to the channel now: the bounds, before anything else, and again
        before they expire."""
        now = self._clock()
        if now < self._repeat_at:
            return []
        self._repeat_at = now + REPEAT_SECONDS
        return [Bounded(epoch, self._run, self._topic_ids, self.bounds.ends)]

    def is_look_due(self) -> bool:
        """Whether to look how much remains, now."""
        now = self._clock()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        return True

    def is_reached(self, remaining: int) -> bool:
        """Whether all tables have all rows, so many offsets remaining."""
        self._metrics.remaining(remaining)
        return remaining == 0

    def stop_if_committed(self) -> None:
        """Ask for the group's offsets, and for the stop if they are at the bounds, too; any thread.

        Raises:
            RetriableError: The cluster does not answer.
        """
        ends = {p: end for p, end in self.bounds.ends.items() if end}
        committed = self._context.committed(ends)
        if all(p in committed and committed[p].offset >= end for p, end in ends.items()):
            reason = f"{STOP_AT}={self._stop_at.text} is reached: {_listed(self.bounds.ends)}"
            log.info("asks to be stopped: %s", reason, extra={"action": "bounds_reached"})
            self._context.request_stop(reason)
            self._look_at = self._clock() + ASK_SECONDS


def _listed(ends: Mapping[TopicPartition, int]) -> str:
    """Bounds for people, the first few of many."""
    shown = [f"{p.topic}:{p.partition}:{end}" for p, end in sorted(ends.items())]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return (",".join(shown[:10]) or "no partition") + more
