"""`SinkTaskRunner`: the loop of a sink task (poll, convert, transform, put, and commit)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.message_run import MessageRun
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.task import SinkTask
from connect_py.clock import Clock
from connect_py.metrics.sampled import Window
from connect_py.metrics.sink_metrics import SinkMetrics
from connect_py.model import TargetState
from connect_py.task.messages import Paused, Resumed, Started, TopicUsed
from connect_py.task.sink.deliveries import without_partitions
from connect_py.task.sink.offset_commits import OffsetCommits, Positions
from connect_py.task.sink.partition_pauses import PartitionPauses
from connect_py.task.sink.sink_consumer import SinkConsumer
from connect_py.task.sink.sink_pipeline import SinkPipeline
from connect_py.task.sink.subscription import Subscription
from connect_py.task.task_control import TaskControl
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.transformation_chain import Delivery
from connect_py.task.used_topics import UsedTopics
from connect_py.task.wait_board import WaitBoard
from connect_py.task.worker_client import TaskStoppedError

# maximum duration of a client poll, which cannot be interrupted and therefore delays a stop
POLL_SLICE_SECONDS: Final = 0.2
# maximum number of records per poll; a higher value spreads the fixed cost of Arrow calls over more
# records, but each decoded message needs 4 kB of memory
POLL_RECORDS: Final = 4000
# initial and maximum delay before a batch is put again; the task may set a different delay
REDELIVERY_SECONDS: Final = (0.2, 5.0)
TOPICS_INTERVAL_MS: Final = 300_000  # default of the Java client's `metadata.max.age.ms`
BROKER: Final = "broker"  # shown in the status while no broker is connected
PUT: Final = "put"  # shown in the status while the task cannot accept records

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Settings for the loop of a sink or source task."""

    commit_interval_ms: int = 60_000
    commit_timeout_ms: int = 5_000
    poll_records: int = POLL_RECORDS
    # interval for matching a regular expression against the existing topics
    topics_interval_ms: int = TOPICS_INTERVAL_MS

    @classmethod
    def of(
        cls,
        worker: Mapping[str, str],
        poll_records: int | None,
        topics_interval_ms: int | None = None,
    ) -> LoopSettings:
        """Read the settings from the worker's properties."""
        return cls(
            int(worker.get("offset.flush.interval.ms", 60_000)),
            int(worker.get("offset.flush.timeout.ms", 5_000)),
            poll_records or POLL_RECORDS,
            topics_interval_ms or TOPICS_INTERVAL_MS,
        )


class SinkTaskRunner:
    """Runs a sink task and its consumer on one thread.

    Implements `RebalanceListener`.
    """

    def __init__(
        self,
        task: SinkTask,
        task_config: Mapping[str, str],
        topics: TopicSelection,
        settings: LoopSettings,
        control: TaskControl,
        clock: Clock,
        create_pipeline: Callable[[Callable[[float], None]], SinkPipeline],
        create_consumer: Callable[[SinkTaskRunner], SinkConsumer],
        metrics: SinkMetrics | None = None,
        waiting: WaitBoard | None = None,
    ) -> None:
        """Create the runner.

        Args:
            task: Task to run.
            task_config: Configuration of the task.
            topics: Topics to subscribe to.
            settings: Intervals and limits.
            control: Requests from the worker.
            clock: Source of time.
            create_pipeline: Creates the pipeline; called with a function that waits between
                attempts at an operation.
            create_consumer: Creates the consumer; called with this runner, which is the rebalance
                listener.
            metrics: Metrics of the task.
            waiting: Shows in the task's status what the task is waiting for.
        """
        self._task = task
        self._task_config = task_config
        self._settings = settings
        self._control = control
        self._clock = clock
        self.metrics = metrics or SinkMetrics(clock, Window())
        self._waits = waiting or WaitBoard(clock, lambda _: None)

        self._offsets = Positions()
        # records from the last poll that have not been put yet
        self._pending: deque[Delivery] = deque()
        # next offsets after the last poll; they become current after all its records have been put
        self._consumed: dict[TopicPartition, int] = {}
        # partitions that were revoked or rewound while the last poll was being processed
        self._withdrawn: set[TopicPartition] = set()
        # while either of these is True, no records are read
        self._batch_waits = False  # a batch is waiting to be put again
        self._waiting = False  # an operation on a record is waiting to be retried
        self._redeliver_at = 0.0
        self._redelivery_seconds = REDELIVERY_SECONDS[0]
        self._target_paused = False
        self._timeout_ms: int | None = None
        self._commit_requested = False
        self._next_commit = 0.0
        self._topics_used = UsedTopics(lambda topic: control.notify(TopicUsed(topic)), clock)
        pipeline = create_pipeline(self.wait_polling)
        self._pipeline = pipeline.records
        self.errors = pipeline.errors
        self.reporter = pipeline.reporter
        self._consumer = consumer = create_consumer(self)
        self._pauses = PartitionPauses(consumer)
        self._commits = OffsetCommits(
            self._offsets, consumer, clock, self.metrics, settings.commit_timeout_ms
        )
        self._subscription = Subscription(
            topics, consumer, clock, self._waits, settings.topics_interval_ms
        )

    def run(self) -> None:
        """Start the task, loop until a stop is requested, and commit the final offsets.

        Raises the task's errors.
        """
        self._task.start(self._task_config)
        # Subscribe only after the task has started. The client joins the group in the background,
        # and a slow start of the task would block the entire group.
        self._subscription.update()
        self._control.notify(Started())
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
            except Exception:  # the error that ended the loop takes precedence
                log.warning("failed to close the partitions of the failed task", exc_info=True)
            raise
        self._commit(sorted(self._consumer.assigned), closing=True)

    def iterate(self) -> None:
        """Run one iteration: commit if due, poll, convert, put."""
        now = self._clock.monotonic()
        self._check_waiting()
        if not self._commits.running and (self._commit_requested or now >= self._next_commit):
            self._commit_requested = False
            self._next_commit = now + self._settings.commit_interval_ms / 1000
            self._commit(sorted(self._consumer.assigned), closing=False)
        self._commits.forget_slow(now)
        self._follow_target()
        self._subscription.update_if_due(now)
        # the messages are not assigned to a variable, which would keep them in memory during the
        # iteration
        polled = self._take(self._poll(now))
        if not self._batch_waits:
            self._skip_to_ends()
        if polled or not self._batch_waits or self._clock.monotonic() >= self._redeliver_at:
            self._deliver()

    def _check_waiting(self) -> None:
        self._waits.waits(BROKER, self._consumer.cut_off)
        self._waits.send_changes()
        if not self._target_paused:
            self._waits.check()

    def _follow_target(self) -> None:
        paused = self._control.target is TargetState.PAUSED
        if paused == self._target_paused:
            return
        self._target_paused = paused
        self._apply_pauses()
        if paused:
            self._commit_requested = True
        self.metrics.state.change("paused" if paused else "running")
        self._control.notify(Paused() if paused else Resumed())

    def _poll(self, now: float) -> list[MessageRun]:
        timeout = max(0.0, min(POLL_SLICE_SECONDS, self._next_commit - now))
        if self._timeout_ms is not None:
            timeout = min(timeout, self._timeout_ms / 1000)
            self._timeout_ms = None
        if self._batch_waits:
            timeout = min(timeout, max(0.0, self._redeliver_at - now))
            self._poll_paused(timeout)
            return []
        return self._consumer.poll(self._settings.poll_records, timeout)

    def _poll_paused(self, timeout: float) -> None:
        """Poll only to serve rebalances and callbacks."""
        stray = self._consumer.poll(1, timeout)
        if stray:  # fetched just before the pause took effect
            self._consumer.seek(dict([stray[0].first()]))

    # Records

    def _take(self, runs: list[MessageRun]) -> bool:
        """Convert messages to pending records. Return True if there were any messages."""
        if not runs:
            return False
        self._withdrawn.clear()
        consumed: dict[TopicPartition, int] = {}  # the next offsets to read
        for run in runs:
            consumed |= run.consumed()
        self.metrics.poll(sum(map(len, runs)))
        self._topics_used.use({run.topic for run in runs})
        deliveries = self._pipeline.process(runs)
        if self._withdrawn:
            deliveries = without_partitions(deliveries, self._withdrawn)
            consumed = {tp: offset for tp, offset in consumed.items() if tp not in self._withdrawn}
        self._consumed = consumed
        self._pending.extend(deliveries)
        return True

    def _skip_to_ends(self) -> None:
        """Advance past control records at the end of a log.

        Otherwise, they would look like lost records after retention has removed them.
        """
        for tp, end in self._consumer.ends().items():
            if tp in self._offsets.current and end > self._consumed.get(
                tp, self._offsets.current[tp]
            ):
                self._consumed[tp] = end

    def _deliver(self) -> None:
        """Put the pending records, or an empty list if there are none.

        The current offsets advance after all records have been put.
        """
        if not self._pending and not self._put([]):
            return
        while self._pending:
            if not self._put(self._pending.popleft()):
                return
        if self._consumed and not self._end_poll():
            return
        self._offsets.current |= self._consumed
        self._consumed = {}
        if self._batch_waits:
            self._batch_waits = False
            self._waits.waits(PUT, None)
            self._redelivery_seconds = REDELIVERY_SECONDS[0]
            self._apply_pauses()

    def _put(self, delivery: Delivery) -> bool:
        """Put one delivery. Return False if it must be put again later."""
        self._withdrawn.clear()
        start = self._clock.monotonic()
        try:
            if isinstance(delivery, Batch):
                self._task.put_batch(delivery)
            else:
                self._task.put(list(delivery))
        except RetriableError as error:
            self._check_reporter()
            if len(delivery):
                self._pending.extendleft(without_partitions([delivery], self._withdrawn))
            self._schedule_redelivery(error)
            return False
        except Exception as error:
            raise ConnectError("Exiting WorkerSinkTask due to unrecoverable exception.") from error
        self._check_reporter()
        self.metrics.put(len(delivery), self._clock.monotonic() - start)
        return True

    def _end_poll(self) -> bool:
        """Call the task's `end_poll`. Return False if it must be called again later."""
        try:
            self._task.end_poll(dict(self._consumed))
        except RetriableError as error:
            self._schedule_redelivery(error)
            return False
        except Exception as error:
            raise ConnectError("Exiting WorkerSinkTask due to unrecoverable exception.") from error
        return True

    def _check_reporter(self) -> None:
        if self.reporter is not None:
            self.reporter.check()

    def _schedule_redelivery(self, error: RetriableError) -> None:
        wait = self._redelivery_seconds
        if self._timeout_ms is not None:
            wait = self._timeout_ms / 1000
            self._timeout_ms = None
        else:
            self._redelivery_seconds = min(2 * wait, REDELIVERY_SECONDS[1])
        if not self._batch_waits:
            log.warning(
                "put failed with a retriable error, retrying in %.1f s: %s",
                wait,
                error,
                extra={"action": "redeliver"},
            )
        self._redeliver_at = self._clock.monotonic() + wait
        self._batch_waits = True
        self._waits.waits(PUT, str(error))
        self._apply_pauses()

    def _abandon(self) -> None:
        """Drop the polled records that have not been put. Their offsets never became current."""
        self._pending.clear()
        self._consumed = {}

    def wait_polling(self, seconds: float) -> None:
        """Wait before an operation on a record is retried.

        No records are read, but the consumer remains in the group.

        Raises:
            TaskStoppedError: A stop was requested.
        """
        deadline = self._clock.monotonic() + seconds
        self._waiting = True
        self._apply_pauses()
        try:
            while True:
                self._control.check()
                self._check_waiting()
                remaining = deadline - self._clock.monotonic()
                if remaining <= 0:
                    return
                self._poll_paused(min(remaining, POLL_SLICE_SECONDS))
        finally:
            self._waiting = False
            self._apply_pauses()

    def _apply_pauses(self) -> None:
        self._pauses.apply(self._batch_waits or self._waiting or self._target_paused)

    # Commits

    def _commit(
        self,
        partitions: Sequence[TopicPartition],
        *,
        closing: bool,
        ended: BaseException | None = None,
    ) -> None:
        """Commit the offsets that the task reports as safe.

        The order is the same as in Kafka Connect: flush the error reports, call `pre_commit`, call
        `close` if closing, and send the commit.

        Args:
            partitions: Partitions whose offsets are committed.
            closing: Close the partitions, and wait for the result of the commit.
            ended: The error that ended the loop, if any; the caller reports it.
        """
        current = {
            tp: self._offsets.current[tp] for tp in partitions if tp in self._offsets.current
        }
        if not current:
            return
        failure: ConnectError | None = None
        try:
            reported = self.errors.flush(self._settings.commit_timeout_ms / 1000)
        except ConnectError as error:
            if not closing:
                raise
            failure, reported = error, False
        if not reported and not closing:
            self._commits.failed("error reports have not been acknowledged yet")
            return
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        try:
            self.metrics.sequence += 1
            safe = self._task.pre_commit(dict(current))
            offsets = self._commits.acceptable(safe, current)
        except Exception as error:
            if closing and _is_part_of(error, ended):
                log.info(
                    "not committing while closing: pre_commit failed with the error that ended "
                    "the task"
                )
            elif closing:
                log.warning(
                    "not committing while closing: pre_commit failed: %s",
                    error,
                    exc_info=True,
                )
            else:
                self._rewind_to_commit(error)
                return
        finally:
            if closing:
                self._task.close(sorted(current))
        if failure is not None:
            raise failure
        if closing and not reported:
            log.error("not committing: error reports have not been acknowledged")
            return
        self._commits.send(offsets, wait=closing)

    def _rewind_to_commit(self, error: Exception) -> None:
        log.error("pre_commit failed, rewinding to the last commit: %s", error, exc_info=True)
        back = {
            tp: self._offsets.back[tp] for tp in self._consumer.assigned if tp in self._offsets.back
        }
        self._abandon()
        self._batch_waits = False
        self._waits.waits(PUT, None)
        self._offsets.current |= back
        self._consumer.seek(back)
        self._apply_pauses()
        self._commits.failed("pre_commit failed")

    def on_commit(
        self, error: KafkaError | None, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Process the result of a commit. Called from the client's `poll`."""
        self._commits.answered(error, offsets)

    # RebalanceListener

    def on_assigned(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for tp, at in positions.items():
            self._offsets.current[tp] = at.offset
            self._offsets.committed[tp] = at
            self._offsets.back[tp] = at.offset
        self._pauses.forget(positions)
        self._apply_pauses()
        self._pauses.drop_revoked()
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
        """Drop all state for these partitions. Their records are no longer put or committed."""
        revoked = set(partitions)
        self._withdraw(revoked)
        self._offsets.forget(revoked)
        self._pauses.forget(revoked)
        self.metrics.partitions = len(self._consumer.assigned - revoked)

    def _withdraw(self, partitions: set[TopicPartition]) -> None:
        """Drop the polled records from these partitions."""
        self._withdrawn |= partitions
        self._pending = deque(without_partitions(self._pending, partitions))
        self._consumed = {
            tp: offset for tp, offset in self._consumed.items() if tp not in partitions
        }

    # Requests from the task through its context

    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assigned

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        valid = {}
        for tp, offset in offsets.items():
            if offset is None or offset < 0:
                log.warning("ignoring seek on %s: invalid offset %s", tp, offset)
            elif tp not in self._consumer.assigned:
                log.warning("ignoring seek on %s: the task does not own it", tp)
            else:
                valid[tp] = offset
        self._withdraw(set(valid))
        self._offsets.current |= valid
        self._offsets.back |= valid
        self._consumer.seek(valid)

    def pause_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        self._pauses.pause(partitions)
        self._apply_pauses()

    def resume_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        self._pauses.resume(partitions)
        self._apply_pauses()

    def bound_next_poll(self, timeout_ms: int) -> None:
        self._timeout_ms = max(0, timeout_ms)

    def request_commit(self) -> None:
        self._commit_requested = True


def _is_part_of(error: BaseException, ended: BaseException | None) -> bool:
    """Return True if `error` is, or is equivalent to, `ended` or one of its causes."""
    while ended is not None:
        if ended is error or (type(ended) is type(error) and str(ended) == str(error)):
            return True
        ended = ended.__cause__
    return False
