"""`SinkTaskRunner`: the loop of a sink task: poll, convert, transform, put, commit."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from connect_py.api.task import SafeOffset, SinkTask
from connect_py.clock import Clock
from connect_py.error_handling.errant_record_reporter import TaskErrantRecordReporter
from connect_py.error_handling.error_handler import ErrorHandler
from connect_py.metrics.sampled import Window
from connect_py.metrics.sink_metrics import SinkMetrics
from connect_py.model import TargetState
from connect_py.task.message_run import MessageRun
from connect_py.task.messages import Paused, Resumed, Started, TopicUsed
from connect_py.task.record_pipeline import RecordPipeline
from connect_py.task.task_control import TaskControl, TaskStoppedError
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.transformation_chain import Delivery
from connect_py.task.used_topics import UsedTopics
from connect_py.task.wait_board import WaitBoard

POLL_SLICE_SECONDS: Final = 0.2  # the client has no wakeup; a stop is noticed this late at worst
POLL_RECORDS: Final = 4000  # at most: each call of Arrow has its price, and decoded messages take 4 kB each
REDELIVERY_SECONDS: Final = (0.2, 5.0)  # first and longest wait before a batch is put again; the task may bound it
NO_TOPIC_SECONDS: Final = 5.0  # until the topics are listed again while none matches, or no broker answers
LIST_SECONDS: Final = (3.0, 10.0)  # for the list: at first, and at last for a cluster that takes its time; stops wait
BROKER: Final = "broker"  # what waits: everything
PUT: Final = "put"  # what waits: records that the task takes later
LISTED: Final = "list of topics"
TELL_SECONDS: Final = 60.0  # between lines about an outage

log = logging.getLogger(__name__)


class Consuming(Protocol):
    """The part of `SinkConsumer` that the loop uses."""

    @property
    def assigned(self) -> frozenset[TopicPartition]: ...

    @property
    def cut_off(self) -> str | None: ...

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def topics(self, timeout: float) -> Mapping[str, int]: ...

    def poll(self, limit: int, timeout: float) -> list[MessageRun]: ...

    def ends(self) -> Mapping[TopicPartition, int]: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def commit_and_wait(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> KafkaError | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How the loop runs."""

    commit_interval_ms: int = 60_000
    commit_timeout_ms: int = 5_000
    poll_records: int = POLL_RECORDS
    topics_interval_ms: int = 300_000  # how often a regular expression is matched against the topics again

    @classmethod
    def of(cls, worker: Mapping[str, str], poll_records: int | None) -> LoopSettings:
        """Read the worker's properties."""
        return cls(
            int(worker.get("offset.flush.interval.ms", 60_000)),
            int(worker.get("offset.flush.timeout.ms", 5_000)),
            poll_records or POLL_RECORDS,
        )


@dataclass(slots=True)
class _Commit:
    """A commit on its way."""

    sequence: int
    offsets: dict[TopicPartition, OffsetAndMetadata]
    started: float
    read: int  # records read so far


@dataclass(slots=True)
class _Offsets:
    """Where this task is, per partition that it owns. All are next offsets to read."""

    current: dict[TopicPartition, int] = field(default_factory=dict)  # everything below was put or dropped
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)  # what the group holds
    back: dict[TopicPartition, int] = field(default_factory=dict)  # where to go back to when a commit fails

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.current.pop(tp, None)
            self.committed.pop(tp, None)
            self.back.pop(tp, None)


class SinkTaskRunner:
    """Owns the consumer and calls the task, all on one thread. `run` is its life.

    Satisfies `RebalanceListener` and `LoopControls`.
    """

    def __init__(
        self,
        task: SinkTask,
        task_config: Mapping[str, str],
        topics: TopicSelection,
        settings: LoopSettings,
        control: TaskControl,
        clock: Clock,
        metrics: SinkMetrics | None = None,
        waiting: WaitBoard | None = None,
    ) -> None:
        """Prepare; `connect` hands in what in turn needs this object."""
        self._task = task
        self._task_config = task_config
        self._topics = topics
        self._settings = settings
        self._control = control
        self._clock = clock
        self._consumer: Consuming
        self._pipeline: RecordPipeline
        self._errors: ErrorHandler
        self._reporter: TaskErrantRecordReporter | None = None
        self.metrics = metrics or SinkMetrics(clock, Window())
        self._waits = waiting or WaitBoard(clock, lambda _: None)

        self._offsets = _Offsets()
        self._kept: deque[Delivery] = deque()  # of the last poll, not yet put
        self._consumed: dict[TopicPartition, int] = {}  # the end of the last poll; current once everything is put
        self._gone: set[TopicPartition] = set()  # given up or rewound while the last poll was being worked on
        self._held = False  # a batch waits to be put again: nothing is read meanwhile
        self._waiting = False  # an operation on a record waits to be repeated: the same
        self._redeliver_at = 0.0
        self._redelivery_seconds = REDELIVERY_SECONDS[0]
        self._target_paused = False
        self._paused_by_task: set[TopicPartition] = set()
        self._paused_now: set[TopicPartition] = set()
        self._timeout_ms: int | None = None
        self._commit_requested = False
        self._next_commit = 0.0
        self._in_flight: deque[_Commit] = deque()
        self._running_commit: int | None = None
        self._subscribed: list[str] = []
        self._list_topics_at = 0.0
        self._list_seconds = LIST_SECONDS[0]
        self._tell_outage_at = 0.0
        self._topics_used = UsedTopics(lambda topic: control.send(TopicUsed(topic)), clock)

    def connect(
        self,
        consumer: Consuming,
        pipeline: RecordPipeline,
        errors: ErrorHandler,
        reporter: TaskErrantRecordReporter | None,
    ) -> None:
        """Take what was made for this loop."""
        self._consumer = consumer
        self._pipeline = pipeline
        self._errors = errors
        self._reporter = reporter

    # Life.

    def run(self) -> None:
        """Start the task, loop until a stop is asked for, and end in order; errors of the task are raised."""
        self._task.start(self._task_config)
        self._subscribe()  # not earlier: the client joins by itself, and a slow start would hold up the whole group
        self._control.send(Started())
        self.metrics.state.change("running")
        self._next_commit = self._clock.monotonic() + self._settings.commit_interval_ms / 1000
        try:
            while not self._control.stopping:
                self.iterate()
        except TaskStoppedError:
            self._abandon()
        except BaseException as ended:
            self._abandon()
            try:
                self._commit(sorted(self._consumer.assigned), closing=True, ended=ended)
            except Exception:  # the error that ended the loop is the one to tell
                log.warning("closing partitions failed too", exc_info=True)
            raise
        self._commit(sorted(self._consumer.assigned), closing=True)

    def iterate(self) -> None:
        """One round: commit if it is due, poll, convert, put."""
        now = self._clock.monotonic()
        self._check_waiting()
        if self._running_commit is None and (self._commit_requested or now >= self._next_commit):
            self._commit_requested = False
            self._next_commit = now + self._settings.commit_interval_ms / 1000
            self._commit(sorted(self._consumer.assigned), closing=False)
        self._forget_slow_commit(now)
        self._follow_target()
        if self._topics.is_regex and now >= self._list_topics_at:
            self._subscribe()
        runs = self._poll(now)
        polled = bool(runs)
        if polled:
            self._take(runs)
        runs = []  # they may be large, and what follows may take long
        if not self._held:
            self._reach_ends()
        if polled or not self._held or self._clock.monotonic() >= self._redeliver_at:
            self._deliver()

    def _check_waiting(self) -> None:
        self._waits.waits(BROKER, self._consumer.cut_off)
        self._waits.tell()
        if not self._target_paused:
            self._waits.check()

    def _subscribe(self) -> None:
        topics = self._topics.listed()
        if self._topics.is_regex:
            try:
                existing = self._consumer.topics(self._list_seconds)
            except RetriableError as error:
                now = self._clock.monotonic()
                if now >= self._tell_outage_at:
                    log.warning("the subscription stays as it is: %s", error, extra={"action": "subscribe"})
                    self._tell_outage_at = now + TELL_SECONDS
                self._waits.waits(LISTED, str(error))
                self._list_seconds = min(2 * self._list_seconds, LIST_SECONDS[1])
                self._list_topics_at = now + NO_TOPIC_SECONDS
                return
            self._list_seconds, self._tell_outage_at = LIST_SECONDS[0], 0.0
            self._waits.waits(LISTED, None)
            topics = self._topics.among(existing)
            wait = self._settings.topics_interval_ms / 1000 if topics else NO_TOPIC_SECONDS
            self._list_topics_at = self._clock.monotonic() + wait
        if topics and topics != self._subscribed:
            log.info("subscribes to %s", ", ".join(topics), extra={"action": "subscribe"})
            self._consumer.subscribe(topics)
            self._subscribed = topics

    def _follow_target(self) -> None:
        paused = self._control.target is TargetState.PAUSED
        if paused == self._target_paused:
            return
        self._target_paused = paused
        self._apply_pauses()
        if paused:
            self._commit_requested = True
        self.metrics.state.change("paused" if paused else "running")
        self._control.send(Paused() if paused else Resumed())

    def _poll(self, now: float) -> list[MessageRun]:
        timeout = max(0.0, min(POLL_SLICE_SECONDS, self._next_commit - now))
        if self._timeout_ms is not None:
            timeout = min(timeout, self._timeout_ms / 1000)
            self._timeout_ms = None
        if self._held:
            timeout = min(timeout, max(0.0, self._redeliver_at - now))
            self._poll_paused(timeout)
            return []
        return self._consumer.poll(self._settings.poll_records, timeout)

    def _poll_paused(self, timeout: float) -> None:
        """Poll for rebalances and callbacks only."""
        stray = self._consumer.poll(1, timeout)
        if stray:  # read just before the pause reached its fetcher
            self._consumer.seek(dict([stray[0].first()]))

    # Records.

    def _take(self, runs: list[MessageRun]) -> None:
        self._gone.clear()
        consumed: dict[TopicPartition, int] = {}  # the next offsets to read
        for run in runs:
            consumed |= run.consumed()
        self.metrics.poll(sum(map(len, runs)))
        self._topics_used.use({run.topic for run in runs})
        deliveries = self._pipeline.process(runs)
        if self._gone:
            deliveries = without_partitions(deliveries, self._gone)
            consumed = {tp: offset for tp, offset in consumed.items() if tp not in self._gone}
        self._consumed = consumed
        self._kept.extend(deliveries)

    def _reach_ends(self) -> None:
        """Go past what ends a log and is no record: else retention would seem to be faster once it removes these."""
        for tp, end in self._consumer.ends().items():
            if tp in self._offsets.current and end > self._consumed.get(tp, self._offsets.current[tp]):
                self._consumed[tp] = end

    def _deliver(self) -> None:
        """Put what is kept, or an empty list; everything put moves the current offsets."""
        if not self._kept and not self._put([]):
            return
        while self._kept:
            if not self._put(self._kept.popleft()):
                return
        if self._consumed and not self._end_poll():
            return
        self._offsets.current |= self._consumed
        self._consumed = {}
        if self._held:
            self._held = False
            self._waits.waits(PUT, None)
            self._redelivery_seconds = REDELIVERY_SECONDS[0]
            self._apply_pauses()

    def _put(self, delivery: Delivery) -> bool:
        """False: it is put again later."""
        self._gone.clear()
        start = self._clock.monotonic()
        try:
            if isinstance(delivery, Batch):
                self._task.put_batch(delivery)
            else:
                self._task.put(list(delivery))
        except RetriableError as error:
            self._check_reporter()
            if len(delivery):
                self._kept.extendleft(without_partitions([delivery], self._gone))
            self._hold(error)
            return False
        except Exception as error:
            raise ConnectError("Exiting WorkerSinkTask due to unrecoverable exception.") from error
        self._check_reporter()
        self.metrics.put(len(delivery), self._clock.monotonic() - start)
        return True

    def _end_poll(self) -> bool:
        """Call the task's `end_poll`; False: it is called again later."""
        try:
            self._task.end_poll(dict(self._consumed))
        except RetriableError as error:
            self._hold(error)
            return False
        except Exception as error:
            raise ConnectError("Exiting WorkerSinkTask due to unrecoverable exception.") from error
        return True

    def _check_reporter(self) -> None:
        if self._reporter is not None:
            self._reporter.check()

    def _hold(self, error: RetriableError) -> None:
        wait = self._redelivery_seconds
        if self._timeout_ms is not None:
            wait = self._timeout_ms / 1000
            self._timeout_ms = None
        else:
            self._redelivery_seconds = min(2 * wait, REDELIVERY_SECONDS[1])
        if not self._held:
            log.warning("put is repeated, first in %.1f s: %s", wait, error, extra={"action": "redeliver"})
        self._redeliver_at = self._clock.monotonic() + wait
        self._held = True
        self._waits.waits(PUT, str(error))
        self._apply_pauses()

    def _abandon(self) -> None:
        """Forget what was polled and not put; its offsets were never current."""
        self._kept.clear()
        self._consumed = {}

    def wait_polling(self, seconds: float) -> None:
        """Wait while an operation on a record is to be repeated: nothing is read, the group sees us alive.

        Raises:
            TaskStoppedError: A stop was asked for.
        """
        deadline = self._clock.monotonic() + seconds
        self._waiting = True
        self._apply_pauses()
        try:
            while True:
                self._control.check()
                self._check_waiting()
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return
                self._poll_paused(min(left, POLL_SLICE_SECONDS))
        finally:
            self._waiting = False
            self._apply_pauses()

    # Pauses.

    def _apply_pauses(self) -> None:
        assigned = self._consumer.assigned
        everything = self._held or self._waiting or self._target_paused
        wanted = set(assigned) if everything else self._paused_by_task & assigned
        now = self._paused_now & assigned
        self._consumer.pause(sorted(wanted - now))
        self._consumer.resume(sorted(now - wanted))
        self._paused_now = wanted

    # Commits.

    def _commit(
        self, partitions: Sequence[TopicPartition], *, closing: bool, ended: BaseException | None = None
    ) -> None:
        """Commit what the task says is safe of these partitions; `closing` gives them up and waits.

        The order is Connect's: reports are safe, `pre_commit`, `close` if closing, send. `ended` is the error that
        ended the loop; the caller reports it.
        """
        current = {tp: self._offsets.current[tp] for tp in partitions if tp in self._offsets.current}
        if not current:
            return
        failure: ConnectError | None = None
        try:
            reported = self._errors.flush(self._settings.commit_timeout_ms / 1000)
        except ConnectError as error:
            if not closing:
                raise
            failure, reported = error, False
        if not reported and not closing:
            self._commit_failed("error reports are not acknowledged yet")
            return
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        try:
            self.metrics.sequence += 1
            safe = self._task.pre_commit(dict(current))
            offsets = self._acceptable(safe, current)
        except Exception as error:
            if closing and _is_part_of(error, ended):
                log.info("nothing is committed while closing: pre_commit fails for the reason that ended the task")
            elif closing:
                log.warning("pre_commit failed while closing, nothing is committed: %s", error, exc_info=True)
            else:
                self._go_back(error)
                return
        finally:
            if closing:
                self._task.close(sorted(current))
        if failure is not None:
            raise failure
        if closing and not reported:
            log.error("error reports were not acknowledged, nothing is committed")
            return
        self._send(offsets, wait=closing)

    def _acceptable(
        self, safe: Mapping[TopicPartition, SafeOffset], current: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        offsets = {}
        for tp, value in safe.items():
            at = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
            if tp not in current:
                level = logging.DEBUG if tp in self._consumer.assigned else logging.WARNING
                log.log(level, "pre_commit returned %s, which is not being committed; it is ignored", tp)
            elif at.offset > current[tp]:
                log.warning("pre_commit returned %d for %s, beyond %d; it is ignored", at.offset, tp, current[tp])
            elif self._offsets.committed.get(tp) != at:
                offsets[tp] = at
        return offsets

    def _go_back(self, error: Exception) -> None:
        log.error("pre_commit failed, reading goes back to the last commit: %s", error, exc_info=True)
        back = {tp: self._offsets.back[tp] for tp in self._consumer.assigned if tp in self._offsets.back}
        self._abandon()
        self._held = False
        self._waits.waits(PUT, None)
        self._offsets.current |= back
        self._consumer.seek(back)
        self._apply_pauses()
        self._commit_failed("pre_commit failed")

    def _commit_failed(self, why: str, seconds: float = 0.0) -> None:
        self.metrics.commits.failed(seconds)
        log.error("commit of offsets failed: %s", why, extra={"action": "commit_failed"})

    def _send(self, offsets: dict[TopicPartition, OffsetAndMetadata], *, wait: bool) -> None:
        if not offsets:
            self.metrics.skipped()
            return
        commit = _Commit(self.metrics.sequence, offsets, self._clock.monotonic(), self.metrics.read)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("commits %s", ", ".join(f"{tp}: {at.offset}" for tp, at in offsets.items()))
        if wait:
            self._completed(commit, self._consumer.commit_and_wait(offsets))
            return
        self._in_flight.append(commit)
        self._running_commit = commit.sequence
        self._consumer.commit(offsets)

    def on_commit(self, error: KafkaError | None, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The client's news of a commit that was sent; inside a poll."""
        for commit in self._in_flight:
            if commit.offsets.keys() == offsets.keys() and all(
                commit.offsets[tp].offset == at.offset for tp, at in offsets.items()
            ):
                self._in_flight.remove(commit)
                if commit.sequence == self._running_commit:
                    self._running_commit = None
                    self._completed(commit, error)
                else:
                    self.metrics.skipped()  # it was given up, and a newer one may be on its way
                return

    def _completed(self, commit: _Commit, error: KafkaError | None) -> None:
        seconds = self._clock.monotonic() - commit.started
        if error is not None:
            self._commit_failed(error.str(), seconds)
            return
        self.metrics.completed(seconds, commit.read)
        for tp, at in commit.offsets.items():
            if tp in self._offsets.current:
                self._offsets.committed[tp] = at
                self._offsets.back[tp] = at.offset

    def _forget_slow_commit(self, now: float) -> None:
        if self._running_commit is None:
            return
        commit = next((c for c in self._in_flight if c.sequence == self._running_commit), None)
        if commit is not None and now - commit.started > self._settings.commit_timeout_ms / 1000:
            self._running_commit = None
            self._commit_failed(f"no answer within {self._settings.commit_timeout_ms} ms", now - commit.started)

    # RebalanceListener.

    def on_assigned(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for tp, at in positions.items():
            self._offsets.current[tp] = at.offset
            self._offsets.committed[tp] = at
            self._offsets.back[tp] = at.offset
        self._paused_now -= positions.keys()
        self._apply_pauses()
        self._paused_by_task &= self._consumer.assigned
        self.metrics.partitions = len(self._consumer.assigned)
        if positions:
            self._task.open(sorted(positions))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            self._commit(sorted(partitions), closing=True)
        finally:
            self._forget(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        owned = sorted(tp for tp in partitions if tp in self._offsets.current)
        self._forget(partitions)
        log.warning("lost partitions %s", ", ".join(map(str, partitions)), extra={"action": "lost"})
        if owned:
            self._task.close(owned)

    def on_position_lost(self, partition: TopicPartition) -> bool:
        return self._task.position_lost(partition)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these partitions is put or committed any more."""
        going = set(partitions)
        self._gone |= going
        self._kept = deque(without_partitions(self._kept, going))
        self._consumed = {tp: offset for tp, offset in self._consumed.items() if tp not in going}
        self._offsets.forget(going)
        self._paused_now -= going
        self.metrics.partitions = len(self._consumer.assigned - going)

    # LoopControls: what the task asks for through its context.

    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assigned

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        valid = {}
        for tp, offset in offsets.items():
            if offset is None or offset < 0:
                log.warning("seek of %s to %s is ignored", tp, offset)
            elif tp not in self._consumer.assigned:
                log.warning("seek of %s is ignored: the task does not own it", tp)
            else:
                valid[tp] = offset
        moved = set(valid)
        self._gone |= moved
        self._kept = deque(without_partitions(self._kept, moved))
        self._consumed = {tp: offset for tp, offset in self._consumed.items() if tp not in moved}
        self._offsets.current |= valid
        self._offsets.back |= valid
        self._consumer.seek(valid)

    def pause_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused_by_task |= self._owned(partitions)
        self._apply_pauses()

    def resume_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused_by_task -= self._owned(partitions)
        self._apply_pauses()

    def _owned(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        wanted = set(partitions)
        foreign = wanted - self._consumer.assigned
        if foreign:
            raise ConnectError(f"the task does not own {', '.join(map(str, sorted(foreign)))}")
        return wanted

    def bound_next_poll(self, timeout_ms: int) -> None:
        self._timeout_ms = max(0, timeout_ms)

    def request_commit(self) -> None:
        self._commit_requested = True


def without_partitions(deliveries: Iterable[Delivery], partitions: Iterable[TopicPartition]) -> list[Delivery]:
    """Leave out rows that were consumed from these partitions, wherever they are routed now."""
    gone = set(partitions)
    if not gone:
        return list(deliveries)
    left: list[Delivery] = []
    for delivery in deliveries:
        kept: Delivery | None
        if isinstance(delivery, Batch):
            kept = _batch_without(delivery, gone)
        else:
            rows: list[SinkRecord] = [r for r in delivery if r.origin.topic_partition not in gone]
            kept = rows or None
        if kept is not None:
            left.append(kept)
    return left


def _batch_without(batch: Batch, gone: set[TopicPartition]) -> Batch | None:
    numbers = {tp.partition for tp in gone if tp.topic == batch.origin.topic}
    mask = pa.array([p not in numbers for p in batch.origin.partitions.to_pylist()], pa.bool_())
    if mask.true_count == len(batch):
        return batch
    return batch.where(mask) if mask.true_count else None


def _is_part_of(error: BaseException, ended: BaseException | None) -> bool:
    """Whether an error is one that another was made from, or says the same."""
    while ended is not None:
        if ended is error or (type(ended) is type(error) and str(ended) == str(error)):
            return True
        ended = ended.__cause__
    return False
